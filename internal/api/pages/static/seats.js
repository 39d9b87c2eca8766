// Seat signatures: the declaration of a deal, the message that a seat key signs, and
// attested_by (/protocol, section 3.1).

import { known as algorithm } from './algorithms.js';
import { bytesOf, sha256, toHex } from './bytes.js';
import { encode } from './jcs.js';
import { keyProblem, sign, verify as holds } from './p256.js';
import { roundOf } from './timelock.js';
import { FALSE, OPEN, PROVEN } from './verdict.js';

const DOMAIN = 'fairpact seat v1';
const KEY = '(es256:[0-9a-f]{66}|ed25519:[0-9a-f]{64})';
const FORM = new RegExp(`^(?:initiator(?: ${KEY})?|(declared|brought) ${KEY} ((?:es256|ed25519):[0-9a-f]{128}) (https?://[!-.0-~]{1,255}))$`);
const PROPERTY = 'declaration-sha256:';
const MOST_NAMED = 8;

export const digestOf = async (declaration) => toHex(await sha256(encode(declaration)));

/** Returns [digest, problem]: the declaration's digest in the properties, and what is wrong with it. Each may be null. */
export function digestIn(properties) {
  const named = properties.filter((p) => p.startsWith(PROPERTY)).map((p) => p.slice(PROPERTY.length));
  if (named.length > 1) return [null, 'the properties name two declarations'];
  if (named.length === 1 && !/^[0-9a-f]{64}$/.test(named[0])) return [null, 'declaration-sha256 is not 64 lower-case hex digits'];
  return [named[0] ?? null, null];
}

export const seatMessage = (origin, dealId, party, commitment, declaration) =>
  bytesOf([DOMAIN, origin, dealId, party, commitment, declaration].map((line) => `${line}\n`).join(''));

/**
 * Returns party_key and party_signature for a commit. key: {public, private} of the party.
 * declared: the answer of GET /v1/deals/{id}/declaration. The key signs the terms that the view
 * showed. The view lacks the seat keys and the beacon chain, so the key signs those as declared.
 * The deal's page shows both.
 */
export async function signSeat(key, declared, view, party, commitment) {
  const { declaration, origin } = declared;
  if (origin !== location.origin) throw new Error(`A seat key signs for ${origin}: open this page there`);
  const { algorithm, algorithm_params, commit_deadline, mode, retention, reveal_deadline, parties } = view;
  const seen = { ...declaration, algorithm, algorithm_params, commit_deadline, mode, party_labels: parties.map((p) => p.label), retention, reveal_deadline };
  return { party_key: key.public, party_signature: await sign(key.private, key.public, seatMessage(origin, view.deal_id, party, commitment, await digestOf(seen))) };
}

/** Parses attested_by to {declared, key, signature, origin}. Returns null for an unknown form. */
export function attested(text) {
  const found = FORM.exec(text);
  if (!found) return null;
  const [, only = null, mark, key, signature, origin] = found;
  if (!mark) return { declared: only !== null, key: only, signature: null, origin: null };
  return { declared: mark === 'declared', key, signature, origin };
}

/** Parses lines of N=KEY to a Map of party to key. Throws if a line is invalid. */
export function knownKeys(text) {
  const known = new Map();
  for (const line of text.split(/[\s,]+/).filter(Boolean)) {
    const [, party, key] = /^([0-9]{1,5})=(.+)$/.exec(line) ?? [];
    const problem = party === undefined ? 'is not a party and its key, like 1=ed25519:…' : keyProblem(key);
    if (problem) throw new Error(`“${line.slice(0, 80)}” ${problem}`);
    if (known.has(Number(party))) throw new Error(`party ${party} is listed twice`);
    known.set(Number(party), key);
  }
  return known;
}

const few = (words) => [...words.slice(0, MOST_NAMED), ...(words.length > MOST_NAMED ? [`and ${words.length - MOST_NAMED} more`] : [])];

/** Adds the checks of the seat signatures, and to seen.parties what is proven of each party. known: from knownKeys. */
export async function addSeats(add, seen, certificate, known) {
  const { parties: rows, deal_id: dealId } = certificate;
  const [named, bad] = digestIn(certificate.properties);
  const [wrong, mismatched] = [[], []];
  let keyed = false;
  for (const [i, row] of rows.entries()) {
    const by = attested(row.attested_by);
    keyed ||= by === null || by.key !== null;
    let [signer, problem] = [null, null];
    if (by === null) problem = 'attested_by is of no known form';
    else if (by.signature !== null && row.commitment === null) problem = 'attested_by has a signature, but the party has no commitment';
    else if (by.signature !== null && named === null) problem = bad ?? 'the certificate names no declaration, but a seat signature must cover one';
    else if (by.signature !== null && keyProblem(by.key)) problem = `its key ${keyProblem(by.key)}`;
    else if (by.signature !== null) {
      try {
        if (!await holds(by.key, seatMessage(by.origin, dealId, i, row.commitment, named), by.signature)) problem = 'the signature does not verify under its seat key';
        else if (by.origin !== (seen.origin ?? by.origin)) problem = `signed for ${by.origin}, and not for ${seen.origin} as a party before it`;
        else [signer, seen.origin] = [by.key, by.origin];
      } catch (fault) {
        problem = fault.message; // this browser does not support the key's scheme
      }
    }
    if (problem) wrong.push(`party ${i}: ${problem}`);
    if (known.has(i)) {
      if (signer === null) mismatched.push(`party ${i} has no valid signature by a seat key`);
      else if (signer !== known.get(i)) mismatched.push(`party ${i} signed with ${signer}, not with the key that you named`);
    }
    seen.parties.push({ party: i, ...agreement(row, problem, signer, known.get(i)) });
  }
  for (const i of known.keys()) if (i >= rows.length) mismatched.push(`there is no party ${i} in the certificate`);
  if (keyed) add('party_signatures', 'Seat keys signed the commitments', few(wrong).join('; '), 'each seat signature is valid for its party and commitment in this deal', rows.map((row) => [row.label, row.attested_by]));
  if (known.size > 0) add('party_keys', 'The parties signed with the keys that you know', few(mismatched).join('; '), `parties that signed with the key that you named: ${known.size}`);
}

