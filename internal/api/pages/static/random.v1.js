// random.v1: the nonces of all parties and a public beacon draw one party.

import { bigEndian, bytesOf, concat, fromHex, sha256, toHex } from './bytes.js';
import { element } from './dom.js';
import { member } from './exact.js';
import { name } from './words.js';

export const [ID, PARTIES] = ['random.v1', [2, 10000]];

export async function result(labels, params, inputs, beacon) {
  if (member(params, 'beacon_round', 'integer') !== member(beacon, 'round', 'integer')) {
    throw new Error(`the pinned beacon round is ${beacon.round}, but the deal declared round ${params.beacon_round}`);
  }
  return draw(labels, beacon, await nonceDigest(inputs));
}

export function redraw(labels, shown) {
  const digest = member(shown, 'nonce_digest', 'string');
  return draw(labels, member(shown, 'beacon', 'object'), digest);
}

/** Returns the hex SHA-256 over the XOR of all nonces, right-aligned to the longest. */
export async function nonceDigest(inputs) {
  let [total, longest] = [0n, 0];
  inputs.forEach((input, party) => {
    const nonce = member(input, 'nonce', 'string');
    if (!/^[0-9a-fA-F]{0,1024}$/.test(nonce)) throw new Error(`the nonce of party ${party} is not 0 to 1024 hex digits`);
    total ^= BigInt('0x0' + nonce);
    longest = Math.max(longest, (nonce.length + 1) >> 1);
  });
  return toHex(await sha256(bigEndian(total, longest)));
}

export async function ticketsOf(labels, beacon, digest) {
  const seed = await sha256(concat(bytesOf('fairpact/random.v1\0'), fromHex(beacon.chain_hash), bigEndian(beacon.round, 8), fromHex(beacon.randomness), fromHex(digest)));
  return Promise.all(labels.map(async (_, i) => toHex(await sha256(seed, bigEndian(i, 4)))));
}

/** Returns the result from the beacon and the digest of the nonces. The certificate has both, so checking a draw needs no inputs. */
async function draw(labels, beacon, digest) {
  for (const [name, digits] of [['chain_hash', 64], ['randomness', 64], ['signature', 96]]) {
    const value = member(beacon, name, 'string');
    if (value.length !== digits || !/^[0-9a-f]*$/.test(value)) throw new Error(`beacon.${name} is not ${digits} lower-case hex digits`);
  }
  if (toHex(await sha256(fromHex(beacon.signature))) !== beacon.randomness) throw new Error('beacon.randomness is not SHA-256 of beacon.signature');
  if (!/^[0-9a-f]{64}$/.test(digest)) throw new Error('nonce_digest is not 64 lower-case hex digits');
  const round = member(beacon, 'round', 'integer');
  if (round < 1) throw new Error(`beacon.round is ${round}, but the first round is 1`);
  const tickets = await ticketsOf(labels, { ...beacon, round }, digest);
  const winner = tickets.reduce((best, ticket, i) => (ticket < tickets[best] ? i : best), 0);
  const { chain_hash, randomness, signature } = beacon;
  return { winner, label: labels[winner], ticket: tickets[winner], nonce_digest: digest, beacon: { chain_hash, round, randomness, signature } };
}

export const settled = (c) => [[element('strong', {}, name(c.result.label)), ` was drawn, of ${c.parties.length}.`]];
