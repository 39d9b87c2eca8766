// Checkpoints of a transparency log, in the forms of C2SP: signed notes, trust
// policies and .tlog-proof files (c2sp.org/signed-note, tlog-checkpoint,
// tlog-cosignature, tlog-policy, tlog-proof). The parsers throw for malformed text.

import { bigEndian, bytesOf, concat, equal, fromHex, sha256, toBigInt, toHex } from './bytes.js';
import { N, decompress, verify } from './p256.js';

const [ED25519, ECDSA, COSIGNATURE, ML_DSA] = [0x01, 0x02, 0x04, 0x06];
const DER_P256 = fromHex('3059301306072a8648ce3d020106082a8648ce3d030107034200');

// A name is not empty, and has no plus sign, control character or Unicode space. \s is another set in each language.
const NAME = '[^\\x00-\\x20\\x7f-\\xa0+\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+';
const [ORIGIN, LINE, VKEY] = [`${NAME}`, `— (${NAME}) ([A-Za-z0-9+/=]+)`, `(${NAME})\\+([0-9a-f]{8})\\+(.+)`].map((form) => new RegExp(`^${form}$`));
const [MOST_LINES, MOST_BYTES] = [100, 256 << 10]; // of a note

function base64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    raw = null;
  }
  if (raw === null || btoa(raw) !== text) throw new Error(`“${text.slice(0, 60)}” is not base64`);
  return Uint8Array.from(raw, (c) => c.charCodeAt(0));
}

/** Returns a verifier key {name, kind, id, label, words, same}. kind: its type; id: its key ID; label: the public key; words: the key in reports; same: equal for equal keys. */
async function keyOf(name, kind, material) {
  const id = (await sha256(kind === ECDSA ? material : concat(bytesOf(`${name}\n`), [kind], material))).subarray(0, 4);
  const label = kind === ECDSA ? `es256:${toHex([2 + (material.at(-1) & 1)])}${toHex(material.subarray(-64, -32))}` : `ed25519:${toHex(material)}`;
  return { name, kind, id, label, words: `${name}+${toHex(id)}`, same: `${kind} ${toHex(material)}` };
}

async function parseKey(vkey) {
  const [, name, id, text] = VKEY.exec(vkey) ?? [];
  const raw = text === undefined ? [] : base64(text);
  const sizes = { [ED25519]: 33, [ECDSA]: 92, [COSIGNATURE]: 33, [ML_DSA]: 1313 };
  if (raw.length < 2 || raw.length !== sizes[raw[0]]) throw new Error(`“${vkey.slice(0, 80)}” is not a verifier key`);
  const key = await keyOf(name, raw[0], raw.subarray(1));
  if (toHex(key.id) !== id) throw new Error(`the key ID of “${vkey.slice(0, 80)}” is wrong`);
  return key;
}

async function keyFor(vkey, kinds, wrong) {
  const key = await parseKey(vkey);
  if (!kinds.includes(key.kind)) throw wrong(`a key of type ${key.kind} does not belong on a line of this kind`);
  return key;
}

export async function deploymentKey(name, label) {
  const point = label.startsWith('es256:') ? decompress(fromHex(label.slice(6))) : null;
  return point && keyOf(name, ECDSA, concat(DER_P256, point));
}

/** Converts an ASN.1 signature to a labelled one, with the smaller s. Returns null if the signature is malformed. */
export function fromDER(der) {
  const size = der[3];
  const at = 4 + size;
  if (der.length < 8 || der[0] !== 0x30 || der[1] !== der.length - 2 || der[2] !== 2 || der[at] !== 2 || at + 2 + der[at + 1] !== der.length) return null;
  const [r, s] = [toBigInt(der.subarray(4, at)), toBigInt(der.subarray(at + 2))];
  if (r >= 1n << 256n || s >= N) return null;
  return `es256:${toHex(bigEndian(r, 32))}${toHex(bigEndian(s > N / 2n ? N - s : s, 32))}`;
}

async function holds(key, text, signature) {
  if (key.kind === ECDSA) {
    const labelled = fromDER(signature);
    return labelled !== null && verify(key.label, text, labelled);
  }
  if (key.kind === ED25519) return verify(key.label, text, `ed25519:${toHex(signature)}`);
  if (signature.length !== 72 || toBigInt(signature.subarray(0, 8)) === 0n) return false;
  const message = concat(bytesOf(`cosignature/v1\ntime ${toBigInt(signature.subarray(0, 8))}\n`), text);
  return verify(key.label, message, `ed25519:${toHex(signature.subarray(8))}`);
}

export function parseNote(signed) {
  const at = signed.lastIndexOf('\n\n');
  const text = signed.slice(0, at + 1);
  const parts = text.split('\n');
  if (at < 0 || !signed.endsWith('\n') || parts.length !== 4 || !ORIGIN.test(parts[0])) throw new Error('not a signed checkpoint, which has three lines, a blank line and signature lines');
  const [origin, size] = parts;
  const root = base64(parts[2]);
  if (!/^(0|[1-9][0-9]{0,15})$/.test(size) || !Number.isSafeInteger(Number(size)) || root.length !== 32) throw new Error('not a signed checkpoint: its size is not a number, or its root is not 32 bytes');
  const given = signed.slice(at + 2, -1).split('\n');
  if (given.length > MOST_LINES || bytesOf(signed).length > MOST_BYTES) throw new Error(`the checkpoint has more than ${MOST_LINES} signature lines or ${MOST_BYTES} bytes`);
  const lines = given.map((line) => {
    const [, name, data] = LINE.exec(line) ?? [];
    const raw = data === undefined ? [] : base64(data);
    if (raw.length < 5) throw new Error(`“${line.slice(0, 60)}” is not a signature line`);
    return { name, id: raw.subarray(0, 4), signature: raw.subarray(4) };
  });
  return { text: bytesOf(text), origin, size: Number(size), root, lines };
}

