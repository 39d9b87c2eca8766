// split.v1: adjusted winner (Brams and Taylor) for two parties, proportional for more.

import { bytesOf } from './bytes.js';
import { ONE, ZERO, floor, fraction, less, member, minus, natural, over, plus, sum, text, times } from './exact.js';
import { name, percent, ratio } from './words.js';

export const [ID, PARTIES] = ['split.v1', [2, 16]];
const [MOST_ITEMS, MOST_VALUES, MOST_BYTES] = [1000, 4096, 200]; // items; items × parties; bytes of an item

export function result(labels, params, inputs) {
  const items = member(params, 'items', 'array');
  if (!items.length || new Set(items).size !== items.length || !items.every((i) => typeof i === 'string' && i)) {
    throw new Error('`items` is not a list of different, non-empty strings');
  }
  if (items.length > MOST_ITEMS || items.length * labels.length > MOST_VALUES || items.some((item) => bytesOf(item).length > MOST_BYTES)) {
    throw new Error('`items` has more items or longer ones than a deal takes');
  }
  const values = inputs.map((input, party) => {
    const valuations = member(input, 'valuations', 'object');
    if (Object.keys(valuations).some((item) => !items.includes(item))) throw new Error(`party ${party} values an item that the deal does not have`);
    return items.map((item) => natural(Object.hasOwn(valuations, item) ? valuations[item] : 0, `a valuation of party ${party}`));
  });
  const totals = values.map((row) => row.reduce((a, v) => a + BigInt(v), 0n));
  // own[p][i]: the value of item i to party p, as a share of the party's total.
  const own = values.map((row, p) => row.map((v) => fraction(v, totals[p] || 1n)));
  const two = labels.length === 2;
  const shares = two ? adjustedWinner(own) : proportional(own);
  return {
    method: two ? 'adjusted_winner' : 'proportional',
    shares: labels.map((label, party) => ({
      party,
      label,
      items: items.map((item, i) => ({ item, share: text(shares[party][i]) })).filter(({ share }) => share !== '0'),
      value_ppb: Number(shares[party].reduce((parts, s, i) => parts + floor(times(times(s, own[party][i]), fraction(10n ** 18n))), 0n) / 10n ** 9n),
    })),
  };
}

function proportional(own) {
  return own.map((row) => row.map((v, i) => {
    const worth = sum(own.map((other) => other[i]));
    return worth.n ? over(v, worth) : fraction(1, own.length);
  }));
}

function adjustedWinner([a, b]) {
  const first = a.map(() => fraction(1, 2)); // party 0's share of each item
  const order = a.map((_, i) => i).filter((i) => a[i].n || b[i].n);
  // Sorted by descending a/b, which is infinite if b is 0. sort() is stable, so items with
  // equal a/b keep their order.
  const before = (i, j) => {
    const [left, right] = [times(a[i], b[j]), times(a[j], b[i])];
    if (!b[i].n || !b[j].n) return Number(b[i].n !== 0n) - Number(b[j].n !== 0n);
    return less(right, left) ? -1 : less(left, right) ? 1 : 0;
  };
  order.sort(before);
  if (!sum(a).n || !sum(b).n) { // one party values nothing: the other party gets every item with a value
    for (const i of order) first[i] = a[i].n ? ONE : ZERO;
  } else {
    // Party 0 takes items from the top until both parties have equal parts of their totals.
    // At that point a+b, summed over the items that party 0 took, is 1. The variable left is
    // the rest that this sum still lacks.
    let left = ONE;
    for (const i of order) {
      const both = plus(a[i], b[i]);
      const share = over(left, both);
      first[i] = less(ONE, share) ? ONE : share;
      left = minus(left, times(first[i], both));
    }
  }
  return [first, first.map((s) => minus(ONE, s))];
}

export const settled = ({ result: { shares } }) => ['the things were divided.', ...shares.map(({ label, items }) => [name(label), ': ',
  items.length ? [...items].sort((a, b) => (b.share === '1') - (a.share === '1')).map(({ item, share }, i) => [i ? ', ' : '', share === '1' ? '' : `${percent(ratio(share))} of `, name(item)]) : 'nothing'])];
