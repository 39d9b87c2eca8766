// All checks of a bundle: those of its certificate (verify.js) and of its other members.

import { QUICKNET } from './bls.js';
import { equal, fromHex, sha256, toHex } from './bytes.js';
import { addClosing, sealTimes } from './closing.js';
import { keysOf, mayHold } from './keys.js';
import { included, leafHash } from './merkle.js';
import { deploymentKey, parseProof, signers, unchecked } from './notes.js';
import { keyProblem } from './p256.js';
import { addDeclaration } from './seats.js';
import { BUNDLE, SHA256, TREE_HEAD } from './shape.js';
import { chainHash } from './timelock.js';
import { seeing, verdictOf } from './verdict.js';
import { addCertificate, addOpenings, adder, opening, signingBytes } from './verify.js';

export const isBundle = (v) => typeof v === 'object' && v !== null && 'bundle_version' in v;

/**
 * Returns the verdict (see verdictOf). keys: trusted keys of the deployment, or [] to use the keys in the
 * bundle. policy: from parsePolicy, or null. known: from knownKeys. openings, issuer: as in
 * verifyCertificate.
 */
export async function verifyBundle({ bundle, keys = [], policy = null, known = new Map(), openings = [], issuer = 'given' }) {
  const [checks, seen] = [[], { ...seeing(keys.length ? issuer : 'file'), alone: false, policy }];
  const add = adder(checks);
  let misshapen = BUNDLE(bundle);
  let named = [];
  if (!misshapen) {
    try {
      named = keysOf(bundle.keys);
    } catch (fault) {
      misshapen = `\`keys\`: ${fault.message}`;
    }
  }
  add('bundle', 'It has the form of a bundle', misshapen && `the bundle ${misshapen}`, 'every member, and no other');
  const { certificate, tree_head: head, declaration } = bundle;
  if (keys.length === 0) keys = named;
  const whole = !misshapen && await addCertificate(add, seen, { certificate, head, keys, known, chain: bundle.beacon ?? null });
  if (whole) {
    await addLogProof(add, bundle, keys, policy);
    const declared = await addDeclaration(add, seen, declaration, certificate, sealTimes(bundle));
    await addClosing(add, seen, bundle, declared ? declaration : {}, policy, async (note) => (await checkpointSigner(note, keys, policy))[0]);
    if (bundle.beacon) {
      const { chain_hash: of, genesis_seed: seed, beacon_id: id } = bundle.beacon;
      seen.bound = await chainHash(bundle.beacon) === of;
      let problem = null;
      if (of !== certificate.result?.beacon?.chain_hash) problem = `the bundle has the key of beacon chain ${of}, but the result was not drawn from that chain`;
      else if (!seen.bound && (of === QUICKNET.hash || seed !== undefined || id !== undefined)) problem = 'the key and the other values of the beacon in the bundle do not hash to its chain_hash';
      add('beacon_chain', 'The beacon is that of the result', problem, of);
    }
    const own = await addOwnInput(add, bundle.own_input, certificate);
    await addOpenings(add, seen, certificate, [bundle.openings], [...openings, ...own], declared ? declaration.algorithm_params : null);
  }
  return verdictOf(checks, seen, whole ? certificate : null);
}

