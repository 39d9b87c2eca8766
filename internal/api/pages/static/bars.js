// What the pictures of a result share. Every bar has its number beside it, because screen readers
// skip bars.

import { element } from './dom.js';
import { name } from './words.js';

export function bar(part, mine) {
  const fill = element('span', {});
  fill.style.width = `${Math.min(Math.max(part, 0), 1) * 100}%`;
  return element('span', { class: `bar ${mine ? 'mine' : ''}`, 'aria-hidden': 'true' }, fill);
}

export const youOr = (label, mine) => [name(label), mine ? ' (you)' : ''];
