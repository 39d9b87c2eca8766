// RFC 6962: hashes, root and inclusion paths of a Merkle tree.

import { equal, sha256 } from './bytes.js';

export const leafHash = (data) => sha256([0], data);
export const nodeHash = (left, right) => sha256([1], left, right);

export async function rootOf(leaves) {
  if (leaves.length < 2) return leaves[0] ?? sha256();
  let half = 1;
  while (half * 2 < leaves.length) half *= 2;
  return nodeHash(await rootOf(leaves.slice(0, half)), await rootOf(leaves.slice(half)));
}

/**
 * Returns {root, steps}: the root computed from a leaf hash and its inclusion path (RFC 9162
 * 2.1.3.2), and each step. root is null if the path is too long or too short.
 */
export async function climb(leaf, index, size, path) {
  const steps = [];
  let [fn, sn, hash] = [BigInt(index), BigInt(size) - 1n, leaf];
  if (index >= size) return { root: null, steps };
  for (const sibling of path) {
    if (sn === 0n) return { root: null, steps };
    const onLeft = (fn & 1n) === 1n || fn === sn;
    hash = onLeft ? await nodeHash(sibling, hash) : await nodeHash(hash, sibling);
    steps.push({ sibling, onLeft, hash });
    while (onLeft && fn !== 0n && (fn & 1n) === 0n) {
      fn >>= 1n;
      sn >>= 1n;
    }
    fn >>= 1n;
    sn >>= 1n;
  }
  return { root: sn === 0n ? hash : null, steps };
}

export async function included(leaf, index, size, path, root) {
  const reached = await climb(leaf, index, size, path);
  return reached.root !== null && equal(reached.root, root);
}
