// Seals an input: chooses a salt and hashes the input with the salt.

import { bytesOf, concat, sha256, toHex } from './bytes.js';
import { encode } from './jcs.js';

export const randomHex = (bytes) => toHex(crypto.getRandomValues(new Uint8Array(bytes)));

export const commitmentOf = async (input, salt) => `sha256:${toHex(await sha256(concat(encode(input), bytesOf(salt))))}`;

/** Returns {input, salt, commitment} with a salt of 16 random bytes. */
export async function seal(input) {
  const salt = randomHex(16);
  return { input, salt, commitment: await commitmentOf(input, salt) };
}
