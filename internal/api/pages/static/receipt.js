// The receipt of a seal, which the service signs when it accepts the seal. With the seal and the signature of its round it
// proves that a party sealed in time, and to what its seal opens.

import { QUICKNET } from './bls.js';
import { bytesOf, sha256, toHex } from './bytes.js';
import { verify } from './p256.js';

/** Returns what the file of a receipt holds, as `fairpactctl receipt` reads it, or null if the receipt proves nothing. beacon: the answer of GET /v1/beacon; given: {text, signature}. */
export async function receiptFile({ beacon, pubkey, seal }, given, { deal, party, commitment }) {
  const lines = given.text.split('\n');
  const want = ['fairpact seal receipt v1', lines[1], deal, String(party), commitment, toHex(await sha256(bytesOf(seal))), beacon.chain_hash];
  if (want.some((line, i) => line !== lines[i]) || !await verify(pubkey, bytesOf(given.text), given.signature)) return null;
  return { seal, receipt: given, pubkey, ...(beacon.chain_hash === QUICKNET.hash ? {} : { development_beacon: beacon }) };
}
