// Tests seals against drand's tlock-js, in both directions: the vectors, and fresh seals of several sizes by the page and by
// package timelock. Needs Go, no network and no running stack. Run `npm install` first.
//
//   npm run check

import assert from 'node:assert';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import tlock from 'tlock-js';

const { timelockDecrypt, timelockEncrypt, Buffer } = tlock;
const repo = (path) => new URL(`../../${path}`, import.meta.url);
const vectors = JSON.parse(readFileSync(repo('e2e/testdata/timelock.json'), 'utf8'));
const { chain, round, signature } = vectors;

// Node reads the modules of the page as ES modules only below a package.json that says so.
const folder = mkdtempSync(join(tmpdir(), 'timelock-'));
cpSync(repo('internal/api/pages/static'), folder, { recursive: true });
writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
const ours = await import(pathToFileURL(join(folder, 'timelock.js')));
rmSync(folder, { recursive: true });

const info = { ...chain, hash: chain.chain_hash, groupHash: '', schemeID: 'bls-unchained-g1-rfc9380', metadata: { beaconID: 'quicknet' } };
const client = {
  options: { disableBeaconVerification: true },
  chain: () => ({ baseUrl: '', info: async () => info }),
  get: async () => ({ round, signature, randomness: '' }),
};
const say = console.log;
console.log = () => {}; // tlock-js prints every round

const own = { hash: chain.chain_hash, key: chain.public_key };
let opened = 0;
const opens = async (seal, plaintext, what) => {
  assert.ok((await timelockDecrypt(seal, client)).equals(Buffer.from(plaintext)), what);
  opened++;
};
for (const { seal, text, times } of vectors.own.filter((one) => one.seal)) await opens(seal, text.repeat(times), `the vector ${text}`);
const theirs = [];
for (const size of [1, 300, 65535, 65536, 65537, 131072, 525000]) { // for an empty plaintext tlock-js writes no chunk, which age does not allow
  const plaintext = Buffer.from('x'.repeat(size));
  await opens(await ours.sealFor(own, round, new Uint8Array(plaintext)), plaintext, `the page's ${size} bytes`);
  theirs.push({ size, seal: await timelockEncrypt(round, plaintext, client) });
}
const fresh = mkdtempSync(join(tmpdir(), 'timelock-'));
writeFileSync(join(fresh, 'theirs.jsonl'), theirs.map((one) => `${JSON.stringify(one)}\n`).join(''));
execFileSync('go', ['test', '-count=1', './internal/rules/timelock', '-run', '^TestFreshSealsOfTlockJS$', '-fresh', fresh], { cwd: repo(''), stdio: 'inherit' });
opened += theirs.length;
for (const line of readFileSync(join(fresh, 'ours.jsonl'), 'utf8').trim().split('\n')) {
  const { size, seal } = JSON.parse(line);
  await opens(seal, 'x'.repeat(size), `the service's ${size} bytes`);
}
rmSync(fresh, { recursive: true });
say(`${opened} seals opened in both directions`);
