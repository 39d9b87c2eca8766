// The receipt of a seal, which the service signs when it accepts the seal. With the seal and the signature of its round it
// proves that a party sealed in time, and to what its seal opens.

import { QUICKNET } from './bls.js';
import { bytesOf, sha256, toHex } from './bytes.js';
import { fetchKeys, keysOf } from './keys.js';
import { verify } from './p256.js';
import { chainOf, roundOf } from './timelock.js';

/**
 * Returns {file, doubt}: the file of a seal with its receipt, as `fairpactctl receipt` reads it, and why the receipt proves
 * nothing, or null. beacon: the answer of GET /v1/beacon; given: {text, signature}, or undefined. Asks for the keys after the
 * service signed, so that they include a new one.
 */
export async function receiptFile({ beacon, seal }, given, { deal, party, commitment, origin, deadline }) {
  const file = { seal, receipt: given ?? null, ...(beacon.chain_hash === QUICKNET.hash ? {} : { development_beacon: beacon }) };
  try {
    if (!given) throw new Error('the service signed none');
    const lines = given.text.split('\n');
    const chain = await chainOf(beacon);
    const round = roundOf(chain, deadline);
    const want = ['fairpact seal receipt v1', origin, deal, String(party), commitment, toHex(await sha256(bytesOf(seal))), chain.hash, String(round), String(Number(lines[8])), ''];
    if (lines.length !== want.length || want.some((line, i) => line !== lines[i])) throw new Error('its text is not that of what you sealed');
    if (!(Number(lines[8]) < chain.genesis + (round - 1) * chain.period)) throw new Error('its time is not before the round that opens the seal');
    const [time, now] = [Number(lines[8]) * 1000, Date.now()];
    if (Math.abs(time - now) > 300_000) throw new Error(`its time is ${new Date(time).toISOString()}, but by the clock of this device it is ${new Date(now).toISOString()}: if the clock is right, open your input by hand`);
    for (const { pubkey } of keysOf(await fetchKeys())) if (await verify(pubkey, bytesOf(given.text), given.signature)) return { file: { ...file, pubkey }, doubt: null };
    throw new Error('no key of the service signed it');
  } catch (fault) {
    return { file, doubt: fault.message };
  }
}
