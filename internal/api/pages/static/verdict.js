// What the checks of a report prove: the seven claims of /protocol, section 9.2, always all and in
// this order. A claim is {claim, title, status, detail}; `agreed` also has parties.

import { known as algorithm } from './algorithms.js';

export const [PROVEN, OPEN, FALSE, NONE] = ['proven', 'not proven', 'false', 'not applicable'];

// The claims, and the checks that each depends on. If one of them failed, the claim is false.
const CLAIMS = [
  ['issued', 'Who issued it', ['bundle', 'shape', 'keys', 'signature', 'tree_head_signature', 'key_in_force'], issued],
  ['logged', 'It is in the log', ['tree_size', 'merkle_inclusion', 'log_proof', 'checkpoint_signature'], logged],
  ['cosigned', 'Witnesses saw the log', ['witnesses'], cosigned],
  ['agreed', 'Who agreed', ['party_signatures', 'party_keys', 'declaration'], agreed],
  ['fixed', 'The inputs were fixed before any was opened', ['closing', 'closing_witnesses'], fixed],
  ['result', 'The result follows from the inputs', ['input_root_wellformed', 'consistency', 'commitments', 'input_root', 'result', 'own_input', 'input_path'], result],
  ['draw', 'The draw follows from the nonces and the beacon', ['draw', 'beacon_chain', 'beacon_signature'], draw],
];

/**
 * Returns what the checks have seen, for the claims. issuer: who named the keys: 'given' by the reader, 'file' for
 * the verified file itself, or the name of a deployment.
 */
export const seeing = (issuer) => ({
  issuer,
  development: false, // the signing key is declared a development key
  alone: true, // the certificate came without its bundle
  policy: null,
  parties: [], // per party: {party, status, detail} of the claim `agreed`
  origin: null, // of the deployment for which seat keys signed; null: none did
  closed: null, // what the closing shows, see closing.js; null: the bundle has none
  late: null, // how the times contradict the declaration
  early: null, // how the beacon round of the draw could be out before the last reveal
  opened: null, // the parties whose commitments were opened; null if no opening is known
  recomputed: false, // the result was recomputed from the inputs of all parties
  supposed: false, // the result was recomputed as if all parties accepted whose inputs are missing
  bound: false, // whether the hash of the beacon chain in the bundle is that of its key and its other values
  chain: null, // the name of the beacon chain, known beforehand, that signed the round
});

/** Returns {checks, claims, development}; development: whether the signing key is declared a development key. certificate: null if it, or its bundle, is malformed. */
export function verdictOf(checks, seen, certificate) {
  const claims = [];
  for (const [claim, title, needed, judge] of CLAIMS) {
    let wrong = checks.filter(({ name, ok }) => !ok && needed.includes(name));
    if (claim === 'agreed' && seen.late) wrong = wrong.filter(({ name }) => name !== 'declaration'); // it failed in its times, which is the claim `fixed`
    let [status, detail] = [];
    if (certificate === null) [status, detail] = claim === 'issued' ? [FALSE, wrong[0].detail] : [OPEN, 'the document is malformed'];
    else if (wrong.length) [status, detail] = [FALSE, `${wrong[0].name}: ${wrong[0].detail}`];
    else [status, detail] = judge({ checks, seen, certificate });
    if (status === PROVEN && claims[0]?.status === FALSE) [status, detail] = [OPEN, 'nothing is proven by a certificate of another issuer'];
    claims.push({ claim, title, status, detail, ...(claim === 'agreed' ? { parties: certificate === null ? [] : seen.parties } : {}) });
  }
  return { checks, claims, development: seen.development };
}

function issued({ seen }) {
  if (seen.development) return [OPEN, 'signed by a key that the deployment declares a development key: such certificates prove nothing'];
  if (seen.issuer === 'file') return [OPEN, 'signed by a key that this file brought; give the key of the deployment'];
  return [PROVEN, `signed by a key ${seen.issuer === 'given' ? 'that you gave' : `that ${seen.issuer} names`}`];
}

function logged(all) {
  const [status, detail] = issued(all);
  return [status, status === PROVEN ? 'a leaf under a tree head of this issuer' : `a leaf under a tree head ${detail}`];
}

function cosigned({ checks, seen }) {
  if (seen.alone) return [OPEN, 'a certificate alone has no checkpoint; verify the bundle with a policy'];
  if (!seen.policy) return [OPEN, 'no policy says which witnesses you trust; give one'];
  if (!seen.policy.demands) return [OPEN, 'the policy requires no cosignatures'];
  const found = checks.find(({ name }) => name === 'witnesses');
  return found ? [PROVEN, found.detail] : [OPEN, 'log_proof is malformed'];
}

