// The facts that the server embeds in a page: the deployment and the algorithms.

import { byId } from './dom.js';

/** {public_url, invitation, beacon_genesis, beacon_period, algorithms}. */
export const facts = JSON.parse(byId('facts').content.textContent);

export const algorithmOf = (id) => facts.algorithms.find((one) => one.id === id);

/** Returns the time of a beacon round in unix seconds. */
export const roundTime = (round) => facts.beacon_genesis + (round - 1) * facts.beacon_period;

export const roundAfter = (time) => Math.max(1, Math.floor((time - facts.beacon_genesis) / facts.beacon_period) + 2);