async function addLogProof(add, { certificate, tree_head: head, log_proof: text }, keys, policy) {
  const titles = { log: 'It is under the checkpoint', signed: 'The checkpoint is signed by a key that you trust', witnesses: 'Witnesses cosigned the checkpoint' };
  if (text === undefined) {
    if (policy) add('witnesses', titles.witnesses, 'the bundle has no log_proof, so it contains no cosignatures');
    return;
  }
  let proof;
  try {
    proof = parseProof(text);
  } catch (fault) {
    add('log_proof', titles.log, `log_proof is malformed: ${fault.message}`);
    return;
  }
  const { index, path, note } = proof;
  const own = certificate.log_proof.leaf_index;
  const leaf = await leafHash(await sha256(signingBytes(certificate)));
  let problem = null;
  if (index !== own) problem = `the proof is for leaf ${index}, but the certificate is at leaf ${own}`;
  else if (!await included(leaf, index, note.size, path, note.root)) problem = `the path does not lead from the certificate at leaf ${index} to the root of the checkpoint`;
  else if (!TREE_HEAD(head) && head.tree_size === note.size && !equal(fromHex(head.root_hash), note.root)) {
    problem = 'the tree head and the checkpoint have the same size but different roots: the log is forked';
  }
  add('log_proof', titles.log, problem, `leaf ${index} of ${note.size} in ${note.origin}`, [['checkpoint', new TextDecoder().decode(note.text)], ['root', toHex(note.root)]]);
  const [unsigned, by] = await checkpointSigner(note, keys, policy);
  add('checkpoint_signature', titles.signed, unsigned, by);
  if (!policy) return;
  if (unsigned) {
    add('witnesses', titles.witnesses, 'not checked, because no trusted key signed the checkpoint');
    return;
  }
  try {
    const signed = await signers(note, [...policy.logs, ...policy.witnesses.values()]);
    const cosigned = [...policy.witnesses].filter(([, key]) => signed.includes(key)).map(([name]) => name);
    const open = unchecked(note, policy);
    let missing = null;
    if (!policy.met(cosigned)) {
      missing = policy.met([...cosigned, ...open])
        ? `not checked, because the quorum depends on ML-DSA-44 cosignatures, which a browser cannot verify: by ${open.join(', ')}; see fairpactctl verify`
        : `the quorum of witnesses is not met: cosigned by ${cosigned.join(', ') || 'none'}`;
    }
    add('witnesses', titles.witnesses, missing,
      policy.demands ? `cosigned by ${cosigned.join(', ')}` : 'the policy requires no cosignatures');
  } catch (fault) {
    add('witnesses', titles.witnesses, fault.message);
  }
}

/** Returns [problem, detail] for the signer of the checkpoint. With a policy, the signer must be one of its logs. Without a policy, the signer must be a deployment key that was valid at this tree size. */
async function checkpointSigner(note, keys, policy) {
  const logs = policy ? policy.logs.filter((key) => key.name === note.origin) : [];
  const deployment = await Promise.all(keys.filter((key) => !keyProblem(key.pubkey)).map(async (row) => ({ row, key: await deploymentKey(note.origin, row.pubkey) })));
  let by;
  try {
    by = await signers(note, [...logs, ...deployment.map(({ key }) => key).filter(Boolean)]);
  } catch (fault) {
    return [fault.message, ''];
  }
  if (by.length === 0) return ['the checkpoint carries no signature by a known key of its log', ''];
  const log = by.find((key) => logs.includes(key));
  if (log) return [null, `signed by ${log.words}, a log of the policy`];
  if (policy) return ['no log of the policy signed the checkpoint', ''];
  const found = deployment.find(({ row, key }) => by.includes(key) && mayHold(row, note.size - 1));
  return found ? [null, `signed by the deployment’s key ${found.row.pubkey}; no policy was given, so the log’s own key was not checked`] : ['a retired key signed the checkpoint, whose size is above the tree_size of that key', ''];
}

/** Adds the checks of own_input. Returns its opening, if it opens the party's commitment, as a list of at most one opening file. */
async function addOwnInput(add, own, { deal_id: dealId, parties, input_root: root }) {
  if (!own) return [];
  const titles = { input: 'Your input opens your commitment', path: 'Your input is under the signed root' };
  if (own.party >= parties.length) {
    add('own_input', titles.input, `own_input names party ${own.party}, but the certificate has ${parties.length} parties, counted from 0`);
    return [];
  }
  if (own.input === undefined && own.salt === undefined) return [];
  if (own.input === undefined || own.salt === undefined) {
    add('own_input', titles.input, 'own_input has only one of input and salt');
    return [];
  }
  const data = await opening(parties[own.party].commitment, own);
  add('own_input', titles.input, !data && `the input and salt do not open the commitment of party ${own.party}`, `of party ${own.party}`);
  const found = data ? [{ ...own, deal_id: dealId }] : [];
  let problem = null;
  if (root === null && own.input_path === undefined) return found;
  if (root === null) problem = 'own_input has an input_path, but the input_root of the certificate is null';
  else if (own.input_path === undefined) problem = 'own_input has no input_path';
  else if (!data) problem = 'not checked, because the input and salt do not open the commitment';
  else if (SHA256(root) || !await included(await leafHash(data), own.party, parties.length, own.input_path.map(fromHex), fromHex(root.slice(7)))) {
    problem = 'input_path does not lead from the input to input_root';
  }
  add('input_path', titles.path, problem, `party ${own.party} of ${parties.length}`);
  return found;
}
