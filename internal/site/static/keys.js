// The keys that a reader trusts, and what each of them may have signed. A key is
// {pubkey} alone, where no more is known, or a row of the key set.

import { call, problemOf } from './dom.js';
import { parse } from './jcs.js';
import { STATUS, keySetProblem } from './shape.js';

const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);

/** The keys of the answer of /v1/pubkeys, or of /v1/status, which tells no states. Throws where it is neither. */
export function keysOf(document) {
  if (isObject(document) && 'keys' in document) {
    const problem = keySetProblem(document);
    if (problem) throw new Error(`the key set ${problem}`);
    return document.keys;
  }
  const problem = STATUS(document);
  if (problem) throw new Error(`it is neither a key set with “keys” nor a status: it ${problem}`);
  return [document.pubkey, ...document.legacy_pubkeys].map((pubkey) => ({ pubkey }));
}

/** The key set of this origin as it is published, or the status where the deployment has none. */
export async function fetchKeys() {
  let answer = await call('GET', '/v1/pubkeys');
  if (answer.status === 404) answer = await call('GET', '/v1/status');
  if (!answer.ok) throw new Error(problemOf(answer));
  return parse(answer.text);
}

/** Whether the key may have signed this leaf: one that retired at a tree size none from there on. */
export const mayHold = (key, leafIndex) => key.state !== 'retired' || key.tree_size === undefined || leafIndex < key.tree_size;

/** The key's state in words. */
export function standing(key) {
  if (key.state === undefined) return 'a key given without its state';
  if (key.state !== 'retired') return `the ${key.state} key`;
  return key.tree_size === undefined ? 'a retired key that no tree size closes' : `a key retired at tree size ${key.tree_size}`;
}

/** [problem, good words] on who made the two signatures; null is none of the keys. A head of n leaves vouches for the leaves 0 to n−1. */
export function inForce(signer, headSigner, leafIndex, headSize) {
  if (!signer) return ['not checked, because no key made the certificate’s signature', ''];
  if (!headSigner) return ['not checked, because no key made the tree head’s signature', ''];
  const late = (what, key, place) => `the key of the ${what} retired at tree size ${key.tree_size} and ${place}: it was signed after that, by whoever holds the retired key`;
  if (!mayHold(signer, leafIndex)) return [late('certificate', signer, `this is leaf ${leafIndex}`), ''];
  if (!mayHold(headSigner, headSize - 1)) return [late('tree head', headSigner, `the head is of size ${headSize}`), ''];
  return [null, `certificate: ${standing(signer)}; tree head: ${standing(headSigner)}`];
}
