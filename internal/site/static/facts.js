// What the page of a deal and the creation page know of the deployment and of the
// algorithms: the server writes it into them.

import { byId } from './dom.js';

/** {public_url, invitation, beacon_genesis, beacon_period, algorithms}. */
export const facts = JSON.parse(byId('facts').content.textContent);

/** The catalogue's entry, or undefined for an algorithm that this release does not have. */
export const algorithmOf = (id) => facts.algorithms.find((one) => one.id === id);

/** When a beacon round is out, in unix seconds, and the first round after a time. */
export const roundTime = (round) => facts.beacon_genesis + (round - 1) * facts.beacon_period;
export const roundAfter = (time) => Math.max(1, Math.floor((time - facts.beacon_genesis) / facts.beacon_period) + 2);
