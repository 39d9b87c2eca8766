// All checks of a certificate, without calls to the service. A check is {name, title, ok,
// detail, facts}; facts are rows of [name, value].

import { known as algorithm } from './algorithms.js';
import { QUICKNET, signed } from './bls.js';
import { bytesOf, concat, equal, fromHex, sha256, toHex } from './bytes.js';
import { checkLabels } from './exact.js';
import { canonical, encode, isObject } from './jcs.js';
import { inForce, standing } from './keys.js';
import { climb, leafHash, rootOf } from './merkle.js';
import { keyProblem, signatureProblem, verify as holds } from './p256.js';
import { addSeats } from './seats.js';
import { CERTIFICATE, INPUTS, SHA256, TREE_HEAD, contradictions } from './shape.js';
import { few, seeing, verdictOf } from './verdict.js';

const IN_FORCE = 'The keys were in force when they signed';
const shown = (v) => (typeof v === 'string' ? v : canonical(v ?? null));

/** Returns the signed bytes: the certificate without signature and log_proof, in RFC 8785 form. */
export function signingBytes(certificate) {
  const payload = { ...(isObject(certificate) ? certificate : {}) };
  delete payload.signature;
  delete payload.log_proof;
  return encode(payload);
}

/**
 * Returns the verdict on a certificate (see verdictOf). keys: from keysOf. inputs: list of {input, salt} in
 * party order, null for unknown inputs. openings: opening files, {deal_id, party, input, salt} each.
 * params: algorithm_params. known: the seat keys that the reader knows, from knownKeys. issuer: see
 * seeing. Without inputs, params or known, the checks that need them are left out. Without a head or
 * keys, the checks that need them fail.
 */
export async function verifyCertificate({ certificate, head, keys, inputs = null, openings = [], params = null, known = new Map(), issuer = 'given' }) {
  const [checks, seen] = [[], seeing(issuer)];
  const add = adder(checks);
  const whole = await addCertificate(add, seen, { certificate, head, keys, known });
  if (whole) await addOpenings(add, seen, certificate, [inputs], openings, params);
  return verdictOf(checks, seen, whole ? certificate : null);
}

/** Returns a function that adds a check to the list; problem says what is wrong, and is falsy if the check passed. */
export const adder = (checks) => (name, title, problem, good = '', facts = []) => {
  checks.push({ name, title, ok: !problem, detail: problem || good, facts });
};

/** Makes the checks that need no inputs. Returns false if the certificate is malformed. chain: the beacon of a bundle, for a chain other than drand quicknet. */
export async function addCertificate(add, seen, { certificate, head, keys, known, chain = null }) {
  const shapeProblem = CERTIFICATE(certificate);
  add('shape', 'It has the form of a certificate', shapeProblem && `the certificate ${shapeProblem}`, 'every member, and no other');
  const badKey = keys.map((key) => key.pubkey).find(keyProblem);
  add('keys', 'The keys to verify with are usable', badKey !== undefined ? `${String(badKey).slice(0, 80)} ${keyProblem(badKey)}` : keys.length ? null : 'no key to verify with',
    keys.length === 1 ? 'one key' : `${keys.length} keys`, keys.map((key) => [standing(key), key.pubkey]));

  const message = signingBytes(certificate);
  const entry = await sha256(message);
  const signature = isObject(certificate) ? certificate.signature : undefined;
  const signed = await signedBy(keys, message, signature);
  add('signature', 'The signature holds over exactly these bytes', signed.problem, signed.good, [
    ['signing bytes (RFC 8785)', new TextDecoder().decode(message)],
    ['their SHA-256', toHex(entry)],
    ['signature', shown(signature)],
  ]);

  const headProblem = head === null || head === undefined ? 'no tree head is given' : TREE_HEAD(head) && `the tree head ${TREE_HEAD(head)}`;
  const headBytes = headProblem ? null : encode({ tree_size: head.tree_size, root_hash: head.root_hash });
  const signedHead = headProblem ? { problem: headProblem } : await signedBy(keys, headBytes, head.signature);
  add('tree_head_signature', 'The tree head is signed by the same keys', signedHead.problem, signedHead.good,
    headProblem ? [] : [['signed bytes', new TextDecoder().decode(headBytes)], ['signature', head.signature]]);
  if (shapeProblem) {
    for (const [name, title] of [['key_in_force', IN_FORCE], ['tree_size', 'Proof and tree head are of one size'], ['merkle_inclusion', 'It is in the log'],
      ['input_root_wellformed', 'The root over the inputs is well-formed'], ['consistency', 'Nothing in it contradicts itself']]) {
      add(name, title, 'not checked, because the shape is wrong');
    }
    return false;
  }

  add('key_in_force', IN_FORCE, ...inForce(signed.key, signedHead.key, certificate.log_proof.leaf_index, headProblem ? 0 : head.tree_size));
  seen.development = Boolean(signed.key?.development);
  await addInclusion(add, certificate.log_proof, headProblem ? null : head, headProblem, entry);
  const [root, computed] = [certificate.input_root, certificate.outcome === 'COMPUTED'];
  add('input_root_wellformed', 'The root over the inputs is well-formed',
    root === null ? computed && 'COMPUTED without input_root' : SHA256(root) && `input_root ${SHA256(root)}`, root ?? 'null, as a VOID may have');
  add('consistency', 'Nothing in it contradicts itself', contradictions(certificate).join('; '), 'outcome, parties, times and properties agree');
  if (computed && algorithm(certificate.algorithm).redraw) {
    add('draw', 'The draw follows from the beacon', await drawProblem(certificate),
      'recomputed from beacon and nonce_digest', [['ticket', shown(certificate.result?.ticket)]]);
    await addBeacon(add, seen, certificate.result?.beacon, chain);
  }
  await addSeats(add, seen, certificate, known);
  return true;
}

