// What the algorithms compute with: exact fractions, labels, and members of params and inputs. A fraction
// is {n, d}: two BigInts in lowest terms, d positive.

import { bytesOf } from './bytes.js';
import { isObject } from './jcs.js';

function gcd(a, b) {
  while (b) [a, b] = [b, a % b];
  return a < 0n ? -a : a;
}

export function fraction(n, d = 1n) {
  [n, d] = [BigInt(n), BigInt(d)];
  const by = gcd(n, d) * (d < 0n ? -1n : 1n);
  return { n: n / by, d: d / by };
}

export const ZERO = fraction(0);
export const ONE = fraction(1);
export const plus = (a, b) => fraction(a.n * b.d + b.n * a.d, a.d * b.d);
export const minus = (a, b) => fraction(a.n * b.d - b.n * a.d, a.d * b.d);
export const times = (a, b) => fraction(a.n * b.n, a.d * b.d);
export const over = (a, b) => fraction(a.n * b.d, a.d * b.n);
export const less = (a, b) => a.n * b.d < b.n * a.d;
export const sum = (list) => list.reduce(plus, ZERO);
export const floor = ({ n, d }) => (n >= 0n ? n / d : -((-n + d - 1n) / d));
export const text = ({ n, d }) => (d === 1n ? `${n}` : `${n}/${d}`);

export function member(container, name, kind) {
  const value = isObject(container) ? container[name] : undefined;
  const good = { object: isObject, array: Array.isArray, integer: Number.isSafeInteger }[kind] ?? ((v) => typeof v === kind);
  if (!good(value)) throw new Error(`\`${name}\` is missing or of the wrong type: its type must be ${kind}`);
  return value;
}

/** Throws unless a deal with this least and most number of parties takes the labels. */
export function checkLabels(labels, [low, high]) {
  if (labels.length < low || labels.length > high) throw new Error(`${labels.length} labels for ${low} to ${high} parties`);
  const wrong = labels.find((label) => !label || bytesOf(label).length > 200 || /[\x00-\x1f\x7f-\x9f]/.test(label));
  if (wrong !== undefined) throw new Error(`the label “${wrong.slice(0, 40)}” is empty, has over 200 bytes or a control character`);
}

export function natural(value, what) {
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${what} is not a non-negative integer`);
  return value;
}
