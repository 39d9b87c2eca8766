// Seals bytes for a round of a drand beacon: nobody can open a seal before the beacon publishes the signature of the round.
// The format is that of drand's tlock, which tlock-js and tle read. The encryption of the file key is the identity-based
// encryption of Boneh and Franklin (section 4.2, FullIdent) with the tags of drand/kyber. This module needs no DOM: it also
// runs in a worker. BigInt is not constant-time; the secrets are those of the device that runs it.

import { armored, encryptPayload, headerMAC, headerOf } from './age.js';
import { G2, QUICKNET, R, compressed, encodedValue, hashed, multiple, pairing, point } from './bls.js';
import { bigEndian, bytesOf, concat, fromHex, sha256, toBigInt, toHex } from './bytes.js';
import { encode } from './jcs.js';

/** The seconds between a deal's commit_deadline and the round of its seals. */
export const DELAY = 60;

/** Returns the first round that is due at or after commit_deadline + 60 s, on a chain with {genesis, period}. */
export const roundOf = ({ genesis, period }, commitDeadline) => Math.max(0, Math.ceil((commitDeadline + DELAY - genesis) / period)) + 1;

export const xor = (a, b) => a.map((byte, i) => byte ^ b[i]);
export const digest16 = async (tag, bytes) => (await sha256(bytesOf(tag), bytes)).slice(0, 16);
export const mask = (p, q) => digest16('IBE-H2', encodedValue(pairing(p, q)));

/** H3: the first SHA-256(u16le(i) ‖ h), without its lowest bit of the first byte, that is below the order of the groups. */
export async function scalar(sigma, fileKey) {
  const h = await sha256(bytesOf('IBE-H3'), sigma, fileKey);
  for (let i = 1; ; i++) {
    const x = await sha256([i & 255, i >> 8], h);
    x[0] >>= 1;
    if (toBigInt(x) < R) return toBigInt(x);
  }
}

const identity = async (round) => hashed(await sha256(bigEndian(round, 8)));

/**
 * Seals a plaintext for a round of the chain {hash, key}, with 48 random bytes that must be used once. Returns the armored text.
 */
export async function sealFor({ hash, key }, round, plaintext, random = crypto.getRandomValues(new Uint8Array(48))) {
  const [fileKey, sigma, nonce] = [0, 16, 32].map((at) => random.slice(at, at + 16));
  const r = await scalar(sigma, fileKey);
  const publicKey = point(fromHex(key));
  if (!publicKey) throw new Error('the public key of the beacon is not a point of G2');
  const v = xor(sigma, await mask(multiple(r, await identity(round)), publicKey));
  const w = xor(fileKey, await digest16('IBE-H4', sigma));
  const header = headerOf(round, hash, concat(compressed(multiple(r, G2)), v, w));
  return armored(header, await headerMAC(fileKey, header), await encryptPayload(fileKey, nonce, plaintext));
}

/** Does what sealFor does, in a worker, so that the page stays responsive. */
export function sealAside(chain, round, plaintext) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./timelock.worker.js', import.meta.url), { type: 'module' });
    const end = (how, value) => {
      worker.terminate();
      how(value);
    };
    worker.onmessage = ({ data }) => (data.seal ? end(resolve, data.seal) : end(reject, new Error(data.fault)));
    worker.onerror = () => end(reject, new Error('the worker that seals did not start'));
    worker.postMessage([{ hash: chain.hash, key: chain.key }, round, plaintext]);
  });
}

/** Returns drand's hash of a chain, or null if a value is missing or impossible. The seed and the id of quicknet are known. */
export async function chainHash({ chain_hash: of, public_key: key, genesis_time: genesis, period, genesis_seed: seed, beacon_id: id }) {
  if (of === QUICKNET.hash && seed === undefined && id === undefined) [seed, id] = [QUICKNET.seed, 'quicknet'];
  if (!/^[0-9a-f]{192}$/.test(key) || seed === undefined || id === undefined || period < 1 || period >= 2 ** 32 || genesis < 0) return null;
  const numbers = [bigEndian(period, 4), bigEndian(genesis, 8)];
  return toHex(await sha256(...numbers, fromHex(key), fromHex(seed), id === 'default' ? bytesOf('') : bytesOf(id)));
}

/** Returns the chain in an answer of GET /v1/beacon. The values of drand quicknet are this page's own; those of any other chain, which only development uses, are the answer's. Throws if they do not hash to chain_hash. */
export async function chainOf(beacon) {
  const { chain_hash: hash, public_key: key, genesis_time: genesis, period } = beacon;
  if (hash === QUICKNET.hash) return QUICKNET;
  if (await chainHash(beacon) !== hash) throw new Error(`The key and the other values of the beacon that the service names do not hash to ${hash}.`);
  return { hash, key, genesis, period };
}

/** Seals a party's opening for the round of its deal. `beacon` is the answer of GET /v1/beacon. Throws for a deadline of the past by the clock of this device: the service, which declares it, could open the seal at once. */
export async function sealOpening(beacon, commitDeadline, opening) {
  const chain = await chainOf(beacon);
  const [deadline, now] = [commitDeadline * 1000, Date.now()];
  if (!(deadline > now)) throw new Error(`All had to seal by ${new Date(deadline).toISOString()}, but by the clock of this device it is ${new Date(now).toISOString()}. Nothing was sent. Set the clock, if it is wrong.`);
  return sealAside(chain, roundOf(chain, commitDeadline), encode(opening));
}
