// shapley.v1: the Shapley value of a declared game, rounded to payouts.

import { bytesOf, toHex } from './bytes.js';
import { floor, fraction, less, member, minus, natural, text } from './exact.js';
import { name } from './words.js';

export const [ID, PARTIES] = ['shapley.v1', [2, 8]];

/** The input of a party that did not reject. */
export const ACCEPTED = { accept: true };

export const rejectors = (inputs) => inputs.flatMap((input, i) => (member(input, 'accept', 'boolean') ? [] : [i]));

export function result(labels, params, inputs) {
  if (new Set(labels).size < labels.length || labels.some((label) => label.includes(','))) throw new Error('a label occurs twice or holds a comma');
  const shares = shapley(labels, params);
  return rejectors(inputs).length ? null : shares;
}

export function shapley(labels, params) {
  const n = labels.length;
  if (n > PARTIES[1]) throw new Error(`shapley.v1 takes at most ${PARTIES[1]} parties`);
  const values = coalitions(labels, member(params, 'coalition_values', 'object'));
  const worth = (set) => BigInt(values.get(set) ?? 0);
  const everyone = (1 << n) - 1;
  const factorial = (k) => (k < 2 ? 1n : BigInt(k) * factorial(k - 1));
  const exact = labels.map((_, i) => {
    let weighted = 0n; // sum of |S|! (n−|S|−1)! (v(S with i) − v(S)) over the coalitions S without i
    for (let set = 0; set <= everyone; set++) {
      if (set & (1 << i)) continue;
      const size = set.toString(2).replaceAll('0', '').length;
      weighted += factorial(size) * factorial(n - size - 1) * (worth(set | (1 << i)) - worth(set));
    }
    return fraction(weighted, factorial(n));
  });
  const payouts = exact.map(floor);
  const rest = worth(everyone) - payouts.reduce((a, b) => a + b, 0n);
  const remainder = (i) => minus(exact[i], fraction(payouts[i]));
  const order = labels.map((_, i) => i).sort((i, j) => (less(remainder(j), remainder(i)) ? -1 : less(remainder(i), remainder(j)) ? 1 : 0));
  for (const i of order.slice(0, Number(rest))) payouts[i] += 1n;
  return {
    total: Number(worth(everyone)),
    shares: labels.map((label, party) => ({ party, label, share: text(exact[party]), payout: Number(payouts[party]) })),
  };
}

/** Returns a map from bit sets of members to values. Throws unless all keys are sorted labels, or all are party indexes. */
export function coalitions(labels, values) {
  for (const names of [labels, labels.map((_, i) => String(i))]) {
    const sets = new Map();
    const good = Object.entries(values).every(([key, value]) => {
      const members = key.split(',');
      const places = members.map((name) => names.indexOf(name));
      if (places.includes(-1) || members.some((name, i) => i > 0 && !byteOrder(members[i - 1], name))) return false;
      sets.set(places.reduce((set, place) => set | (1 << place), 0), natural(value, 'a coalition value'));
      return true;
    });
    if (good) return sets;
  }
  throw new Error('a key of coalition_values is not a sorted list of labels or party indexes');
}

/** Reports whether a sorts before b by UTF-8 bytes. Hex digits sort as their bytes do. */
export const byteOrder = (a, b) => toHex(bytesOf(a)) < toHex(bytesOf(b));

export const settled = ({ result: { total, shares } }) => [`${total} was shared.`, ...shares.map(({ label, payout }) => [name(label), `: ${payout}`])];
