// The algorithms that this page verifies, as /protocol specifies them. Each module has ID, PARTIES
// (least and most), result, which is null if a party rejected, and settled: one sentence, then
// rows. With a beacon it has redraw, and if a party can reject, ACCEPTED
// and rejectors.

import * as random from './random.v1.js';
import * as shapley from './shapley.v1.js';
import * as split from './split.v1.js';

const ALL = new Map([split, random, shapley].map((one) => [one.ID, one]));

export const IDS = [...ALL.keys()];

/** Returns the module of an algorithm, or undefined if this page does not know the algorithm. */
export const known = (id) => ALL.get(id);