/** Returns the given keys that signed the note. Throws if a signature under a given key is invalid. Only the first line of a name and key ID counts. */
export async function signers(note, keys) {
  const [by, seen] = [[], new Set()];
  for (const { name, id, signature } of note.lines) {
    if (seen.has(`${name} ${id}`)) continue;
    seen.add(`${name} ${id}`);
    for (const key of keys.filter((k) => k.name === name && equal(k.id, id))) {
      if (key.kind === ML_DSA) continue; // this page cannot check ML-DSA, so the cosignature does not count
      if (!await holds(key, note.text, signature)) throw new Error(`invalid signature for key ${key.words}`);
      by.push(key);
    }
  }
  return by;
}

/** Returns the note without the cosignatures of the policy's witnesses that have this unix time or a later one. */
export function early(note, policy, before) {
  const keys = [...policy.witnesses.values()];
  const late = ({ name, id, signature }) => keys.some((key) => key.name === name && equal(key.id, id)) && toBigInt(signature.subarray(0, 8)) >= BigInt(before);
  return { ...note, lines: note.lines.filter((line) => !late(line)) };
}

/** Returns the names of the policy's witnesses whose cosignature is ML-DSA-44. This page cannot check such a cosignature. */
export function unchecked(note, policy) {
  const cosigned = (key) => note.lines.some(({ name, id }) => name === key.name && equal(id, key.id));
  return [...policy.witnesses].filter(([, key]) => key.kind === ML_DSA && cosigned(key)).map(([name]) => name);
}

/** Parses a .tlog-proof file without extra data: {index, path, note}. */
export function parseProof(text) {
  const at = text.indexOf('\n\n');
  const [first, second, ...path] = text.slice(0, at).split('\n');
  const [, index] = /^index (0|[1-9][0-9]{0,15})$/.exec(second ?? '') ?? [];
  const hashes = at < 0 ? [] : path.map(base64);
  if (at < 0 || first !== 'c2sp.org/tlog-proof@v1' || index === undefined || hashes.length > 63 || hashes.some((hash) => hash.length !== 32)) {
    throw new Error('not c2sp.org/tlog-proof@v1');
  }
  return { index: Number(index), path: hashes, note: parseNote(text.slice(at + 2)) };
}

/** Parses a tlog-policy: {logs, witnesses: Map of name to key, demands, met(names)}. */
export async function parsePolicy(text) {
  const [logs, witnesses, groups, inside] = [[], new Map(), new Map(), new Set()];
  let quorum;
  const taken = (name) => name === 'none' || witnesses.has(name) || groups.has(name);
  const known = (name) => witnesses.has(name) || groups.has(name);
  const lines = text.split('\n');
  for (const [i, line] of lines.entries()) {
    const [keyword, name, ...rest] = line.split(/[ \t\r]+/).filter(Boolean);
    if (keyword === undefined || keyword.startsWith('#')) continue;
    const wrong = (words) => new Error(`policy line ${i + 1}: ${words}`);
    if (keyword === 'log' && name && rest.length < 2) {
      logs.push(await keyFor(name, [ED25519, ECDSA], wrong));
    } else if (keyword === 'witness' && rest.length > 0 && rest.length < 3 && !taken(name)) {
      witnesses.set(name, await keyFor(rest[0], [COSIGNATURE, ML_DSA], wrong));
    } else if (keyword === 'group' && rest.length > 1 && !taken(name)) {
      const [threshold, ...members] = rest;
      const needs = threshold === 'all' ? members.length : threshold === 'any' ? 1 : /^[1-9][0-9]*$/.test(threshold) ? Number(threshold) : 0;
      for (const member of members) {
        if (!known(member) || inside.has(member)) throw wrong(`the member ${member} of group ${name} is not defined on an earlier line, or is in a group already`);
        inside.add(member);
      }
      if (needs < 1 || needs > members.length) throw wrong(`the threshold of group ${name} is ${threshold}: write all, any or 1 to ${members.length}`);
      groups.set(name, { members, needs });
    } else if (keyword === 'quorum' && rest.length === 0 && quorum === undefined && (name === 'none' || known(name))) {
      quorum = name;
    } else {
      throw wrong(`“${keyword}” is not a keyword of a policy with these fields, or the name “${name ?? ''}” is taken or not defined`);
    }
  }
  if (quorum === undefined) throw new Error('the policy has no quorum line: add "quorum NAME" or "quorum none"');
  const all = [...logs, ...witnesses.values()].map((key) => key.same);
  if (new Set(all).size !== all.length) throw new Error('the policy has a key twice');
  const met = (cosigned, name = quorum) => name === 'none' || cosigned.includes(name)
    || (groups.has(name) && groups.get(name).members.filter((member) => met(cosigned, member)).length >= groups.get(name).needs);
  return { logs, witnesses, demands: quorum !== 'none', met };
}
