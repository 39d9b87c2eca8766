// The pages of a shapley.v1 deal.

import { bar, youOr } from './bars.js';
import { element } from './dom.js';
import { checked, missing, wholeField, wholeNumber } from './inputcheck.js';
import { byteOrder, coalitions, shapley } from './shapley.v1.js';
import { name, names, percents } from './words.js';

export const opens = 'Your sealed answer opens by itself';

export const title = (labels) => [...labels, ' share a joint gain'];

export function declare() {
  const worths = element('div', { id: 'worths', class: 'worth-list' });
  const preview = element('div', { id: 'preview', role: 'status' });
  const choice = element('select', { id: 'group' });
  const more = element('div', { class: 'actions' }, element('label', { for: 'group', class: 'unseen' }, 'Another group'), choice,
    element('button', { type: 'button', class: 'second', id: 'add-group', onclick: () => add(choice.value) }, 'Add this group'));
  let labels = [];
  const fields = () => [...worths.querySelectorAll('input')];
  const fieldOf = (key) => fields().find((field) => field.dataset.key === key);
  const alone = (label) => wholeNumber(fieldOf(label)) || 0;
  const values = () => Object.fromEntries(groups(labels).map((group) => {
    const field = fieldOf(coalitionKey(group));
    return [coalitionKey(group), field && (field.value.trim() || group.length === 1) ? wholeNumber(field) : group.reduce((sum, label) => sum + alone(label), 0)];
  }));

  /** Shows the fields of each party, of the added groups and of all together, and keeps what was typed. */
  function offer(parties, added = fields().map((field) => field.dataset.key).filter((key) => key !== coalitionKey(labels))) {
    const before = new Map(fields().map((field) => [field.dataset.key, field.value]));
    if (labels.length > 1) before.set(coalitionKey(parties), before.get(coalitionKey(labels)) ?? ''); // what all are worth, whoever they are
    labels = parties;
    const all = groups(labels);
    const shown = all.filter((group) => group.length === 1 || group.length === labels.length || added.includes(coalitionKey(group)));
    worths.replaceChildren(...shown.map((group, i) => element('div', {}, element('label', { for: `worth-${i}` }, group.length === labels.length && group.length > 1 ? 'All together' : [name(group.join(' + ')), group.length === 1 ? ' alone' : '']),
      element('input', { ...wholeField, id: `worth-${i}`, 'data-key': coalitionKey(group), value: before.get(coalitionKey(group)) ?? '' }))));
    const rest = all.filter((group) => !shown.includes(group));
    choice.replaceChildren(...rest.map((group) => element('option', { value: coalitionKey(group) }, group.join(' + '))));
    more.hidden = rest.length === 0;
    show();
  }

  function add(key) {
    offer(labels, [...fields().map((field) => field.dataset.key), key]);
    fieldOf(key)?.focus();
  }

  function show() {
    if (labels.length < 2 || labels.length > 8 || new Set(labels).size < labels.length || labels.some((label) => label.includes(',')) || fields().some((field) => !Number.isSafeInteger(wholeNumber(field)))) return preview.replaceChildren();
    const { total, shares } = shapley(labels, { coalition_values: values() });
    const worse = shares.filter((share) => share.payout < alone(share.label)).map((share) => share.label);
    return preview.replaceChildren(...(total > 0 ? [element('p', {}, 'Each would get: ', element('span', { id: 'would-get' }, shares.flatMap((share, i) => [i ? ', ' : '', name(share.label), ` ${share.payout}`])), ` of ${total}.`)] : []),
      ...(worse.length ? [element('p', { class: 'warn' }, ...names(worse), ' would get less than alone, and may reject these terms.')] : []));
  }

  worths.addEventListener('input', show);
  return {
    fields: element('fieldset', {}, element('legend', {}, 'What is each worth alone, and all together?'),
      element('p', { class: 'hint' }, 'Whole numbers, in any unit. If a smaller group is worth more than its members alone, add it. A group that you do not add counts as what its members are worth alone.'), worths, more, preview),
    offer,
    check: () => fields().forEach((field) => {
      const all = field.dataset.key === coalitionKey(labels);
      field.setCustomValidity(!Number.isSafeInteger(wholeNumber(field)) ? 'Give a whole number: only digits, without a comma or a point.' : all && wholeNumber(field) === 0 ? 'Say what all are worth together: of 0 there is nothing to share.' : '');
    }),
    fill({ coalition_values: before }) { // keys by labels
      const kept = groups(labels).filter((group) => before[coalitionKey(group)] !== group.reduce((sum, label) => sum + (before[label] ?? 0), 0));
      offer(labels, kept.map(coalitionKey));
      fields().forEach((field) => { field.value = before[field.dataset.key] ?? ''; });
      show();
    },
    params: () => ({ coalition_values: values() }),
  };
}

/** Returns all coalitions as lists of names, small ones first. Returns none for more than eight parties. */
function groups(labels) {
  if (labels.length > 8) return [];
  const all = Array.from({ length: 2 ** labels.length - 1 }, (_, set) => labels.filter((_, i) => (set + 1) & (1 << i)));
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
    party === null ? null : element('p', { class: 'headline' }, 'You get ', element('strong', {}, String(shares[party].payout)), ` of ${sum}.`),
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
