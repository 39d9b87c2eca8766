// Opens the seals of timelock.js with the published signature of their round.

import { CHUNK, armored, chacha20, chunkNonce, derived, headerMAC, headerOf, tagOf } from './age.js';
import { G2, compressed, multiple, point } from './bls.js';
import { concat, equal, fromHex } from './bytes.js';
import { digest16, mask, scalar, xor } from './timelock.js';

const latin1 = (text) => Uint8Array.from(text, (character) => character.charCodeAt(0));
const HEADER = /^age-encryption\.org\/v1\n-> tlock ([0-9]+) ([0-9a-f]{64})\n((?:[A-Za-z0-9+/]{1,64}\n)+)--- ([A-Za-z0-9+/]{43})\n/;
const TAG = 16;

/** Returns {round, hash, header, body, mac, payload} of an armored seal. Throws unless the text is the one that timelock.js writes for them. */
function partsOf(text) {
  try {
    const raw = atob(text.replace(/^-----[^\n]*\n|-----[^\n]*\n$|\n/g, ''));
    const [all, round, hash, stanza, tag] = HEADER.exec(raw);
    const parts = { round: BigInt(round), hash, body: latin1(atob(stanza.replaceAll('\n', ''))), mac: latin1(atob(tag)), payload: latin1(raw.slice(all.length)) };
    parts.header = headerOf(parts.round, hash, parts.body);
    if (armored(parts.header, parts.mac, parts.payload) === text && parts.body.length === 128) return parts;
  } catch { /* not of this form */ }
  throw new Error('it is not in the form of a seal');
}

/** Returns the plaintext of a seal for a round of the chain with this hash. signature: hex, verified by the caller. Throws if the seal does not open. */
export async function openSeal(text, hash, round, signature) {
  const { body, mac, header, payload, ...stanza } = partsOf(text);
  if (stanza.hash !== hash || stanza.round !== BigInt(round)) throw new Error(`it is for round ${stanza.round} of beacon chain ${stanza.hash}`);
  const u = point(body.slice(0, 96));
  if (!u) throw new Error('its first part is not a point of G2');
  const sigma = xor(body.slice(96, 112), await mask(point(fromHex(signature)), u));
  const fileKey = xor(body.slice(112), await digest16('IBE-H4', sigma));
  if (!equal(compressed(multiple(await scalar(sigma, fileKey), G2)), body.slice(0, 96)) || !equal(await headerMAC(fileKey, header), mac)) throw new Error('it was not sealed for this round');
  return decrypted(fileKey, payload);
}

async function decrypted(fileKey, payload) {
  const key = await derived(fileKey, payload.slice(0, 16), 'payload');
  const parts = [];
  for (let [at, i] = [16, 0]; ; at += CHUNK + TAG, i++) {
    const chunk = payload.slice(at, at + CHUNK + TAG);
    const last = at + chunk.length === payload.length;
    const iv = chunkNonce(i, last);
    const text = chunk.slice(0, -TAG);
    if (chunk.length < TAG + (i && 1) || !equal(tagOf(key, iv, text), chunk.slice(-TAG))) throw new Error('its payload was changed');
    parts.push(chacha20(key, iv, 1, text));
    if (last) return concat(...parts);
  }
}