export const valid = (checks) => checks.length > 0 && checks.every((check) => check.ok);

/** Adds the check of the beacon's signature. The key of drand quicknet is pinned. The key of any other chain comes from the bundle. */
async function addBeacon(add, seen, beacon, chain) {
  let [name, key] = ['drand quicknet', QUICKNET.key];
  let problem = null;
  if (beacon?.chain_hash !== QUICKNET.hash) {
    if (!chain) return;
    [name, key] = ['the chain of the bundle, checked with the key in the bundle,', chain.public_key];
    if (!(Number.isSafeInteger(chain.period) && chain.period >= 1 && chain.period < 2 ** 32)) problem = `the beacon period ${shown(chain.period)} is outside [1, 2^32-1]`;
    else if (!(Number.isSafeInteger(chain.genesis_time) && chain.genesis_time >= 0)) problem = `the beacon genesis ${shown(chain.genesis_time)} is no unix time`;
  } else if (chain && chain.public_key !== key) {
    problem = 'the beacon key in the bundle is not the key of drand quicknet';
  }
  if (!problem && !(Number.isSafeInteger(beacon?.round) && beacon.round > 0 && typeof beacon.signature === 'string' && await signed(key, beacon.round, beacon.signature))) {
    problem = 'the signature of the round does not verify';
  }
  add('beacon_signature', 'The beacon signed its round', problem, `${name} signed round ${shown(beacon?.round)}`);
  if (!problem && beacon.chain_hash === QUICKNET.hash) seen.chain = name;
}

/** Returns {key, good}: the key under which the signature verifies, and the detail text of the check. Returns {problem} if there is no such key. */
async function signedBy(keys, message, signature) {
  const problem = signatureProblem(signature);
  if (problem) return { problem: `the signature ${problem}` };
  for (const [i, key] of keys.entries()) {
    try {
      if (await holds(key.pubkey, message, signature)) return { key, good: `under key ${i + 1} of ${keys.length}: ${standing(key)}` };
    } catch (fault) {
      return { problem: fault.message };
    }
  }
  return { problem: keys.length === 1 ? 'the signature does not verify under this key' : `the signature does not verify under any of the ${keys.length} keys` };
}

async function addInclusion(add, proof, head, headProblem, entry) {
  add('tree_size', 'Proof and tree head are of one size', headProblem
    || (proof.tree_size !== head.tree_size && `the proof is for a tree of ${proof.tree_size} leaves, but the tree head is for ${head.tree_size} leaves`), proof.tree_size === 1 ? 'one leaf' : `${proof.tree_size} leaves`);
  const leaf = await leafHash(entry);
  const { root, steps } = await climb(leaf, proof.leaf_index, proof.tree_size, proof.inclusion_path.map(fromHex));
  const good = head && root && equal(root, fromHex(head.root_hash));
  add('merkle_inclusion', 'It is in the log', headProblem || (!good && 'leaf_index and inclusion_path do not lead to root_hash'),
    `leaf ${proof.leaf_index} of ${proof.tree_size}`, [
      ['leaf hash', toHex(leaf)],
      ...steps.map(({ sibling, onLeft, hash }, i) => [`step ${i + 1}`, `${onLeft ? 'H(path ‖ hash)' : 'H(hash ‖ path)'} with ${toHex(sibling)} gives ${toHex(hash)}`]),
      ['root reached', root ? toHex(root) : 'none: the path has the wrong length'],
      ...(head ? [['root_hash signed', head.root_hash]] : []),
    ]);
}

async function drawProblem({ algorithm: id, result: shown, parties }) {
  try {
    const [of, labels] = [algorithm(id), parties.map((p) => p.label)];
    checkLabels(labels, of.PARTIES);
    const again = canonical(await of.redraw(labels, shown));
    return again === canonical(shown) ? null : `the recomputed result is ${again}`;
  } catch (fault) {
    return fault.message;
  }
}

