// What the pictures of a result share. Every bar has its number beside it, because screen readers
// skip bars.

import { element } from './dom.js';
import { COMMON } from './texts.js';
import { name } from './words.js';

export function bar(part, mine) {
  const fill = element('span', {});
  fill.style.width = `${Math.min(Math.max(part, 0), 1) * 100}%`;
  return element('span', { class: `bar ${mine ? 'mine' : ''}`, 'aria-hidden': 'true' }, fill);
}

/** Returns one bar for a thing that is divided. parts: of each party, the viewer first; each place has its colour. */
export const divided = (parts) => element('span', { class: 'bar parts-bar', 'aria-hidden': 'true' }, parts.map((part, place) => {
  const fill = element('span', { class: `place-${place % 6}` });
  fill.style.width = `${part * 100}%`;
  return fill;
}));

export const youOr = (label, mine) => [name(label), mine ? COMMON.thisIsYou : ''];
