// Checks an input before the party commits, because a committed input cannot be changed. The
// messages are those of the service (internal/rules/algorithm).

import { encode } from './jcs.js';

const MOST = Number.MAX_SAFE_INTEGER;
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

function kind(value) {
  if (value === null) return 'null';
  if (typeof value === 'object') return Array.isArray(value) ? 'an array' : 'an object';
  return { boolean: 'a boolean', number: 'an integer', string: 'a string' }[typeof value];
}

function missing(input, name, want) {
  return `input.${name} is ${Object.hasOwn(input, name) ? kind(input[name]) : 'missing'}: give ${want}`;
}

const quoted = (name) => JSON.stringify(name);
const listed = (names) => names.slice(0, 8).map(quoted).join(', ') + (names.length > 8 ? ` and ${names.length - 8} more` : '');

const rules = {
  'split.v1': ({ items }, input) => {
    const given = input.valuations;
    if (!isObject(given)) return missing(input, 'valuations', 'an object that maps item identifiers to non-negative integers');
    const there = items.filter((item) => Object.hasOwn(given, item));
    const wrong = there.find((item) => !(Number.isSafeInteger(given[item]) && given[item] >= 0));
    if (wrong !== undefined) {
      return given[wrong] === null ? `input.valuations: the value of item ${quoted(wrong)} is null; send an integer of 0 to ${MOST}, or leave the item out to value it at 0`
        : `input.valuations: the value of item ${quoted(wrong)} must be an integer of 0 to ${MOST}`;
    }
    const unknown = Object.keys(given).length - there.length;
    if (unknown > 0) return `input.valuations has ${unknown} member(s) that are not items of this deal; the items are ${listed(items)}`;
    return null;
  },
  'random.v1': (_, input) => {
    const { nonce } = input;
    if (typeof nonce !== 'string') return missing(input, 'nonce', 'a string of hex digits');
    if (new TextEncoder().encode(nonce).length > 1024) return 'input.nonce is too long: a nonce has at most 1024 hex digits';
    if (!/^[0-9a-fA-F]*$/.test(nonce)) return 'input.nonce holds a character that is not a hex digit: use only 0-9, a-f and A-F';
    return null;
  },
  'shapley.v1': (_, input) => (typeof input.accept === 'boolean' ? null : missing(input, 'accept', 'true, or false to reject')),
};

/** Returns what is wrong with an input, or null. Inputs of an unknown algorithm are not checked. */
export function inputProblem(algorithm, maxInput, params, input) {
  if (!isObject(input)) return 'the input must be an object';
  let size;
  try {
    size = encode(input).length;
  } catch {
    // A number is not an integer within ±(2^53−1). The algorithm's rule names the member.
    return rules[algorithm]?.(params, input) ?? 'every number must be an integer within ±(2^53−1)';
  }
  if (size > maxInput) return `the input has ${size} bytes in its RFC 8785 form; ${algorithm} takes at most ${maxInput}`;
  return rules[algorithm]?.(params, input) ?? null;
}