/** Returns the preimage of the commitment: the canonical input, then the salt. Tries the salt as text, then as hex. Returns null if neither reading opens the commitment. */
export async function opening(commitment, { input, salt }) {
  const readings = [bytesOf(salt ?? '')];
  if (/^([0-9a-fA-F]{2})+$/.test(salt ?? '')) readings.push(fromHex(salt));
  for (const reading of readings) {
    const data = concat(encode(input), reading);
    if (commitment === `sha256:${toHex(await sha256(data))}`) return data;
  }
  return null;
}

/**
 * Opens the commitments with all openings that are known and, once all are open, recomputes input_root and the result.
 * lists: lists of {input, salt} in party order, null for an unknown input; a list may be null. files: opening files
 * {deal_id, party, input, salt}. params: the declared algorithm_params, or null.
 */
export async function addOpenings(add, seen, certificate, lists, files, params) {
  const { parties, deal_id: dealId } = certificate;
  const of = algorithm(certificate.algorithm);
  const titles = { commitments: 'Each input opens its commitment', input_root: 'The inputs give the signed root', result: 'The result follows from the inputs' };
  const known = parties.map(() => []);
  for (const rows of lists.filter((list) => list !== null && list !== undefined)) {
    const bad = INPUTS(rows) ?? (rows.length !== parties.length ? `has ${rows.length} elements, but there are ${parties.length} parties` : null);
    if (bad) return add('commitments', titles.commitments, `the list of inputs ${bad}`);
    rows.forEach((row, party) => row && known[party].push(row));
  }
  for (const file of files) {
    if (file.deal_id !== dealId || file.party >= parties.length) return add('commitments', titles.commitments, `the opening of party ${file.party} in deal ${String(file.deal_id).slice(0, 80)} does not belong to this deal`);
    known[file.party].push(file);
  }
  const compare = async (inputs) => {
    const [problem, ...rest] = await recomputed(certificate, inputs, params);
    add('result', titles.result, problem, ...rest);
    return !problem;
  };
  const opened = await Promise.all(known.map((rows, i) => Promise.all(rows.map((row) => opening(parties[i].commitment, row)))));
  const closed = opened.flatMap((data, i) => (data.includes(null) ? [parties[i].label] : []));
  if (known.flat().length) {
    seen.opened = new Set(opened.flatMap((data, i) => (data.length && !data.includes(null) ? [i] : [])));
    add('commitments', titles.commitments, closed.length && `the input and salt of ${few(closed)} do not open the commitments`, `${seen.opened.size} of ${parties.length} opened`,
      parties.map((p) => [p.label, String(p.commitment)]));
  }
  const complete = known.length && !closed.length && known.every((rows) => rows.length) && certificate.input_root !== null;
  let root = null;
  if (complete) {
    root = `sha256:${toHex(await rootOf(await Promise.all(opened.map((data) => leafHash(data[0])))))}`;
    add('input_root', titles.input_root, root !== certificate.input_root && 'the root computed from the inputs is not input_root', root);
  }
  const liar = falselyRejected(certificate, of, (i) => seen.opened?.has(i) && known[i][0].input);
  if (liar !== undefined) {
    add('result', titles.result, `the certificate says that ${parties[liar].label} rejected, but its input does not reject`);
  } else if (!complete) {
    // If every input of a COMPUTED deal is an acceptance, the params alone give the result. A known input
    // stands for itself: it may be a rejection that the operator hid.
    if (certificate.outcome === 'COMPUTED' && of.ACCEPTED && params && !closed.length) {
      seen.supposed = await compare(known.map(([row]) => row?.input ?? of.ACCEPTED));
    }
  } else if (params) {
    seen.recomputed = await compare(known.map((rows) => rows[0].input)) && root === certificate.input_root;
  }
  return null;
}

/** Returns a party that a VOID names as one that rejected, although its input does not reject, or undefined. inputOf returns a party's open input. A VOID has an input_root only after a rejection. */
function falselyRejected({ void_flakers: flakers, input_root: root, properties }, { rejectors }, inputOf) {
  if (!rejectors || (root === null && !properties.includes('void:rejected'))) return undefined;
  return flakers?.find((i) => {
    try {
      return inputOf(i) && !rejectors([inputOf(i)]).length;
    } catch {
      return true; // an input that no deal accepts
    }
  });
}

async function recomputed(certificate, inputs, params) {
  const [of, shown, labels] = [algorithm(certificate.algorithm), certificate.result, certificate.parties.map((p) => p.label)];
  try {
    checkLabels(labels, of.PARTIES);
    const again = await of.result(labels, params, inputs, shown?.beacon);
    const facts = [['recomputed', canonical(again)]];
    if (again === null && String(certificate.void_flakers) !== String(of.rejectors(inputs))) return ['void_flakers are not the parties that rejected', '', facts];
    return [canonical(again) !== canonical(shown) && 'the inputs give another result', 'byte for byte as recomputed', facts];
  } catch (fault) {
    return [`the result cannot be recomputed: ${fault.message}`];
  }
}
