#!/usr/bin/env node
// Verifies a bundle, with the exit codes of Fairpact's other verifiers.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { isBundle, knownKeys, parse, parsePolicy, verifyBundle } from './index.js';

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      pubkey: { type: 'string', multiple: true, default: [] }, policy: { type: 'string' }, opening: { type: 'string', multiple: true, default: [] },
      'seat-key': { type: 'string', multiple: true, default: [] }, json: { type: 'boolean', default: false },
    },
  });
  if (positionals.length !== 1) throw new Error('give one file: fairpact-verify BUNDLE [--pubkey KEY]… [--policy FILE] [--opening FILE]… [--seat-key N=KEY]… [--json]');
  const bundle = parse(readFileSync(positionals[0], 'utf8'));
  if (!isBundle(bundle)) throw new Error(`${positionals[0]} is not a bundle: give the answer of GET /v1/deals/{id}/bundle`);
  const verdict = await verifyBundle({
    bundle, keys: values.pubkey.map((pubkey) => ({ pubkey })), policy: values.policy ? await parsePolicy(readFileSync(values.policy, 'utf8')) : null,
    known: knownKeys(values['seat-key'].join('\n')), openings: values.opening.map((file) => parse(readFileSync(file, 'utf8'))),
  });
  const code = !verdict.valid ? 1 : verdict.claims[0].status === 'proven' ? 0 : 4;
  if (values.json) {
    console.log(JSON.stringify(verdict, null, 2));
    return code;
  }
  const printable = (text) => text.replace(/[^ -~’]/g, (c) => `\\u{${c.codePointAt(0).toString(16)}}`); // strangers write labels
  for (const { name, ok, detail } of verdict.checks) console.log(printable(`${ok ? 'OK  ' : 'FAIL'} ${name.padEnd(22)} ${detail}`));
  for (const { status, claim, detail } of verdict.claims) console.log(printable(`${status.padEnd(14)} ${claim.padEnd(8)} ${detail}`));
  console.log({ 0: 'valid', 1: 'NOT VALID', 4: 'CONSISTENT, ISSUER UNKNOWN' }[code]);
  return code;
}

try {
  process.exitCode = await main();
} catch (fault) {
  console.error(`fairpact-verify: ${fault.message}`);
  process.exitCode = 2;
}
