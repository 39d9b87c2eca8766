// The pages of a random.v1 deal.

import { youOr } from './bars.js';
import { element } from './dom.js';
import { drawTime } from './facts.js';
import { checked, missing } from './inputcheck.js';
import { nonceDigest, ticketsOf } from './random.v1.js';
import { randomHex } from './seal.js';
import { COMMON, DRAW } from './texts.js';
import { localTime, name } from './words.js';

const MOST_TICKETS = 20;

export const { opens } = DRAW;

export const { title } = DRAW;

/** The page adds the beacon round to the params. */
export const declare = () => ({
  fields: element('p', { class: 'hint' }, DRAW.declare),
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
    intro: [element('p', {}, DRAW.chance(view.parties.length, localTime(drawTime(view))),
      drawTime(view) > view.reveal_deadline ? DRAW.allOpened : ' ',
      view.retention === 'purge' ? DRAW.deletes
        : DRAW.allSee)],
    fields: null,
    button: DRAW.takePart,
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
    element('p', { class: 'headline', id: 'drawn' }, winner === party ? element('strong', {}, DRAW.youAreDrawn) : DRAW.isDrawn(element('strong', {}, name(label)))),
    party === null || winner === party ? null : element('p', { id: 'not-drawn' }, DRAW.youAreNot),
    element('h2', {}, COMMON.whyFair),
    element('p', {}, view.acted_by ? DRAW.organiser : '', DRAW.lowest(localTime(drawTime(view)), beacon.round),
      drawTime(view) > view.reveal_deadline ? DRAW.sealedBefore : DRAW.knownBefore,
      !agrees ? DRAW.otherTickets
        : numbers ? DRAW.sameWinner
          : DRAW.withoutNumbers),
    element('table', { class: 'tickets' },
      element('caption', {}, labels.length > shown.length ? DRAW.firstTickets(labels.length, party !== null) : DRAW.tickets),
      element('thead', {}, element('tr', {}, DRAW.columns.map((head) => element('th', { scope: 'col' }, head)))),
      element('tbody', {}, shown.map((i) => element('tr', { class: i === party ? 'you' : null },
        element('td', {}, String(order.indexOf(i) + 1)), element('th', { scope: 'row' }, youOr(labels[i], i === party)),
        element('td', {}, element('code', {}, `${all[i].slice(0, 12)}…`)))))),
  ];
}
