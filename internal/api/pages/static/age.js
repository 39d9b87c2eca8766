// The age format (age-encryption.org/v1) with exactly one stanza `tlock ROUND CHAINHASH`: header, payload and armor.
// ChaCha20-Poly1305 (RFC 8439) is here because WebCrypto lacks it. Lengths are public; nothing branches on a secret except
// the BigInt arithmetic of Poly1305, which runs on the device that holds the plaintext.

import { bytesOf, concat } from './bytes.js';

const BEGIN = '-----BEGIN AGE ENCRYPTED FILE-----\n';
const END = '-----END AGE ENCRYPTED FILE-----\n';
export const CHUNK = 65536;

// ---- ChaCha20-Poly1305

const CONSTANTS = [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]; // "expand 32-byte k"
const ROUNDS = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

const words = (bytes) => Array.from({ length: bytes.length / 4 }, (_, i) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(4 * i, true));

/** Returns data xor the key stream, from block `counter` on (RFC 8439 2.4). */
export function chacha20(key, nonce, counter, data) {
  const out = data.slice();
  const start = Uint32Array.from([...CONSTANTS, ...words(key), counter, ...words(nonce)]);
  const s = new Uint32Array(16);
  const stream = new DataView(new ArrayBuffer(64));
  for (let at = 0; at < out.length; at += 64, start[12]++) {
    s.set(start);
    for (let i = 0; i < 10; i++) {
      for (const [a, b, c, d] of ROUNDS) {
        s[a] += s[b]; let x = s[d] ^ s[a]; s[d] = (x << 16) | (x >>> 16);
        s[c] += s[d]; x = s[b] ^ s[c]; s[b] = (x << 12) | (x >>> 20);
        s[a] += s[b]; x = s[d] ^ s[a]; s[d] = (x << 8) | (x >>> 24);
        s[c] += s[d]; x = s[b] ^ s[c]; s[b] = (x << 7) | (x >>> 25);
      }
    }
    for (let i = 0; i < 16; i++) stream.setUint32(4 * i, s[i] + start[i], true);
    for (let i = 0; i < 64 && at + i < out.length; i++) out[at + i] ^= stream.getUint8(i);
  }
  return out;
}

const little = (view, at) => view.getBigUint64(at, true) | (view.getBigUint64(at + 8, true) << 64n);

/** Returns the tag of a ciphertext without associated data (RFC 8439 2.5 and 2.8). */
export function tagOf(key, nonce, ciphertext) {
  const once = new DataView(chacha20(key, nonce, 0, new Uint8Array(32)).buffer);
  const r = little(once, 0) & 0x0ffffffc0ffffffc0ffffffc0fffffffn;
  const padded = new Uint8Array(Math.ceil(ciphertext.length / 16) * 16 + 16);
  padded.set(ciphertext);
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(ciphertext.length), true);
  let sum = 0n;
  for (let at = 0; at < padded.length; at += 16) sum = ((sum + little(view, at) + (1n << 128n)) * r) % ((1n << 130n) - 5n);
  const tag = new DataView(new ArrayBuffer(16));
  const whole = sum + little(once, 16);
  tag.setBigUint64(0, BigInt.asUintN(64, whole), true);
  tag.setBigUint64(8, BigInt.asUintN(64, whole >> 64n), true);
  return new Uint8Array(tag.buffer);
}

// ---- The payload: chunks of 64 KiB (STREAM)

export async function derived(fileKey, salt, info) {
  const key = await crypto.subtle.importKey('raw', fileKey, 'HKDF', false, ['deriveBits']);
  return new Uint8Array(await crypto.subtle.deriveBits({ name: 'HKDF', hash: 'SHA-256', salt, info: bytesOf(info) }, key, 256));
}

export function chunkNonce(counter, last) {
  const nonce = new Uint8Array(12);
  new DataView(nonce.buffer).setUint32(7, counter);
  nonce[11] = last ? 1 : 0;
  return nonce;
}

/** Returns the nonce and the encrypted chunks of a plaintext. */
export async function encryptPayload(fileKey, nonce, plaintext) {
  const key = await derived(fileKey, nonce, 'payload');
  const parts = [nonce];
  for (let at = 0, i = 0; at === 0 || at < plaintext.length; at += CHUNK, i++) {
    const iv = chunkNonce(i, at + CHUNK >= plaintext.length);
    const chunk = chacha20(key, iv, 1, plaintext.subarray(at, at + CHUNK));
    parts.push(chunk, tagOf(key, iv, chunk));
  }
  return concat(...parts);
}

// ---- The header and the armor

export async function headerMAC(fileKey, header) {
  const key = await crypto.subtle.importKey('raw', await derived(fileKey, new Uint8Array(0), 'header'), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  return new Uint8Array(await crypto.subtle.sign('HMAC', key, bytesOf(header)));
}

const latin1 = (bytes) => {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return text;
};
const base64 = (bytes) => btoa(latin1(bytes));
const unpadded = (bytes) => base64(bytes).replace(/=+$/, '');
const lines = (text) => text.replace(/.{1,64}/g, '$&\n');

/** Returns the part of the header that the MAC covers. */
export const headerOf = (round, hash, body) => `age-encryption.org/v1\n-> tlock ${round} ${hash}\n${lines(unpadded(body))}---`;

export const armored = (header, mac, payload) => armor(concat(bytesOf(`${header} ${unpadded(mac)}\n`), payload));
const armor = (raw) => BEGIN + lines(base64(raw)) + END;
