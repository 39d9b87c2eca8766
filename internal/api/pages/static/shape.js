// The form of documents (certificate, tree head, status, key set, bundle), and contradictions
// in a certificate. A rule is a function that returns what is wrong with a value, or null.

import { IDS, known } from './algorithms.js';
import { isObject } from './jcs.js';
import { signatureForm } from './p256.js';
import { digestIn, openedBySeal } from './seats.js';

/** The most keys that a deployment may publish. The limit bounds the time of a verification. */
const MOST_KEYS = 1000;
const rule = (holds, what) => (v) => (holds(v) ? null : what);
const integer = rule((v) => Number.isSafeInteger(v) && v >= 0, 'is not a non-negative integer');
const string = rule((v) => typeof v === 'string' && v !== '', 'is not a non-empty string');
const object = rule(isObject, 'is not an object');
const none = rule((v) => v === null, 'is not null');
const pattern = (expression, what) => rule((v) => typeof v === 'string' && expression.test(v), `is not ${what}`);
const oneOf = (...allowed) => rule((v) => allowed.includes(v), `is not one of ${allowed.join(', ')}`);
const nullable = (inner) => (v) => (v === null ? null : inner(v));

const array = (inner, most = Infinity) => (value) => {
  if (!Array.isArray(value)) return 'is not an array';
  if (value.length > most) return `has ${value.length} elements, but at most ${most} are allowed`;
  const at = value.findIndex((v) => inner(v));
  return at < 0 ? null : `[${at}] ${inner(value[at])}`;
};

const record = (members, { extra = false, optional = [] } = {}) => (value) => {
  if (!isObject(value)) return 'is not an object';
  for (const [name, inner] of Object.entries(members)) {
    if (!(name in value)) {
      if (optional.includes(name)) continue;
      return `lacks \`${name}\``;
    }
    const problem = inner(value[name]);
    if (problem) return `\`${name}\` ${problem}`;
  }
  const unknown = Object.keys(value).find((name) => !Object.hasOwn(members, name));
  return unknown !== undefined && !extra ? `has the unknown member \`${unknown}\`` : null;
};

const HASH = pattern(/^[0-9a-f]{64}$/, '64 lower-case hex digits');
export const SHA256 = pattern(/^sha256:[0-9a-f]{64}$/, '`sha256:` and 64 lower-case hex digits');
const SIGNATURE = pattern(signatureForm, '`es256:` or `ed25519:`, followed by 128 lower-case hex digits');

export const CERTIFICATE = record({
  cert_version: oneOf('1'),
  cert_id: string,
  deal_id: string,
  outcome: oneOf('COMPUTED', 'VOID'),
  algorithm: oneOf(...IDS),
  mode: oneOf('sealed', 'open'),
  retention: oneOf('standard', 'purge'),
  parties: array(record({ index: integer, label: string, commitment: nullable(SHA256), attested_by: string })),
  input_root: nullable(string), // its form is a separate check
  result: nullable(object),
  void_flakers: nullable(array(integer)),
  properties: array(string),
  timing: record({ created_at: integer, commits_closed_at: nullable(integer), reveals_closed_at: nullable(integer), computed_at: nullable(integer) }),
  log_proof: record({ tree_size: integer, leaf_index: integer, inclusion_path: array(HASH) }),
  tee_attestation: none,
  signature: SIGNATURE,
});
export const TREE_HEAD = record({ tree_size: integer, root_hash: HASH, signature: SIGNATURE });
export const STATUS = record({ pubkey: string, legacy_pubkeys: array(string, MOST_KEYS - 1) }, { extra: true });
const KEY_SET = record({ keys: array(record(
  { pubkey: string, state: oneOf('current', 'next', 'retired'), retired_at: integer, tree_size: integer }, { optional: ['retired_at', 'tree_size'] }), MOST_KEYS) });
const DECLARATION = record({
  algorithm: string,
  algorithm_params: object,
  beacon_chain: nullable(HASH),
  commit_deadline: integer,
  mode: string,
  party_keys: array(nullable(string)),
  party_labels: array(string),
  retention: string,
  reveal_deadline: integer,
  seals: oneOf('required'),
  audience: oneOf('public'),
  acted_by: oneOf('initiator'),
  title: string,
  message: string,
}, { optional: ['seals', 'audience', 'acted_by', 'title', 'message'] });
export const INPUTS = array(nullable(record(
  { input: object, salt: rule((v) => v === null || typeof v === 'string', 'is not a string') }, { optional: ['salt'] })));
