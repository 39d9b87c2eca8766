// The pages of a shapley.v1 deal.

import { bar, youOr } from './bars.js';
import { element } from './dom.js';
import { checked, missing, wholeField, wholeNumber } from './inputcheck.js';
import { byteOrder, coalitions, shapley } from './shapley.v1.js';
import { COMMON, SHAPLEY } from './texts.js';
import { name, names, percents } from './words.js';

export const { opens } = SHAPLEY;

export const { title } = SHAPLEY;

export function declare() {
  const worths = element('div', { id: 'worths', class: 'worth-list' });
  const preview = element('div', { id: 'preview', role: 'status' });
  const choice = element('select', { id: 'group' });
  const more = element('div', { class: 'actions' }, element('label', { for: 'group', class: 'unseen' }, SHAPLEY.anotherGroup), choice,
    element('button', { type: 'button', class: 'second', id: 'add-group', onclick: () => add(choice.value) }, SHAPLEY.addGroup));
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
    worths.replaceChildren(...shown.map((group, i) => element('div', {}, element('label', { for: `worth-${i}` }, group.length === labels.length && group.length > 1 ? SHAPLEY.all : [name(group.join(' + ')), group.length === 1 ? SHAPLEY.alone : '']),
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
    return preview.replaceChildren(...(total > 0 ? [element('p', {}, SHAPLEY.eachWouldGet(element('span', { id: 'would-get' }, shares.flatMap((share, i) => [i ? ', ' : '', name(share.label), ` ${share.payout}`])), total))] : []),
      ...(worse.length ? [element('p', { class: 'warn' }, SHAPLEY.lessThanAlone(names(worse)))] : []));
  }

  worths.addEventListener('input', show);
  return {
    fields: element('fieldset', {}, element('legend', {}, SHAPLEY.worths),
      element('p', { class: 'hint' }, SHAPLEY.worthsHint), worths, more, preview),
    offer,
    check: () => fields().forEach((field) => {
      const all = field.dataset.key === coalitionKey(labels);
      field.setCustomValidity(!Number.isSafeInteger(wholeNumber(field)) ? SHAPLEY.notWhole : all && wholeNumber(field) === 0 ? SHAPLEY.nothingToShare : '');
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
      element('caption', {}, SHAPLEY.termsPay),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, SHAPLEY.columns[0]), SHAPLEY.columns.slice(1, 3).map((head) => element('th', { scope: 'col', class: 'number' }, head)))),
      element('tbody', {}, shares.map((share) => element('tr', { class: share.party === party ? 'you' : null },
        element('th', { scope: 'row' }, name(share.label), share.party === party ? COMMON.thisIsYou : ''),
        element('td', { class: 'number' }, String(worth.get(1 << share.party) ?? 0)), element('td', { class: 'number' }, String(share.payout))))),
      element('tfoot', {}, element('tr', {}, element('th', { scope: 'row' }, SHAPLEY.all), element('td'), element('td', { class: 'number' }, String(total))))),
    coalitionList(labels, view.algorithm_params),
    element('fieldset', {}, element('legend', {}, SHAPLEY.yourAnswer),
      choice(true, ...SHAPLEY.accept),
      choice(false, ...SHAPLEY.reject)));
  return {
    intro: [element('p', {}, SHAPLEY.rule)],
    fields,
    button: SHAPLEY.review,
    doubts: () => [],
    read() {
      const chosen = fields.querySelector('input:checked');
      if (!chosen) {
        fields.querySelector('input').focus();
        throw new Error(SHAPLEY.chooseFirst);
      }
      return checked(check, view, { accept: chosen.value === 'true' });
    },
  };
}

export const own = (_, { accept }) => element('p', {}, element('strong', {}, accept ? SHAPLEY.youAccept : SHAPLEY.youReject));

function coalitionList(labels, { coalition_values: values }) {
  return element('details', {}, element('summary', {}, SHAPLEY.declared),
    element('dl', { class: 'facts' }, Object.entries(values).flatMap(([key, value]) => [element('dt', {}, name(key.replaceAll(',', ' + '))), element('dd', {}, String(value))])),
    element('p', { class: 'fine' }, SHAPLEY.notListed));
}

export function picture(view, party) {
  const labels = view.parties.map((p) => p.label);
  const { total: sum, shares } = view.result;
  const parts = sum > 0 && shares.every((share) => share.payout >= 0) ? percents(shares.map((share) => share.payout / sum)) : null; // of the whole
  const alone = coalitions(labels, view.algorithm_params.coalition_values);
  return [
    party === null ? null : element('p', { class: 'headline' }, SHAPLEY.youGet(element('strong', {}, String(shares[party].payout)), sum)),
    element('ul', { class: 'shares' }, shares.map((share, i) => element('li', { class: share.party === party ? 'you' : null },
      element('span', { class: 'what' }, youOr(share.label, share.party === party)), bar(parts ? share.payout / sum : 0, share.party === party),
      element('span', { class: 'figure' }, parts ? SHAPLEY.partOfAll(parts[i]) : '', share.share === String(share.payout) ? String(share.payout) : SHAPLEY.exactly(share.payout, share.share))))),
    element('h2', {}, COMMON.whyFair),
    element('p', {}, SHAPLEY.average),
    element('table', { class: 'terms' },
      element('caption', {}, SHAPLEY.joining),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, SHAPLEY.columns[0]), SHAPLEY.columns.slice(1).map((head) => element('th', { scope: 'col', class: 'number' }, head)))),
      element('tbody', {}, shares.map((share) => element('tr', { class: share.party === party ? 'you' : null },
        element('th', { scope: 'row' }, youOr(share.label, share.party === party)),
        [alone.get(1 << share.party) ?? 0, share.payout, share.payout - (alone.get(1 << share.party) ?? 0)].map((value) => element('td', { class: 'number' }, String(value))))))),
  ];
}
