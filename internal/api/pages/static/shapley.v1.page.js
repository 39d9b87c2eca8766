// The pages of a shapley.v1 deal.

import { bar, youOr } from './bars.js';
import { element } from './dom.js';
import { checked, missing, wholeField, wholeNumber } from './inputcheck.js';
import { byteOrder, coalitions, shapley } from './shapley.v1.js';
import { name, percents } from './words.js';

export const opens = 'Your sealed answer opens by itself';

export const title = (labels) => [...labels, ' share a joint gain'];

export function declare() {
  const worths = element('div', { id: 'worths', class: 'worth-list' });
  const fields = () => [...worths.querySelectorAll('input')];
  return {
    fields: element('fieldset', {}, element('legend', {}, 'What is each group worth, working together?'),
      element('p', { class: 'hint' }, 'Whole numbers, in any unit. A group whose field is empty is worth 0.'), worths),
    offer(labels) {
      const before = new Map(fields().map((field) => [field.dataset.key, field.value]));
      worths.replaceChildren(...groups(labels).map((group, i) => {
        const [id, key] = [`worth-${i}`, coalitionKey(group)];
        return element('div', {}, element('label', { for: id }, name(group.join(' + ')), group.length === 1 ? ' alone' : ''),
          element('input', { ...wholeField, id, 'data-key': key, value: before.get(key) ?? '' }));
      }));
    },
    check: () => fields().forEach((field) => field.setCustomValidity(Number.isSafeInteger(wholeNumber(field)) ? '' : 'Give a whole number: only digits, without a comma or a point.')),
    fill: ({ coalition_values: before }) => fields().forEach((field) => { field.value = before[field.dataset.key] ?? ''; }), // keys by labels
    params: () => ({ coalition_values: Object.fromEntries(fields().map((field) => [field.dataset.key, wholeNumber(field)])) }),
  };
}

/** Returns all coalitions as lists of names, small ones first. Returns none for more than eight parties. */
function groups(names) {
  if (names.length > 8) return [];
  const all = Array.from({ length: 2 ** names.length - 1 }, (_, set) => names.filter((_, i) => (set + 1) & (1 << i)));
  return all.sort((a, b) => a.length - b.length);
}

const coalitionKey = (group) => [...group].sort((a, b) => (byteOrder(a, b) ? -1 : 1)).join(',');

export const check = (_, input) => (typeof input.accept === 'boolean' ? null : missing(input, 'accept', 'true, or false to reject'));

export function form(view, party) {
  const labels = view.parties.map((p) => p.label);
  const { total, shares } = shapley(labels, view.algorithm_params);
  const worth = coalitions(labels, view.algorithm_params.coalition_values); // values of the coalitions, by bit set of members
  const choice = (value, words, more) => element('label', { class: 'choice' },
    element('input', { type: 'radio', name: 'accept', value: String(value) }), element('span', {}, words, element('span', { class: 'hint' }, more)));
  const fields = element('div', {},
    element('table', { class: 'terms' },
      element('caption', {}, 'What these terms pay'),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'Party'), element('th', { scope: 'col', class: 'number' }, 'Alone'), element('th', { scope: 'col', class: 'number' }, 'Gets'))),
      element('tbody', {}, shares.map((share) => element('tr', { class: share.party === party ? 'you' : null },
        element('th', { scope: 'row' }, name(share.label), share.party === party ? ' (you)' : ''),
        element('td', { class: 'number' }, String(worth.get(1 << share.party) ?? 0)), element('td', { class: 'number' }, String(share.payout))))),
      element('tfoot', {}, element('tr', {}, element('th', { scope: 'row' }, 'All together'), element('td'), element('td', { class: 'number' }, String(total))))),
    coalitionList(labels, view.algorithm_params),
    element('fieldset', {}, element('legend', {}, 'Your answer'),
      choice(true, 'I accept these terms', 'You are paid what the table says, if all accept.'),
      choice(false, 'I reject them', 'The deal is void once your answer is opened, and the certificate names you.')));
  return {
    intro: [element('p', {}, 'The worth of each group is declared, so the outcome is known already. Each gets the average of what it adds to the others, over every order in which they could join.')],
    fields,
    button: 'Review my answer',
    doubts: () => [],
    read() {
      const chosen = fields.querySelector('input:checked');
      if (!chosen) {
        fields.querySelector('input').focus();
        throw new Error('Accept or reject first.');
      }
      return checked(check, view, { accept: chosen.value === 'true' });
    },
  };
}

export const own = (_, { accept }) => element('p', {}, element('strong', {}, accept ? 'You accept these terms.' : 'You reject these terms: the deal becomes void.'));

function coalitionList(labels, { coalition_values: values }) {
  return element('details', {}, element('summary', {}, 'What each group is worth, as declared'),
    element('dl', { class: 'facts' }, Object.entries(values).flatMap(([key, value]) => [element('dt', {}, name(key.replaceAll(',', ' + '))), element('dd', {}, String(value))])),
    element('p', { class: 'fine' }, 'A group that is not listed is worth 0.'));
}

export function picture(view, party) {
  const labels = view.parties.map((p) => p.label);
  const { total: sum, shares } = view.result;
  const parts = sum > 0 && shares.every((share) => share.payout >= 0) ? percents(shares.map((share) => share.payout / sum)) : null; // of the whole
  const alone = coalitions(labels, view.algorithm_params.coalition_values);
  return [
    element('p', { class: 'headline' }, 'You get ', element('strong', {}, String(shares[party].payout)), ` of ${sum}.`),
    element('ul', { class: 'shares' }, shares.map((share, i) => element('li', { class: share.party === party ? 'you' : null },
      element('span', { class: 'what' }, youOr(share.label, share.party === party)), bar(parts ? share.payout / sum : 0, share.party === party),
      element('span', { class: 'figure' }, parts ? `${parts[i]}: ` : '', share.share === String(share.payout) ? String(share.payout) : `${share.payout} (exactly ${share.share})`)))),
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