function agreed({ seen: { parties, origin }, certificate }) {
  const proven = parties.filter(({ status }) => status === PROVEN).length;
  const words = `${proven} of ${parties.length} parties signed with a key that you know${origin ? `, for the deployment at ${origin}` : ''}`;
  if (proven < parties.length && certificate.properties.includes('acted-by-initiator')) return [NONE, 'the initiator acted for all parties, as the deal declares'];
  return proven === parties.length ? [PROVEN, words] : [OPEN, `${words}; name the seat keys that you know`];
}

function fixed({ seen: { late, closed, policy }, certificate }) {
  if (late) return [FALSE, late];
  if (!closed) return [OPEN, 'the times are the operator’s word'];
  if (!policy) return [OPEN, 'the commitments are in the log, but only witnesses show since when; give a policy'];
  if (!policy.demands) return [OPEN, 'the commitments are in the log, but only witnesses show since when, and the policy requires no cosignatures'];
  if (!closed.known) return [OPEN, 'the beacon’s chain is not drand quicknet, and its times are only in this file; compare them with those that you know'];
  if (!closed.bySeal) return [OPEN, 'no input came from a seal, and when each party revealed is the operator’s word'];
  if (closed.unsealed.length) {
    const missing = few(closed.unsealed.map((i) => certificate.parties[i].label));
    return [OPEN, `${closed.detail}, but when the parties without a seal revealed is the operator’s word: ${missing}`];
  }
  return [PROVEN, `${closed.detail}; an input that its party revealed by hand before is not covered`];
}

function result({ seen, certificate }) {
  if (seen.recomputed) return [PROVEN, 'recomputed from the inputs of all parties'];
  if (certificate.outcome === 'VOID') return [OPEN, 'there is no result; which party missed its deadline or rejected is the operator’s word'];
  if (seen.opened === null && seen.alone && !seen.supposed) return [OPEN, 'the result was not recomputed; verify the bundle, or give the inputs and the parameters'];
  const missing = certificate.parties.flatMap(({ label }, i) => (seen.opened?.has(i) ? [] : [label]));
  if (!missing.length) return [OPEN, 'all commitments were opened, but the parameters are missing: verify the bundle, or give them'];
  const word = seen.supposed ? 'the arithmetic holds, but that all accepted is the operator’s word: ' : '';
  return [OPEN, `${word}the inputs of ${missing.length} of ${certificate.parties.length} parties are missing: ${few(missing)}; ${obtain(certificate)}`];
}

/** Returns how to get the openings that are missing. */
function obtain({ algorithm: id, properties }) {
  if (properties.includes('inputs-purged')) return 'the service deleted them, but the parties can send you their openings';
  return algorithm(id).redraw ? 'get the bundle again' : 'all parties can consent to show their inputs, or send you their openings';
}

function draw({ checks, seen, certificate }) {
  if (!algorithm(certificate.algorithm).redraw || certificate.outcome === 'VOID') return [NONE, 'nothing was drawn'];
  const failed = checks.find(({ name, ok }) => name === 'result' && !ok);
  if (failed) return [FALSE, `result: ${failed.detail}`];
  if (seen.early) return [OPEN, `${seen.early}: whoever revealed last could choose the winner; only another deal, with a later round, can prove a draw`];
  if (seen.alone) return [OPEN, 'a certificate alone does not show whether its beacon round was out before the last reveal; verify the bundle, which has the declared deadlines'];
  if (!seen.recomputed) return [OPEN, `the digest of the nonces is the operator’s word: the openings of all parties are missing; ${obtain(certificate)}`];
  if (!seen.chain && seen.bound) return [OPEN, 'the beacon’s chain is not drand quicknet; its key belongs to the chain hash, which the deal declared, but whose chain it is you must know'];
  if (!seen.chain) return [OPEN, 'the beacon’s chain is not drand quicknet, and nothing shows that its key belongs to the chain hash; compare it with the one that you know'];
  return [PROVEN, `nonces, beacon round and winner were recomputed; ${seen.chain} signed the round`];
}

/** Returns the first eight names, and how many more there are. */
export const few = (names, most = 8) => [...names.slice(0, most), ...(names.length > most ? [`and ${names.length - most} more`] : [])].join(', ');
