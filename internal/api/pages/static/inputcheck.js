// Checks an input before the party commits, because a committed input cannot be changed. The
// messages are those of the service (internal/rules/algorithm).

import { algorithmOf } from './facts.js';
import { encode, isObject } from './jcs.js';
import { COMMON } from './texts.js';

export const MOST = Number.MAX_SAFE_INTEGER;
function kind(value) {
  if (value === null) return 'null';
  if (typeof value === 'object') return Array.isArray(value) ? 'an array' : 'an object';
  return { boolean: 'a boolean', number: 'an integer', string: 'a string' }[typeof value];
}

export function missing(input, name, want) {
  return `input.${name} is ${Object.hasOwn(input, name) ? kind(input[name]) : 'missing'}: give ${want}`;
}

export const quoted = (name) => JSON.stringify(name);
export const listed = (names) => names.slice(0, 8).map(quoted).join(', ') + (names.length > 8 ? `, and ${names.length - 8} more` : '');

/** Returns what is wrong with an input, or null. check(params, input) is the rule of the algorithm, which takes at most maxInput bytes, or check.most(params). */
export function inputProblem(check, algorithm, maxInput, params, input) {
  if (!isObject(input)) return 'the input must be an object';
  let size;
  try {
    size = encode(input).length;
  } catch {
    // A number is not an integer within ±(2^53−1). The algorithm's rule names the member.
    return check(params, input) ?? 'every number must be an integer within ±(2^53−1)';
  }
  const most = Math.min(maxInput, check.most?.(params) ?? maxInput);
  if (size > most) return `the input has ${size} bytes in its RFC 8785 form; ${algorithm} takes at most ${most} in this deal`;
  return check(params, input);
}

/** Returns the input. Throws if the algorithm would refuse it. */
export function checked(check, { algorithm, algorithm_params: params }, input) {
  const problem = inputProblem(check, algorithm, algorithmOf(algorithm)?.max_input ?? Infinity, params, input);
  if (problem) throw new Error(problem);
  return input;
}

/** Returns the whole number in a text field, 0 for an empty one, and NaN for anything but digits. A number field would drop the comma of "1,5" and read 15. */
export const wholeNumber = (field) => (/^\s*\d*\s*$/.test(field.value) ? Number(field.value) : NaN);

/** Returns the attributes of a text field for a whole number. */
export const wholeField = { type: 'text', inputmode: 'numeric', autocomplete: 'off' };

/** Returns the non-empty lines of a text field. */
export const lines = (field) => field.value.split('\n').map((line) => line.trim()).filter(Boolean);

/** Says which line is there twice, or returns ''. */
export function repeated(list) {
  const twice = list.find((one, i) => list.indexOf(one) < i);
  return twice === undefined ? '' : COMMON.twice(twice);
}
