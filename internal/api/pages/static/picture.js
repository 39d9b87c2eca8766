// Draws the result: who gets what, and why that is fair. Every bar has its number beside it,
// because screen readers skip bars.

import { coalitions, ticketsOf } from './algorithms.js';
import { drawTime } from './describe.js';
import { element } from './dom.js';
import { localTime, name, percent, ratio } from './words.js';

const MOST_TICKETS = 20;

/** Returns the nodes that show the result. inputs: by party, null for unknown ones. */
export async function picture(view, party, inputs) {
  const labels = view.parties.map((p) => p.label);
  const draw = { 'split.v1': division, 'random.v1': tickets, 'shapley.v1': payouts }[view.algorithm];
  if (!draw) return [element('pre', {}, JSON.stringify(view.result, null, 2))];
  return draw(view, labels, party, inputs);
}

function bar(part, mine) {
  const fill = element('span', {});
  fill.style.width = `${Math.min(Math.max(part, 0), 1) * 100}%`;
  return element('span', { class: `bar ${mine ? 'mine' : ''}`, 'aria-hidden': 'true' }, fill);
}

const youOr = (label, mine) => [name(label), mine ? ' (you)' : ''];

function division(view, labels, party, inputs) {
  const { shares } = view.result;
  const mine = shares[party];
  const order = [mine, ...shares.filter((share) => share.party !== party)];
  const cards = order.map((share) => element('li', { class: share.party === party ? 'you' : null },
    element('h3', {}, youOr(share.label, share.party === party)),
    share.items.length
      ? element('ul', { class: 'shares' }, share.items.map(({ item, share: part }) => element('li', {},
        element('span', { class: 'what' }, name(item)), bar(ratio(part), share.party === party),
        element('span', { class: 'figure' }, part === '1' ? 'all of it' : `${percent(ratio(part))} (${part})`))))
      : element('p', {}, 'Nothing.'),
    element('p', { class: 'worth' }, `Worth ${percent(share.value_ppb / 1e9)} of everything, by ${share.party === party ? 'your own' : 'their own'} points.`)));
  return [
    element('p', { class: 'headline' }, 'You get what is worth ', element('strong', {}, percent(mine.value_ppb / 1e9)), ' of everything to you.'),
    element('ul', { class: 'cards' }, cards),
    shares.some(({ items }) => items.some(({ share: part }) => part !== '1')) ? element('p', {}, 'If you share a thing: take turns, sell it, or let one party keep it and pay the others for their parts.') : '',
    ...fairDivision(view, labels, party, inputs),
  ];
}

/** Returns the rule of the division and a table. The table shows what each share is worth to each party whose input is known. */
function fairDivision(view, labels, party, inputs) {
  const { shares, method } = view.result;
  const judges = labels.map((_, i) => i).filter((i) => total(inputs[i]) > 0);
  const rule = element('p', {}, method === 'adjusted_winner'
    ? 'The things are put in order by how much more the first party values them than the second party. The first party takes things from the top, and the second party from the bottom. They meet where both have the same part of their own points, so at most one thing with points is cut. A thing without points is halved. So each party with points has at least half by its own points, and neither would rather have the other’s part.'
    : `First, each party’s points are scaled to the same total. Then each thing is shared in proportion to the points that the parties gave it; a thing without points is shared equally. So each party with points gets at least ${percent(1 / labels.length)} of everything, by its own points.`);
  if (judges.length === 0) return [element('h2', {}, 'Why it is fair'), rule];
  const worthOf = (judge, owner) => shares[owner].items.reduce((sum, { item, share }) => sum + ratio(share) * (valuations(inputs[judge])[item] ?? 0), 0) / total(inputs[judge]);
  const columns = [party, ...labels.map((_, i) => i).filter((i) => i !== party)];
  return [
    element('h2', {}, 'Why it is fair'), rule,
    element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'What each part is worth' }, element('table', { class: 'worths' },
      element('caption', {}, judges.length === 1 ? 'What each part is worth, by your points' : 'What each part is worth, by the points of each'),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'By the points of'), columns.map((i) => element('th', { scope: 'col' }, i === party ? 'your part' : ['part of ', name(labels[i])])))),
      element('tbody', {}, columns.filter((i) => judges.includes(i)).map((judge) => element('tr', { class: judge === party ? 'you' : null },
        element('th', { scope: 'row' }, youOr(labels[judge], judge === party)),
        columns.map((owner) => element('td', { class: owner === judge ? 'own' : null }, bar(worthOf(judge, owner), judge === party), element('span', { class: 'figure' }, percent(worthOf(judge, owner)))))))))),
    judges.length === 1 ? element('p', { class: 'fine' }, 'The points of the others stay sealed for ever: the deal is private.') : null,
  ].filter(Boolean);
}

