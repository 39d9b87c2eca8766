// The pages of a random.v1 deal.

import { youOr } from './bars.js';
import { element } from './dom.js';
import { drawTime } from './facts.js';
import { checked, missing } from './inputcheck.js';
import { nonceDigest, ticketsOf } from './random.v1.js';
import { randomHex } from './seal.js';
import { localTime, name } from './words.js';

const MOST_TICKETS = 20;

export const opens = 'Your number opens by itself';

export const title = (labels) => ['A draw between ', ...labels];

/** The page adds the beacon round to the params. */
export const declare = () => ({
  fields: element('p', { class: 'hint' }, 'The deal records neither the purpose of the draw, nor whether the party that is drawn wins or loses: agree on both first. The draw is made after both times below, even if all parties are early. Once it is made, all parties see the random numbers of all, so that each can compute it again.'),
  params: () => ({}),
});

export function check(_, input) {
  const { nonce } = input;
  if (typeof nonce !== 'string') return missing(input, 'nonce', 'a string of hex digits');
  if (new TextEncoder().encode(nonce).length > 1024) return 'input.nonce is too long: a nonce has at most 1024 hex digits';
  if (!/^[0-9a-fA-F]*$/.test(nonce)) return 'input.nonce holds a character that is not a hex digit: use only 0-9, a-f and A-F';
  return null;
}

export function form(view) {
  return {
    intro: [element('p', {}, `One of ${view.parties.length} is drawn: your chance is 1 in ${view.parties.length}. You have nothing to choose: this page makes a random number for you. The draw mixes the numbers of all parties with a value of a public beacon. The round of the beacon is already fixed: it is published at ${localTime(drawTime(view))}.`,
      drawTime(view) > view.reveal_deadline ? ' By then all have opened. ' : ' ',
      view.retention === 'purge' ? 'The service then deletes the numbers, so the outcome is the operator’s word unless the parties compare what they kept.'
        : 'Then all parties see the numbers of all, and anybody who has the proof can compute the draw again.')],
    fields: null,
    button: 'Take part in the draw',
    read: () => checked(check, view, { nonce: randomHex(32) }),
  };
}

export async function picture(view, party, inputs) {
  const labels = view.parties.map((p) => p.label);
  const { winner, label, ticket, beacon, nonce_digest: digest } = view.result;
  const all = await ticketsOf(labels, beacon, digest);
  const order = labels.map((_, i) => i).sort((a, b) => (all[a] < all[b] ? -1 : 1));
  const shown = order.filter((i, place) => place < MOST_TICKETS || i === party);
  const numbers = inputs.every(Boolean); // the page has the numbers of all parties
  const agrees = order[0] === winner && all[winner] === ticket && (!numbers || await nonceDigest(inputs) === digest);
  return [
    element('p', { class: 'headline', id: 'drawn' }, winner === party ? element('strong', {}, 'You are drawn.') : [element('strong', {}, name(label)), ' is drawn.']),
    party === null || winner === party ? null : element('p', { id: 'not-drawn' }, 'You were not drawn.'),
    element('h2', {}, 'Why it is fair'),
    element('p', {}, view.acted_by ? 'The organiser made the numbers of all, so chance comes from the beacon alone. ' : '', `Each party’s ticket follows from the numbers of all parties and from the public beacon’s value of ${localTime(drawTime(view))}, round ${beacon.round}. The lowest ticket wins.`,
      drawTime(view) > view.commits_closed_at ? ' By the times that the service states, all numbers were sealed before that value existed.' : ' That value was public before all had sealed: whoever opened last could know the winner first.',
      !agrees ? ' This page has computed other tickets: do not rely on this result.'
        : numbers ? ' This page has computed the tickets again from the numbers of all, and found the same winner.'
          : ' This page has computed the tickets again, but without the numbers of all: their digest is the operator’s word.'),
    element('table', { class: 'tickets' },
      element('caption', {}, labels.length > shown.length ? `The first of ${labels.length} tickets${party === null ? '' : ', and yours'}` : 'The tickets, lowest first'),
      element('thead', {}, element('tr', {}, ['Place', 'Party', 'Ticket'].map((head) => element('th', { scope: 'col' }, head)))),
      element('tbody', {}, shown.map((i) => element('tr', { class: i === party ? 'you' : null },
        element('td', {}, String(order.indexOf(i) + 1)), element('th', { scope: 'row' }, youOr(labels[i], i === party)),
        element('td', {}, element('code', {}, `${all[i].slice(0, 12)}…`)))))),
  ];
}