/** Returns {status, detail}: what is proven of a party's agreement. */
function agreement(row, problem, signer, known) {
  if (problem || (known && signer !== known)) return { status: FALSE, detail: problem ?? `signed with ${signer}, not with the key that you named` };
  if (row.commitment === null) return { status: OPEN, detail: 'committed nothing, as the service says' };
  if (signer === null) return { status: OPEN, detail: 'no seat key signed, and the initiator held every invite token' };
  if (!known) return { status: OPEN, detail: `signed with ${signer}, which the initiator may have named or brought; compare it with the key that you know` };
  return { status: PROVEN, detail: 'signed with the seat key that you named' };
}

/** Returns how the declared round could be out before the last reveal, or null. */
function tooEarly({ algorithm_params: { beacon_round: given }, reveal_deadline: by }, times) {
  const round = Number.isSafeInteger(given) ? given : 0;
  if (!times || (round >= 1 && times.genesis + (round - 1) * times.period > by)) return null;
  return `beacon round ${round} is not published after reveal_deadline ${by}`;
}

/** Returns how the beacon of a draw differs from the declared one, or null. */
function otherDraw({ beacon_chain: chain, algorithm_params: { beacon_round: round } }, { algorithm: id, result }) {
  const drawn = result?.beacon;
  if (!algorithm(id).redraw || typeof drawn?.chain_hash !== 'string' || !drawn.chain_hash) return null; // the check draw refuses such a result of a draw
  if (chain !== drawn.chain_hash) return 'the result was not drawn from the declared beacon chain';
  return Number.isSafeInteger(round) && round === drawn.round ? null : `the declaration names beacon round ${round}, but the result was drawn from round ${JSON.stringify(drawn.round)}`;
}

/** Reports whether at least one input came from a timelock seal. */
export const openedBySeal = (properties) => properties.some((p) => p.startsWith('opened-by-timelock:'));

/** Returns a problem if a phase closed at or after its deadline, or null. A phase that missed its deadline has no closing time.
    Reveals from seals may come later, because their beacon round may be late, but not before the round is due. times: from sealTimes. */
function untimely(declaration, { timing, properties }, times) {
  const phase = ['commit', 'reveal'].filter((name) => name === 'commit' || !openedBySeal(properties))
    .find((name) => timing[`${name}s_closed_at`] !== null && timing[`${name}s_closed_at`] >= declaration[`${name}_deadline`]);
  if (phase) return `${phase}s must close before the declared ${phase}_deadline ${declaration[`${phase}_deadline`]}, but they closed at ${timing[`${phase}s_closed_at`]}`;
  if (!times || !openedBySeal(properties) || timing.reveals_closed_at === null) return null;
  const round = roundOf(times, declaration.commit_deadline);
  const due = times.genesis + (round - 1) * times.period;
  return timing.reveals_closed_at < due ? `inputs came from seals, which beacon round ${round} opens from ${due} on, but reveals closed at ${timing.reveals_closed_at}` : null;
}

/** Adds the check of the bundle's declaration: the certificate names the declaration's digest and agrees with its content. Reports whether it does. times: from sealTimes. */
export async function addDeclaration(add, seen, declaration, certificate, times) {
  const [named] = digestIn(certificate.properties);
  if (declaration === undefined) return false;
  const { parties: rows } = certificate;
  const { party_labels: labels, party_keys: keys } = declaration;
  let problem = null;
  if (named === null) problem = 'the certificate names no declaration';
  else if (await digestOf(declaration) !== named) problem = 'the declaration is not the one that the certificate names';
  else if (['algorithm', 'mode', 'retention'].some((name) => declaration[name] !== certificate[name]) || labels.length !== rows.length || keys.length !== rows.length) {
    problem = 'the declaration is of another deal: algorithm, mode, retention or the number of parties differ';
  } else if (('acted_by' in declaration) !== certificate.properties.includes('acted-by-initiator')) {
    problem = 'declaration and certificate disagree on whether the initiator acted for all parties';
  } else {
    const other = rows.findIndex((row, i) => {
      const by = attested(row.attested_by);
      return row.label !== labels[i] || (by?.declared ? by.key : null) !== keys[i];
    });
    problem = other >= 0 ? `party ${other} has another label or another declared key in the declaration than in the certificate` : otherDraw(declaration, certificate);
    seen.early = problem ? null : tooEarly(declaration, times);
    if (seen.early && 'acted_by' in declaration) problem = `the initiator acted for all parties, but ${seen.early}`;
    seen.late = problem ? null : untimely(declaration, certificate, times);
    problem ??= seen.late;
  }
  add('declaration', 'What was declared is what the certificate names', problem, named ?? '', [['declaration', JSON.stringify(declaration)]]);
  return !problem;
}
