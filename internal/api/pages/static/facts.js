// The facts that the server embeds in a page: the deployment and the algorithms.

import { byId } from './dom.js';

/** {public_url, invitation, invitation_once, beacon_chain, beacon_genesis, beacon_period, algorithms}. */
export const facts = JSON.parse(byId('facts').content.textContent);

/** Returns {id, title, purpose, …, page} of an algorithm, or undefined if the server does not have it. */
export const algorithmOf = (id) => facts.algorithms.find((one) => one.id === id);

/** Returns the time of a beacon round in unix seconds. */
const roundTime = (round) => facts.beacon_genesis + (round - 1) * facts.beacon_period;

/** Returns the unix time at which the beacon round of a draw is published, or undefined for other deals. */
export const drawTime = ({ algorithm_params: { beacon_round: round } }) => round && roundTime(round);

/** Returns the round that opens the seals of a deal: the first at or after commit_deadline + 60 s. */
export const sealRound = (commitDeadline) => Math.max(0, Math.ceil((commitDeadline + 60 - facts.beacon_genesis) / facts.beacon_period)) + 1;

/** Returns the unix time from which the seals of a deal open. */
export const sealTime = (commitDeadline) => roundTime(sealRound(commitDeadline));

/** Reports whether a deal takes seals for the rounds of a chain here (/protocol, section 3.2). origin: null if the deployment has no public address, and so takes none. */
export const takesSeals = (origin, chain, { commit_deadline: by, reveal_deadline: until, ...view }) => Boolean(origin) && chain === facts.beacon_chain && until >= sealTime(by) + 60 && (drawTime(view) ?? Infinity) > sealTime(by);

/** Returns who sees the inputs of an ended deal: 'all' parties; all after 'consent'; or 'nobody'. */
export function sightOf({ state, mode, retention, algorithm, contents_deleted: deleted }) {
  if (state === 'VOID' || deleted || retention === 'purge') return 'nobody';
  return mode === 'open' || algorithmOf(algorithm)?.needs_beacon ? 'all' : 'consent';
}

export const roundAfter = (time) => Math.max(1, Math.floor((time - facts.beacon_genesis) / facts.beacon_period) + 2);

/** Loads the forms and pictures of an algorithm; generic.page.js says what a module has, and shows a deal whose algorithm or params are unknown. */
export const pageOf = (id) => import(`./${algorithmOf(id)?.page ? id : 'generic'}.page.js`);
