// The algorithms that this page verifies, one module each, as /protocol specifies them. A module has
//
//   ID, PARTIES             its id, and its least and most parties
//   result(labels, params, inputs, beacon)
//                           the certificate's `result`, or null if a party rejected. Throws if an
//                           input is invalid. Only an algorithm with a beacon uses the beacon.
//   redraw(labels, shown)   only with a beacon: the result from what the shown result contains
//   rejectors(inputs)       only if a party can reject the deal: the parties that did, ascending
//   settled(certificate)    what the certificate settles: one sentence, then the rows of a list
//
// `ID.page.js` has its forms and pictures, which only the pages of a deal load.

import * as random from './random.v1.js';
import * as shapley from './shapley.v1.js';
import * as split from './split.v1.js';

const ALL = new Map([split, random, shapley].map((one) => [one.ID, one]));

/** Returns the module of an algorithm, or undefined if this page does not know the algorithm. */
export const known = (id) => ALL.get(id);
