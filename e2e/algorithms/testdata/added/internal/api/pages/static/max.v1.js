// max.v1: the largest bid wins, and the lower index of equal bids.

import { member, natural } from './exact.js';
import { name } from './words.js';

export const [ID, PARTIES] = ['max.v1', [2, 5]];

export function result(labels, params, inputs) {
  member(params, 'thing', 'string');
  const bids = inputs.map((input) => natural(member(input, 'bid', 'integer'), 'a bid'));
  const bid = Math.max(...bids);
  const winner = bids.indexOf(bid);
  return { winner, label: labels[winner], bid };
}

export const settled = ({ result: { label, bid } }) => [[name(label), ` bid most: ${bid}.`]];
