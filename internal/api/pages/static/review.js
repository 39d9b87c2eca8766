// The step before sealing: the person sees the input as it would be sealed, and what is final.

import { element, once } from './dom.js';
import { REVIEW } from './texts.js';

/** Shows the review. words: the input as nodes; doubts: lines that the person has to confirm; back: returns to the form; send: seals; timed: who could read it before it opens by itself, null if the party opens by hand. */
export function review(panel, words, doubts, back, send, timed) {
  const problem = element('p', { class: 'say bad', id: 'problem', role: 'alert' });
  const meant = element('input', { type: 'checkbox', id: 'meant' });
  const button = element('button', {
    type: 'button', class: 'button', id: 'seal', onclick: () => once(button, async () => {
      problem.textContent = '';
      try {
        if (doubts.length && !meant.checked) throw new Error(REVIEW.tickFirst);
        await send();
      } catch (fault) {
        problem.textContent = fault.message;
      }
    }),
  }, REVIEW.seal);
  panel(REVIEW.title, element('div', { class: 'card', id: 'reviewed' }, words,
    doubts.length ? [element('div', { class: 'warn' }, doubts.map((line) => element('p', {}, line))),
      element('label', { class: 'choice' }, meant, element('span', {}, REVIEW.meant))] : null,
    problem, element('p', { class: 'actions' }, button, element('button', { type: 'button', class: 'second', id: 'change', onclick: back }, REVIEW.change))),
  element('p', {}, element('strong', {}, REVIEW.final), REVIEW.after, timed ? REVIEW.goesEncrypted(timed) : REVIEW.staysHere));
}
