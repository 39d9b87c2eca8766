// Checks of the closing: the digest of all commitments and seals of a deal, which the log got before the round of the seals
// (/protocol, sections 3.2 and 9.1).

import { QUICKNET } from './bls.js';
import { bytesOf, concat, sha256, toHex } from './bytes.js';
import { included, leafHash } from './merkle.js';
import { early, parseProof, signers, unchecked } from './notes.js';
import { digestIn, openedBySeal } from './seats.js';
import { roundOf } from './timelock.js';

const mark = async (dealId) => (await sha256(bytesOf(`fairpact closing\0${dealId}`))).slice(0, 8);

/** Returns {genesis, period} of the beacon chain of the deal: those of drand quicknet if the deal declares it, else those of the chain in the closing. Returns null if they are unknown. */
export function sealTimes({ closing, declaration }) {
  const { chain_hash: chain, genesis_time: genesis, period } = closing?.beacon ?? {};
  if ([declaration?.beacon_chain, chain].includes(QUICKNET.hash)) return QUICKNET;
  return genesis >= 0 && period >= 1 && period < 2 ** 32 ? { genesis, period } : null;
}

/** Returns the 32 bytes of the log entry. rows: [commitment, hash of the seal or null] of each party. */
async function entryOf(dealId, declaration, chain, round, rows) {
  const lines = ['fairpact closed commitments v1', dealId, declaration, `${chain} ${round}`, rows.length, ...rows.map(([commitment, seal]) => `${commitment} ${seal ?? '-'}`)];
  return concat(await mark(dealId), (await sha256(bytesOf(lines.map((line) => `${line}\n`).join('')))).slice(0, 24));
}

/**
 * Adds the checks closing and closing_witnesses, and to seen.closed what they show. declaration: {} if it is not the one of the
 * certificate. unsigned: returns what is wrong with the signer of a checkpoint.
 */
export async function addClosing(add, seen, { certificate, closing }, declaration, policy, unsigned) {
  const titles = { leaf: 'All commitments and seals are in the log', witnesses: 'Witnesses saw them before the seals could be read' };
  if (!closing) {
    const committed = certificate.parties.every((p) => p.commitment !== null);
    if (policy?.demands && (openedBySeal(certificate.properties) || (committed && 'seals' in declaration))) {
      add('closing_witnesses', titles.witnesses, 'inputs came from seals, but the bundle has no closing: nothing shows that the commitments were fixed before the seals could be read');
    }
    return;
  }
  const { beacon, seal_hashes: seals } = closing;
  seen.closed = { known: false, detail: '', bySeal: openedBySeal(certificate.properties), unsealed: seals.flatMap((seal, i) => (seal === null ? [i] : [])) };
  const [wrong, leaf] = await leafOf(seen, closing, certificate, declaration);
  const problem = wrong ?? await unsigned(leaf.note);
  add('closing', titles.leaf, problem, leaf && `all commitments and seals are a leaf under the checkpoint of size ${leaf.note.size} in ${leaf.note.origin}`);
  if (!policy?.demands) return;
  if (problem) {
    add('closing_witnesses', titles.witnesses, 'not checked, because the check closing failed');
    return;
  }
  const words = `before round ${leaf.round} of ${beacon.chain_hash}, which was due at ${leaf.at}`;
  try {
    const note = early(leaf.note, policy, leaf.at);
    const signed = await signers(note, [...policy.logs, ...policy.witnesses.values()]);
    const cosigned = [...policy.witnesses].filter(([, key]) => signed.includes(key)).map(([name]) => name);
    const open = unchecked(note, policy);
    let missing = null;
    if (policy.met(cosigned)) seen.closed.detail = `all commitments were in the log ${words} (cosigned by ${cosigned.join(', ')})`;
    else if (policy.met([...cosigned, ...open])) missing = `not checked, because the quorum depends on ML-DSA-44 cosignatures, which a browser cannot verify: by ${open.join(', ')}; see fairpactctl verify`;
    else missing = `no quorum cosigned the commitments ${words}: cosigned by ${cosigned.join(', ') || 'none'}. Whoever runs the service could read the seals first`;
    add('closing_witnesses', titles.witnesses, missing, `cosigned by ${cosigned.join(', ')} ${words}; fairpactctl log audit --deal shows any other leaf that begins with ${toHex(await mark(certificate.deal_id))}`);
  } catch (fault) {
    add('closing_witnesses', titles.witnesses, fault.message);
  }
}

/** Returns [problem, {note, round, at}], without a look at who signed the note. at: when the round of the seals is due. */
async function leafOf(seen, { beacon, seal_hashes: seals, log_proof: text }, { deal_id: dealId, parties, properties }, declaration) {
  if (declaration.commit_deadline === undefined) return ['not checked, because the round of the seals follows from the declaration, which is missing or wrong', null];
  const { chain_hash: chain, public_key: key, genesis_time: genesis, period } = beacon;
  if (period < 1 || period >= 2 ** 32) return [`the beacon of the closing is malformed: its period is ${period}`, null];
  if (chain === QUICKNET.hash) {
    if (key !== QUICKNET.key || genesis !== QUICKNET.genesis || period !== QUICKNET.period) return ['the closing names drand quicknet, but with another key or other times', null];
    seen.closed.known = true;
  }
  if (![null, chain].includes(declaration.beacon_chain)) return [`the closing is for beacon chain ${chain}, but the deal declares another one`, null];
  const round = roundOf({ genesis, period }, declaration.commit_deadline);
  const other = properties.find((p) => openedBySeal([p]) && p !== `opened-by-timelock:${round}`);
  if (other) return [`the declaration leads to round ${round}, but the certificate says ${other}`, null];
  if (seals.length !== parties.length) return [`the closing has ${seals.length} seals for ${parties.length} parties`, null];
  if (parties.some((p) => p.commitment === null)) return ['the bundle has a closing, but a party never committed', null];
  let proof;
  try {
    proof = parseProof(text);
  } catch (fault) {
    return [`its log_proof is malformed: ${fault.message}`, null];
  }
  const { index, path, note } = proof;
  const entry = await entryOf(dealId, digestIn(properties)[0], chain, round, parties.map((p, i) => [p.commitment, seals[i]]));
  if (!await included(await leafHash(entry), index, note.size, path, note.root)) {
    return [`the commitments of the certificate and the seals of the closing are not leaf ${index} under its checkpoint: a commitment or a seal was changed afterwards`, null];
  }
  return [null, { note, round, at: genesis + (round - 1) * period }];
}
