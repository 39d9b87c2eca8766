const utf8 = new TextEncoder();

export const bytesOf = (text) => utf8.encode(text);

export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');

export function fromHex(text) {
  if (!/^([0-9a-fA-F]{2})*$/.test(text)) throw new Error('not hex');
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

/** Returns the SHA-256 of the concatenated parts (WebCrypto). */
export async function sha256(...parts) {
  if (!globalThis.crypto?.subtle) {
    throw new Error('this browser offers WebCrypto only over https or on localhost: open the page there');
  }
  return new Uint8Array(await crypto.subtle.digest('SHA-256', concat(...parts)));
}

export function bigEndian(value, size) {
  const out = new Uint8Array(size);
  let rest = BigInt(value);
  for (let i = size - 1; i >= 0; i--, rest >>= 8n) out[i] = Number(rest & 255n);
  return out;
}

export const toBigInt = (bytes) => BigInt('0x' + (toHex(bytes) || '0'));
