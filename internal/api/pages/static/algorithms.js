// The three algorithms as /protocol specifies them. Each returns the certificate's `result`,
// and throws if an input is invalid. Shares are exact fractions.

import { bigEndian, bytesOf, concat, fromHex, sha256, toHex } from './bytes.js';

// ---- A fraction is {n, d}: two BigInts in lowest terms. d is positive

function gcd(a, b) {
  while (b) [a, b] = [b, a % b];
  return a < 0n ? -a : a;
}

export function fraction(n, d = 1n) {
  [n, d] = [BigInt(n), BigInt(d)];
  const by = gcd(n, d) * (d < 0n ? -1n : 1n);
  return { n: n / by, d: d / by };
}

const ZERO = fraction(0);
const ONE = fraction(1);
const plus = (a, b) => fraction(a.n * b.d + b.n * a.d, a.d * b.d);
const minus = (a, b) => fraction(a.n * b.d - b.n * a.d, a.d * b.d);
const times = (a, b) => fraction(a.n * b.n, a.d * b.d);
const over = (a, b) => fraction(a.n * b.d, a.d * b.n);
const less = (a, b) => a.n * b.d < b.n * a.d;
const sum = (list) => list.reduce(plus, ZERO);
const floor = ({ n, d }) => (n >= 0n ? n / d : -((-n + d - 1n) / d));
const text = ({ n, d }) => (d === 1n ? `${n}` : `${n}/${d}`);

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

function member(container, name, kind) {
  const value = isObject(container) ? container[name] : undefined;
  const good = { object: isObject, array: Array.isArray, integer: Number.isSafeInteger }[kind] ?? ((v) => typeof v === kind);
  if (!good(value)) throw new Error(`\`${name}\` is missing or of the wrong type: its type must be ${kind}`);
  return value;
}

function natural(value, what) {
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${what} is not a non-negative integer`);
  return value;
}

/** Returns the result of a deal. Returns null if a shapley.v1 party rejects, because the deal is then VOID. Only random.v1 uses the parameter beacon. */
export async function result(algorithm, labels, params, inputs, beacon) {
  switch (algorithm) {
    case 'split.v1':
      return split(labels, params, inputs);
    case 'shapley.v1':
      return rejectors(inputs).length ? null : shapley(labels, params);
    case 'random.v1':
      if (member(params, 'beacon_round', 'integer') !== member(beacon, 'round', 'integer')) {
        throw new Error(`the pinned beacon round is ${beacon.round}, but the deal declared round ${params.beacon_round}`);
      }
      return draw(labels, beacon, await nonceDigest(inputs));
  }
  throw new Error(`no such algorithm: ${algorithm}`);
}

// ---- split.v1: adjusted winner (Brams and Taylor) for two parties, proportional for more

export function split(labels, params, inputs) {
  const items = member(params, 'items', 'array');
  if (!items.length || new Set(items).size !== items.length || !items.every((i) => typeof i === 'string' && i)) {
    throw new Error('`items` is not a list of different, non-empty strings');
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

/** Returns the hex SHA-256 over the XOR of all nonces, right-aligned to the longest. */
export async function nonceDigest(inputs) {
  let [total, longest] = [0n, 0];
  inputs.forEach((input, party) => {
    const nonce = member(input, 'nonce', 'string');
    if (!/^[0-9a-fA-F]{0,1024}$/.test(nonce)) throw new Error(`the nonce of party ${party} is not 0 to 1024 hex digits`);
    total ^= BigInt('0x0' + nonce);
    longest = Math.max(longest, (nonce.length + 1) >> 1);
  });
  return toHex(await sha256(bigEndian(total, longest)));
}

/** Returns each party's ticket. The lowest wins. */
export async function ticketsOf(labels, beacon, digest) {
  const seed = await sha256(concat(bytesOf('fairpact/random.v1\0'), fromHex(beacon.chain_hash), bigEndian(beacon.round, 8), fromHex(beacon.randomness), fromHex(digest)));
  return Promise.all(labels.map(async (_, i) => toHex(await sha256(seed, bigEndian(i, 4)))));
}

/** Returns the result from the beacon and the digest of the nonces. The certificate has both, so checking a draw needs no inputs. */
export async function draw(labels, beacon, digest) {
  for (const [name, digits] of [['chain_hash', 64], ['randomness', 64], ['signature', 96]]) {
    const value = member(beacon, name, 'string');
    if (value.length !== digits || !/^[0-9a-f]*$/.test(value)) throw new Error(`beacon.${name} is not ${digits} lower-case hex digits`);
  }
  if (toHex(await sha256(fromHex(beacon.signature))) !== beacon.randomness) throw new Error('beacon.randomness is not SHA-256 of beacon.signature');
  if (!/^[0-9a-f]{64}$/.test(digest)) throw new Error('nonce_digest is not 64 lower-case hex digits');
  const round = natural(member(beacon, 'round', 'integer'), 'beacon.round');
  const tickets = await ticketsOf(labels, { ...beacon, round }, digest);
  const winner = tickets.reduce((best, ticket, i) => (ticket < tickets[best] ? i : best), 0);
  const { chain_hash, randomness, signature } = beacon;
  return { winner, label: labels[winner], ticket: tickets[winner], nonce_digest: digest, beacon: { chain_hash, round, randomness, signature } };
}

/** Returns the parties that answered accept:false, in ascending order. */
export const rejectors = (inputs) => inputs.flatMap((input, i) => (member(input, 'accept', 'boolean') ? [] : [i]));

export function shapley(labels, params) {
  const n = labels.length;
  if (n > 8) throw new Error('shapley.v1 takes at most 8 parties');
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
