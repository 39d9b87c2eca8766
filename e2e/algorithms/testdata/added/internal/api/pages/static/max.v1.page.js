// The pages of a max.v1 deal.

import { element } from './dom.js';
import { MOST, checked, missing } from './inputcheck.js';
import { name } from './words.js';

export const title = (labels, { thing }) => [...labels, ' bid for ', name(thing)];

export function declare() {
  const thing = element('input', { id: 'thing', required: true });
  return { fields: [element('label', { for: 'thing' }, 'What is sold?'), thing], params: () => ({ thing: thing.value }) };
}

export function check(_, { bid, ...rest }) {
  if (!Number.isSafeInteger(bid)) return missing(bid === undefined ? rest : { bid }, 'bid', 'a non-negative integer');
  return bid < 0 ? `input.bid must be an integer of 0 to ${MOST}` : null;
}

export function form(view) {
  const bid = element('input', { type: 'number', id: 'bid' });
  return { intro: [], fields: [element('label', { for: 'bid' }, 'Your bid'), bid], button: 'Seal my bid', read: () => checked(check, view, { bid: bid.valueAsNumber }) };
}

export const picture = ({ result }) => [element('p', { class: 'headline' }, name(result.label), ` pays ${result.bid}.`)];
