// Facts about the deployment and the algorithms that the server embeds in the page.

import { byId } from './dom.js';

/** {public_url, invitation, beacon_genesis, beacon_period, algorithms}. */
export const facts = JSON.parse(byId('facts').content.textContent);

/** Returns the catalogue's entry, or undefined for an unknown algorithm. */
export const algorithmOf = (id) => facts.algorithms.find((one) => one.id === id);

/** Returns the time of a beacon round in unix seconds. */
export const roundTime = (round) => facts.beacon_genesis + (round - 1) * facts.beacon_period;

/** Returns the first beacon round after a time in unix seconds. */
export const roundAfter = (time) => Math.max(1, Math.floor((time - facts.beacon_genesis) / facts.beacon_period) + 2);
