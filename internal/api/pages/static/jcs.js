// Canonical JSON (RFC 8785) for values whose only numbers are integers.
//
// parse() is strict: it refuses ambiguous JSON (RFC 7493) and every number that is not an
// integer within ±(2^53−1). JSON.parse would accept 1.0, 1e3 and duplicate members.
// encode() writes the canonical form.

import { bytesOf } from './bytes.js';

export class Refused extends Error {}

const BLANK = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const SHORT = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
const WORDS = { true: true, false: false, null: null };

export const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);

/** The most levels of a party's input: its reveal is an object around it, of at most 32 levels. */
export const INPUT_DEPTH = 31;

/** Parses a JSON text; depth limits nested objects and arrays. Objects have no prototype. */
export function parse(text, depth = 32) {
  const reader = new Reader(text, depth);
  const value = reader.value();
  reader.blank();
  if (reader.at < text.length) reader.refuse('more text after the value');
  return value;
}

class Reader {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
  }

  refuse(reason) {
    const line = this.text.slice(0, this.at).split('\n').length;
    throw new Refused(`${reason} (line ${line}, character ${this.at})`);
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found;
  }

  blank() {
    this.match(BLANK);
  }

  take(character) {
    this.blank();
    if (this.text[this.at] !== character) return false;
    this.at++;
    return true;
  }

  value() {
    this.blank();
    const next = this.text[this.at];
    if (next === undefined) this.refuse('the JSON text ends too early');
    if (next === '{') return this.nested(() => this.object());
    if (next === '[') return this.nested(() => this.array());
    if (next === '"') return this.string();
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  nested(read) {
    if (this.depth === 0) this.refuse('nested too deep');
    this.depth--;
    this.at++;
    const value = read();
    this.depth++;
    return value;
  }

  object() {
    const object = Object.create(null);
    if (this.take('}')) return object;
    do {
      this.blank();
      if (this.text[this.at] !== '"') this.refuse('a member name is missing');
      const name = this.string();
      if (name in object) this.refuse('the same member name occurs twice in one object');
      if (!this.take(':')) this.refuse('a colon is missing');
      object[name] = this.value();
    } while (this.take(','));
    if (!this.take('}')) this.refuse('a comma or } is missing');
    return object;
  }

  array() {
    const array = [];
    if (this.take(']')) return array;
    do array.push(this.value()); while (this.take(','));
    if (!this.take(']')) this.refuse('a comma or ] is missing');
    return array;
  }

  number() {
    const found = this.match(NUMBER);
    if (!found) this.refuse('no JSON value begins here');
    if (found[1] || found[2]) this.refuse(`the number ${found[0].slice(0, 40)} is not written as an integer`);
    const value = Number(found[0]);
    if (found[0].length > 17 || !Number.isSafeInteger(value)) this.refuse('an integer is beyond ±(2^53−1)');
    return value + 0; // + 0 turns −0 into 0
  }

  string() {
    let out = '';
    this.at++;
    for (;;) {
      out += this.match(PLAIN)[0];
      const next = this.text[this.at++];
      if (next === '"') break;
      if (next !== '\\') this.refuse(next === undefined ? 'a string does not end' : 'a control character in a string');
      const escape = this.text[this.at++];
      if (escape in SHORT) {
        out += SHORT[escape];
      } else {
        const unit = escape === 'u' && this.match(/[0-9a-fA-F]{4}/y);
        if (!unit) this.refuse('an escape that JSON does not know');
        out += String.fromCharCode(parseInt(unit[0], 16));
      }
    }
    if (!out.isWellFormed()) this.refuse('a string holds a lone surrogate');
    return out;
  }
}

export function canonical(value) {
  if (value === null || typeof value === 'boolean' || Number.isSafeInteger(value)) return String(value);
  // RFC 8785 3.2.2.2 prescribes the string form of ECMAScript.
  if (typeof value === 'string' && value.isWellFormed()) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value === 'object') {
    // RFC 8785 3.2.3: sorted by UTF-16 code units, as sort() does.
    return `{${Object.keys(value).sort().map((name) => `${canonical(name)}:${canonical(value[name])}`).join(',')}}`;
  }
  throw new Refused(`no canonical form for ${typeof value === 'number' ? 'a number that is no integer' : typeof value}`);
}

export const encode = (value) => bytesOf(canonical(value));
