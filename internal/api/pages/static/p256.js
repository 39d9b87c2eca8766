// Labelled signatures: es256 (ECDSA P-256 with SHA-256, low-S, raw r‖s) and
// ed25519 (seat keys, development certificates). WebCrypto verifies and signs. This
// module checks what WebCrypto does not: lower-case hex, low-S, the point of a compressed
// key, and whether an ed25519 key is valid.

import { bigEndian, concat, fromHex, toBigInt, toHex } from './bytes.js';

const P = 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n;
export const N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
const B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn;

const Q = 2n ** 255n - 19n;
const D = Q - (121665n * power(121666n, Q - 2n, Q)) % Q;
/** The y of the eight points whose order divides 8, without the sign of x (RFC 8032 5.1.2). Anyone can sign under them. */
const SMALL_ORDER = [
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0100000000000000000000000000000000000000000000000000000000000000',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
];

const ALGORITHMS = {
  es256: { form: { name: 'ECDSA', namedCurve: 'P-256' }, how: { name: 'ECDSA', hash: 'SHA-256' } },
  ed25519: { form: { name: 'Ed25519' }, how: { name: 'Ed25519' } },
};

const KEY = /^(?:es256:[0-9a-f]{66}|ed25519:[0-9a-f]{64})$/;
export const signatureForm = /^(?:es256|ed25519):[0-9a-f]{128}$/;

export function power(base, exponent, modulus) {
  let result = 1n;
  for (base %= modulus; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}

/** Decompresses a point from 33 to 65 bytes (SEC 1, 2.3.4). Returns null if it is not on the curve. */
export function decompress(key) {
  const x = toBigInt(key.subarray(1));
  if (key.length !== 33 || (key[0] !== 2 && key[0] !== 3) || x >= P) return null;
  const square = (((x * x * x - 3n * x + B) % P) + P) % P;
  let y = power(square, (P + 1n) / 4n, P);
  if ((y * y) % P !== square) return null;
  if ((y & 1n) !== BigInt(key[0] & 1)) y = P - y;
  return concat([4], bigEndian(x, 32), bigEndian(y, 32));
}

/** Returns what is wrong with an ed25519 key of 32 bytes (RFC 8032 5.1.3), or null. */
function ed25519Problem(key) {
  const plain = Uint8Array.from(key, (byte, i) => (i === 31 ? byte & 0x7f : byte));
  if (SMALL_ORDER.includes(toHex(plain))) return 'is a point of small order: anyone can sign under it';
  const y = toBigInt(plain.reverse());
  // x² = u/v with u = y² − 1 and v = D·y² + 1. u/v is a square exactly if u·v is a square.
  const uv = ((y * y - 1n) * (D * y * y + 1n)) % Q;
  return y >= Q || power(uv, (Q - 1n) / 2n, Q) !== 1n ? 'is not a point of the curve Ed25519' : null;
}

const split = (labelled) => labelled.split(':');

/** Returns what is wrong with a labelled public key, or null. */
export function keyProblem(key) {
  if (typeof key !== 'string' || !KEY.test(key)) return 'is not `es256:` with 66 or `ed25519:` with 64 lower-case hex digits';
  const [scheme, hex] = split(key);
  if (scheme === 'ed25519') return ed25519Problem(fromHex(hex));
  return decompress(fromHex(hex)) ? null : 'is not a point of the curve P-256';
}

export function signatureProblem(signature) {
  if (typeof signature !== 'string' || !signatureForm.test(signature)) return 'is malformed; it must be `es256:` or `ed25519:`, followed by 128 lower-case hex digits';
  const [scheme, hex] = split(signature);
  if (scheme !== 'es256') return null;
  const raw = fromHex(hex);
  const [r, s] = [toBigInt(raw.subarray(0, 32)), toBigInt(raw.subarray(32))];
  if (r === 0n || r >= N || s === 0n || s >= N) return 'has r or s out of range';
  return s > N / 2n ? 'is high-S: the larger of s and n − s is never valid here' : null;
}

/** Reports whether the signature over the message verifies under the key. Both must have the same scheme. */
export async function verify(key, message, signature) {
  if (keyProblem(key) || signatureProblem(signature)) return false;
  const [scheme, keyHex] = split(key);
  const [signedAs, signatureHex] = split(signature);
  if (scheme !== signedAs) return false;
  const raw = fromHex(keyHex);
  const { form, how } = ALGORITHMS[scheme];
  try {
    const imported = await crypto.subtle.importKey('raw', scheme === 'es256' ? decompress(raw) : raw, form, false, ['verify']);
    return await crypto.subtle.verify(how, imported, fromHex(signatureHex), message);
  } catch (fault) {
    if (fault.name === 'NotSupportedError') throw new Error(`this browser cannot check ${scheme} signatures`);
    return false; // WebCrypto does not accept the key
  }
}

/** Returns a new es256 key: {public: labelled, private: PEM (PKCS#8)}. */
export async function makeKey() {
  const { publicKey, privateKey } = await crypto.subtle.generateKey(ALGORITHMS.es256.form, true, ['sign']);
  const point = new Uint8Array(await crypto.subtle.exportKey('raw', publicKey)); // 4, x, y
  const der = new Uint8Array(await crypto.subtle.exportKey('pkcs8', privateKey));
  return {
    public: `es256:${toHex([2 + (point[64] & 1), ...point.subarray(1, 33)])}`,
    private: `-----BEGIN PRIVATE KEY-----\n${btoa(String.fromCharCode(...der)).replace(/.{64}/g, '$&\n')}\n-----END PRIVATE KEY-----\n`,
  };
}

/** Signs a message with a PEM private key (PKCS#8). Throws if the labelled public key does not match the private key. */
export async function sign(pem, key, message) {
  const body = /-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/.exec(pem ?? '');
  if (!body) throw new Error('No private key is there: choose the PEM file of your private key, which begins with -----BEGIN PRIVATE KEY-----, or the copy that you saved with the key');
  const [scheme] = split(key);
  const { form, how } = ALGORITHMS[scheme];
  let made;
  try {
    const der = Uint8Array.from(atob(body[1].replace(/\s/g, '')), (c) => c.charCodeAt(0));
    const own = await crypto.subtle.importKey('pkcs8', der, form, false, ['sign']);
    made = `${scheme}:${toHex(new Uint8Array(await crypto.subtle.sign(how, own, message)))}`;
  } catch (fault) {
    throw new Error(fault.name === 'NotSupportedError' ? `This browser cannot sign with ${scheme} keys` : `The file holds no ${scheme} key that this browser can read`);
  }
  if (signatureProblem(made)) made = otherS(made); // WebCrypto may return the larger s
  if (!await verify(key, message, made)) throw new Error(`The file holds another key, not the private key of ${key}`);
  return made;
}

/** Returns an es256 signature with n − s instead of s. Both are valid in ECDSA, but Fairpact accepts only the smaller s. */
function otherS(signature) {
  const raw = fromHex(split(signature)[1]);
  return 'es256:' + split(signature)[1].slice(0, 64) + (N - toBigInt(raw.subarray(32))).toString(16).padStart(64, '0');
}
