// The trusted keys, and what each may have signed. A key is a row of the key set, or {pubkey}
// with an optional member development.

import { call, problemOf } from './dom.js';
import { isObject, parse } from './jcs.js';
import { STATUS, keySetProblem } from './shape.js';

/** Returns the keys in an answer of /v1/pubkeys or /v1/status. Keys from /v1/status have no state. Throws for other documents. */
export function keysOf(document) {
  if (isObject(document) && 'keys' in document) {
    const problem = keySetProblem(document);
    if (problem) throw new Error(`the key set ${problem}`);
    return document.keys;
  }
  const problem = STATUS(document);
  if (problem) throw new Error(`the document is neither a key set with \`keys\` nor a status (${problem})`);
  return [document.pubkey, ...document.legacy_pubkeys].map((pubkey, i) => ({ pubkey, development: i === 0 && document.dev_ephemeral_key === true }));
}

export async function fetchKeys() {
  const answer = await call('GET', '/v1/pubkeys');
  if (!answer.ok) throw new Error(problemOf(answer));
  return parse(answer.text);
}

/** Fetches {pubkey, development} of this origin's current key. Returns null if the status cannot be read, because a verification needs only the key set. */
export async function fetchCurrent() {
  try {
    return keysOf((await call('GET', '/v1/status')).json)[0];
  } catch {
    return null;
  }
}

/** Returns the keys, and marks the current one if it is a development key. A key set lacks this mark, so the mark comes from the status. current: from fetchCurrent. */
export const marked = (keys, current) => keys.map((key) => (key.pubkey === current?.pubkey ? { ...key, development: current.development } : key));

/** Fetches the keys of this origin. Throws if the key set cannot be read. If only the status cannot be read, the keys have no development mark. */
export async function originKeys() {
  const [keys, current] = await Promise.all([fetchKeys().then(keysOf), fetchCurrent()]);
  return marked(keys, current);
}

/** Reports whether the key may have signed this leaf. A retired key with a tree_size may have signed only leaves with a smaller index. */
export const mayHold = (key, leafIndex) => key.state !== 'retired' || key.tree_size === undefined || leafIndex < key.tree_size;

export function standing(key) {
  if (key.state === undefined) return 'a key given without its state';
  if (key.state !== 'retired') return `the ${key.state} key`;
  return key.tree_size === undefined ? 'a retired key without tree_size' : `a key retired at tree size ${key.tree_size}`;
}

/**
 * Checks that two keys were in force: signer, which signed the certificate, and headSigner, which signed the tree head.
 * Each is undefined if no key matched. Returns [problem, detail]. A head of n leaves covers the leaves 0 to n−1.
 */
export function inForce(signer, headSigner, leafIndex, headSize) {
  if (!signer) return ['not checked, because no trusted key signed the certificate', ''];
  if (!headSigner) return ['not checked, because no trusted key signed the tree head', ''];
  const late = (what, key, place) => `the key of the ${what} retired at tree size ${key.tree_size}, so it must not sign ${place}: somebody used the key after it retired`;
  if (!mayHold(signer, leafIndex)) return [late('certificate', signer, `leaf ${leafIndex}`), ''];
  if (!mayHold(headSigner, headSize - 1)) return [late('tree head', headSigner, `a head of size ${headSize}`), ''];
  return [null, `certificate: ${standing(signer)}; tree head: ${standing(headSigner)}`];
}