const valuations = (input) => input?.valuations ?? {};
const total = (input) => Object.values(valuations(input)).reduce((sum, value) => sum + value, 0);

async function tickets(view, labels, party) {
  const { winner, label, ticket, beacon, nonce_digest: digest } = view.result;
  const all = await ticketsOf(labels, beacon, digest);
  const order = labels.map((_, i) => i).sort((a, b) => (all[a] < all[b] ? -1 : 1));
  const shown = order.filter((i, place) => place < MOST_TICKETS || i === party);
  const agrees = order[0] === winner && all[winner] === ticket;
  return [
    element('p', { class: 'headline' }, winner === party ? element('strong', {}, 'You are drawn.') : [element('strong', {}, name(label)), ' is drawn.']),
    element('h2', {}, 'Why it is fair'),
    element('p', {}, `Each party’s ticket follows from the numbers of all parties and from the public beacon’s value of ${localTime(drawTime(view))}, round ${beacon.round}. The lowest ticket wins.`,
      drawTime(view) > view.commits_closed_at ? ' All numbers were sealed before that value existed.' : ' That value was public before all had sealed: whoever opened last could know the winner first.',
      agrees ? ' This page has computed the tickets again and found the same winner.' : ' This page has computed other tickets: do not rely on this result.'),
    element('table', { class: 'tickets' },
      element('caption', {}, labels.length > shown.length ? `The first of ${labels.length} tickets, and yours` : 'The tickets, lowest first'),
      element('thead', {}, element('tr', {}, ['Place', 'Party', 'Ticket'].map((head) => element('th', { scope: 'col' }, head)))),
      element('tbody', {}, shown.map((i) => element('tr', { class: i === party ? 'you' : null },
        element('td', {}, String(order.indexOf(i) + 1)), element('th', { scope: 'row' }, youOr(labels[i], i === party)),
        element('td', {}, element('code', {}, `${all[i].slice(0, 12)}…`)))))),
  ];
}

function payouts(view, labels, party) {
  const { total: sum, shares } = view.result;
  const most = Math.max(1, ...shares.map((share) => Math.abs(share.payout)));
  const alone = coalitions(labels, view.algorithm_params.coalition_values);
  return [
    element('p', { class: 'headline' }, 'You get ', element('strong', {}, String(shares[party].payout)), ` of ${sum}.`),
    element('ul', { class: 'shares' }, shares.map((share) => element('li', { class: share.party === party ? 'you' : null },
      element('span', { class: 'what' }, youOr(share.label, share.party === party)), bar(share.payout / most, share.party === party),
      element('span', { class: 'figure' }, share.share === String(share.payout) ? String(share.payout) : `${share.payout} (exactly ${share.share})`)))),
    element('h2', {}, 'Why it is fair'),
    element('p', {}, 'Each gets the average of what it adds to the others, over every order in which they could join (the Shapley value). The payouts sum to the whole. Parties that add the same get the same, up to rounding, and a party that adds nothing gets nothing.'),
    element('table', { class: 'terms' },
      element('caption', {}, 'What joining is worth'),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'Party'), ['Alone', 'Gets', 'More'].map((head) => element('th', { scope: 'col', class: 'number' }, head)))),
      element('tbody', {}, shares.map((share) => element('tr', { class: share.party === party ? 'you' : null },
        element('th', { scope: 'row' }, youOr(share.label, share.party === party)),
        [alone.get(1 << share.party) ?? 0, share.payout, share.payout - (alone.get(1 << share.party) ?? 0)].map((value) => element('td', { class: 'number' }, String(value))))))),
  ];
}