export const OPENING = record({ deal_id: string, party: integer, input: object, salt: rule((v) => v === null || typeof v === 'string', 'is not a string') }, { optional: ['salt'], extra: true });
const BEACON = record({ chain_hash: HASH, public_key: string, genesis_time: integer, period: integer, genesis_seed: HASH, beacon_id: string }, { optional: ['genesis_seed', 'beacon_id'] });
export const BUNDLE = record({
  bundle_version: oneOf('1'),
  certificate: object,
  tree_head: object,
  keys: object,
  log_proof: string,
  declaration: DECLARATION,
  beacon: BEACON,
  closing: record({ beacon: BEACON, seal_hashes: array(nullable(HASH)), log_proof: string }),
  own_input: record({ party: integer, input: object, salt: rule((v) => typeof v === 'string', 'is not a string'), input_path: array(HASH) }, { optional: ['input', 'salt', 'input_path'] }),
  openings: INPUTS,
}, { optional: ['log_proof', 'declaration', 'beacon', 'closing', 'own_input', 'openings'] });

export function keySetProblem(document) {
  const bad = KEY_SET(document);
  if (bad) return bad;
  const [{ keys }, labels] = [document, new Set()];
  for (const [i, key] of keys.entries()) {
    if (key.state !== 'retired' && ('retired_at' in key || 'tree_size' in key)) return `\`keys\` [${i}] is ${key.state}, but only a retired key may have \`retired_at\` or \`tree_size\``;
    if (labels.has(key.pubkey)) return `\`keys\` [${i}] repeats a key`;
    labels.add(key.pubkey);
  }
  const current = keys.filter((key) => key.state === 'current').length;
  return current === 1 ? null : `has ${current} current keys instead of one`;
}

/** Returns the contradictions between members of a well-formed certificate. */
export function contradictions(c) {
  const [n, computed, flakers, { timing }] = [c.parties.length, c.outcome === 'COMPUTED', c.void_flakers, c];
  const missing = c.parties.flatMap((p, i) => (p.commitment === null ? [i] : []));
  const of = known(c.algorithm);
  const [[low, high], draws, rejects] = [of.PARTIES, 'redraw' in of, 'rejectors' in of];
  const rising = (list) => list.every((v, i) => i === 0 || list[i - 1] < v);
  const claims = [
    [low <= n && n <= high, `${c.algorithm} takes ${low} to ${high} parties, not ${n}`],
    [c.parties.every((p, i) => p.index === i), 'party indexes are not 0 to n−1 in order'],
    [(c.result === null) !== (flakers === null), 'exactly one of result and void_flakers must be set'],
    [(c.result !== null) === computed, 'result must be set if and only if outcome is COMPUTED'],
    [(timing.computed_at !== null) === computed, 'computed_at must be set if and only if outcome is COMPUTED'],
    [(timing.commits_closed_at !== null) === (missing.length === 0), 'commits_closed_at must be set if and only if every party has a commitment'],
    [(timing.reveals_closed_at !== null) === (c.input_root !== null), 'reveals_closed_at must be set if and only if input_root is set'],
    [c.input_root === null || missing.length === 0, 'input_root is set although a party never committed'],
    [new Set(c.properties).size === c.properties.length, 'a property occurs twice'],
    [!c.properties.includes('inputs-purged') || c.retention === 'purge', 'properties contains inputs-purged, but retention is not purge'],
    [!c.properties.includes('beacon-verified') || (computed && draws), 'properties contains beacon-verified, but the result was not drawn with a beacon'],
    [!openedBySeal(c.properties) || c.properties.includes('inputs-committed-before-reveal'), 'properties contains opened-by-timelock, but no input was revealed'],
  ];
  const [, unnamed] = digestIn(c.properties);
  if (unnamed) claims.push([false, unnamed]);
  const [reason, ...more] = c.properties.filter((p) => p.startsWith('void:'));
  if (reason !== undefined) {
    claims.push(
      [more.length === 0 && !computed, 'properties contains more than one reason for a VOID, or contains one although outcome is COMPUTED'],
      [(reason === 'void:missed-commit') === (missing.length > 0), 'the reason for the VOID must be void:missed-commit if and only if a party never committed'],
      [reason !== 'void:missed-reveal' || c.input_root === null, 'properties contains void:missed-reveal although all parties have revealed'],
      [reason !== 'void:rejected' || rejects, 'properties contains void:rejected, but this algorithm has no rejection'],
      [reason !== 'void:missed-commit' || !c.properties.includes('inputs-committed-before-reveal'), 'properties contains void:missed-commit and inputs-committed-before-reveal, but nobody can reveal before all parties commit'],
    );
  }
  if (flakers) {
    claims.push(
      [flakers.length > 0 && rising(flakers), 'void_flakers is empty, unsorted or repeats a party'],
      [flakers.every((i) => i < n), 'void_flakers names a party that does not exist'],
      [missing.length === 0 || String(flakers) === String(missing), 'void_flakers are not the parties that never committed'],
      [c.input_root === null || rejects, 'void_flakers is set although all parties have revealed and this algorithm has no rejection'],
    );
  }
  return claims.filter(([holds]) => !holds).map(([, words]) => words);
}
