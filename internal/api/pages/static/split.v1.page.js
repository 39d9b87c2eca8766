// The pages of a split.v1 deal.

import { bar, divided, youOr } from './bars.js';
import { element } from './dom.js';
import { MOST, checked, lines, listed, missing, quoted, repeated, wholeField, wholeNumber } from './inputcheck.js';
import { encode, isObject } from './jcs.js';
import { isolated, name, names, percent, percents, ratio, series } from './words.js';

export const opens = 'Your sealed points open by themselves';

export const title = (labels, { items }) => [...labels, ' divide ', ...(items.length > 4 ? [`${items.length} things`] : names(items))];

export function declare() {
  const hint = element('p', { class: 'hint', role: 'status' });
  const items = element('textarea', { id: 'items', class: 'plain', rows: '4', required: true, autocomplete: 'off' });
  return {
    offer: (labels) => { hint.textContent = labels.length > 2 ? `Between ${labels.length} parties every thing is shared out in parts. Of two, only one thing may be cut.` : ''; },
    fields: [element('label', { for: 'items' }, 'What is to be divided? ', element('span', { class: 'hint' }, 'one thing a line. A party gives more points to a thing that it wants more; for a chore, points mean “I would rather do it”')), items, hint],
    check: () => items.setCustomValidity(repeated(lines(items))),
    params: () => ({ items: lines(items) }),
    fill: ({ items: before }) => { items.value = before.join('\n'); },
  };
}

export function check({ items }, input) {
  const given = input.valuations;
  if (!isObject(given)) return missing(input, 'valuations', 'an object that maps item identifiers to non-negative integers');
  const there = items.filter((item) => Object.hasOwn(given, item));
  const wrong = there.find((item) => !(Number.isSafeInteger(given[item]) && given[item] >= 0));
  if (wrong !== undefined) {
    return given[wrong] === null ? `input.valuations: the value of item ${quoted(wrong)} is null; send an integer of 0 to ${MOST}, or leave the item out to value it at 0`
      : `input.valuations: the value of item ${quoted(wrong)} must be an integer of 0 to ${MOST}`;
  }
  const unknown = Object.keys(given).length - there.length;
  if (unknown > 0) return `input.valuations has ${unknown} member(s) that are not items of this deal; the items are ${listed(items)}`;
  return null;
}

/** The most bytes of an input in its canonical form, as split.go says. */
check.most = ({ items }) => items.reduce((bytes, item) => bytes + encode(item).length + 18, 4096);

export function form(view) {
  const { items } = view.algorithm_params;
  const fields = items.map((item, i) => element('input', {
    ...wholeField, id: `points-${i}`, placeholder: '0', 'aria-describedby': `part-${i}`, oninput: total,
  }));
  const parts = items.map((_, i) => element('td', { id: `part-${i}`, class: 'number' }));
  const sum = element('td', { class: 'number', id: 'points-total' });
  const note = element('td', { class: 'number' });
  function total() {
    const values = fields.map(wholeNumber);
    const good = values.map((v) => Number.isSafeInteger(v) && v >= 0);
    const all = good.every(Boolean) ? values.reduce((a, v) => a + v, 0) : NaN;
    fields.forEach((field, i) => {
      if (good[i]) field.removeAttribute('aria-invalid');
      else field.setAttribute('aria-invalid', 'true');
      parts[i].textContent = all > 0 ? percent(values[i] / all) : '';
    });
    sum.textContent = Number.isNaN(all) ? 'whole numbers only' : String(all);
    note.textContent = all > 0 ? '100 %' : '';
  }
  total();
  return {
    intro: [element('p', { id: 'what-happens' }, whatHappens(items, view.parties.length)),
      element('p', {}, 'Give each thing points: the more points, the more you want to get it. Only the proportions count, so any total will do; 100 is handy. A thing left empty counts 0.'),
      element('p', {}, 'Keep your points to yourself until all have sealed: whoever knows them can gain by stating others. ', view.mode === 'open' && view.retention !== 'purge' ? 'Once the result is there, all parties see the points of all.'
        : `Afterwards the service shows the others only the result, but ${givenAway(items)}.`)],
    fields: element('table', { class: 'points' },
      element('caption', { class: 'unseen' }, 'Your points'),
      element('thead', {}, element('tr', {}, ['Thing', 'Points', 'Part'].map((head) => element('th', { scope: 'col', class: head === 'Part' ? 'number' : null }, head)))),
      element('tbody', {}, items.map((item, i) => element('tr', {},
        element('th', { scope: 'row' }, element('label', { for: `points-${i}` }, name(item))), element('td', {}, fields[i]), parts[i]))),
      element('tfoot', {}, element('tr', {}, element('th', { scope: 'row' }, 'Total'), sum, note))),
    refresh: total,
    button: 'Review my points',
    doubts() {
      if (fields.every((field) => wholeNumber(field) === 0)) return ['You give no points to anything. You then get nothing that another party gives points to.'];
      const empty = items.filter((_, i) => fields[i].value.trim() === '');
      return empty.length ? [['You left ', ...names(empty), ` empty. ${empty.length === 1 ? 'It counts' : 'They count'} 0: you say that you do not want ${empty.length === 1 ? 'it' : 'them'}.`]] : [];
    },
    read() {
      total();
      const wrong = fields.findIndex((field) => field.hasAttribute('aria-invalid'));
      if (wrong >= 0) {
        fields[wrong].focus();
        throw new Error(`The points for ${isolated(items[wrong])} ${wholeNumber(fields[wrong]) > MOST ? 'are too many' : `must be a whole number, 0 or more: “${fields[wrong].value.trim()}” is not one`}.`);
      }
      return checked(check, view, { valuations: Object.fromEntries(items.map((item, i) => [item, wholeNumber(fields[i])])) });
    },
  };
}

export function own({ algorithm_params: { items } }, input) {
  const sum = total(input);
  const row = (what, points) => element('tr', {}, element('th', { scope: 'row' }, what), element('td', { class: 'number' }, String(points)), element('td', { class: 'number' }, sum > 0 ? percent(points / sum) : ''));
  return element('table', { class: 'points' },
    element('caption', { class: 'unseen' }, 'Your points'),
    element('thead', {}, element('tr', {}, ['Thing', 'Points', 'Part'].map((head) => element('th', { scope: 'col', class: head === 'Thing' ? null : 'number' }, head)))),
    element('tbody', {}, items.map((item) => row(name(item), valuations(input)[item] ?? 0))),
    element('tfoot', {}, row('Total', sum)));
}

export function picture(view, party, inputs) {
  const labels = view.parties.map((p) => p.label);
  const { shares } = view.result;
  const order = viewerFirst(labels, party);
  const things = view.algorithm_params.items.map((item) => {
    const parts = order.map((i) => shares[i].items.find((one) => one.item === item)?.share ?? '0');
    const figures = percents(parts.map(ratio));
    const who = order.flatMap((i, place) => (parts[place] === '0' ? [] : [[youOr(labels[i], i === party), parts[place] === '1' ? ': all of it' : `: ${figures[place]} (${parts[place]})`]]));
    return element('li', {}, element('span', { class: 'what' }, name(item)), divided(parts.map(ratio)), element('span', { class: 'figure' }, who.flatMap((one, i) => [i ? ', ' : '', one])));
  });
  return [
    party === null ? null : element('p', { class: 'headline' }, 'You get what is worth ', element('strong', {}, percent(shares[party].value_ppb / 1e9)), ' of everything to you.'),
    party === null ? null : wanted(view.algorithm_params.items, shares[party], inputs[party]),
    element('ul', { class: 'shares things' }, things),
    element('ul', {}, order.slice(party === null ? 0 : 1).map((i) => element('li', {}, 'What ', name(labels[i]), ` gets is worth ${percent(shares[i].value_ppb / 1e9)} of everything, by the points of `, name(labels[i]), '.'))),
    shares.some(({ items }) => items.some(({ share: part }) => part !== '1')) ? element('p', {}, 'If you share a thing: take turns, sell it, or let one party keep it and pay the others for their parts.') : '',
    ...fairDivision(view, labels, party, inputs),
  ];
}

/** Says what the party wanted most and what it gets of that, or returns null without its points. */
function wanted(items, { items: got }, input) {
  if (!total(input)) return null;
  const points = (item) => valuations(input)[item] ?? 0;
  const most = items.reduce((best, item) => (points(item) > points(best) ? item : best));
  const part = got.find(({ item }) => item === most)?.share;
  return element('p', { id: 'wanted' }, 'You wanted ', name(most), ` most, ${points(most)} of your ${total(input)} points; you get ${part === '1' ? 'all' : part ?? 'nothing'} of it.`);
}

/** Returns the rule of the division and a table. The table shows what each share is worth to each party whose input is known. */
function fairDivision(view, labels, party, inputs) {
  const { shares, method } = view.result;
  const judges = labels.map((_, i) => i).filter((i) => total(inputs[i]) > 0);
  const [first, second] = labels.map(name);
  const rule = method === 'adjusted_winner'
    ? element('p', {}, 'The things are put in order by how much more ', first, ' values them than ', second, '. ', name(labels[0]), ' takes things from the top, and ', name(labels[1]), ' from the bottom. They meet where both have the same part of their own points, so at most one thing with points is cut. A thing without points is halved. So each with points has at least half by their own points, and neither would rather have the other’s part.')
    : element('p', {}, `First, each party’s points are scaled to the same total. Then each thing is shared in proportion to the points that the parties gave it; a thing without points is shared equally. So each party with points gets at least ${percent(1 / labels.length)} of everything, by its own points.`);
  if (judges.length === 0) return [element('h2', {}, 'Why it is fair'), rule];
  const worthOf = (judge, owner) => shares[owner].items.reduce((sum, { item, share }) => sum + ratio(share) * (valuations(inputs[judge])[item] ?? 0), 0) / total(inputs[judge]);
  const columns = viewerFirst(labels, party);
  return [
    element('h2', {}, 'Why it is fair'), rule,
    element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'What each part is worth' }, element('table', { class: 'worths' },
      element('caption', {}, judges.length === 1 ? 'What each part is worth, by your points' : 'What each part is worth, by the points of each'),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'By the points of'), columns.map((i) => element('th', { scope: 'col' }, i === party ? 'your part' : ['part of ', name(labels[i])])))),
      element('tbody', {}, columns.filter((i) => judges.includes(i)).map((judge) => element('tr', { class: judge === party ? 'you' : null },
        element('th', { scope: 'row' }, youOr(labels[judge], judge === party)),
        columns.map((owner) => element('td', { class: owner === judge ? 'own' : null }, bar(worthOf(judge, owner), judge === party), element('span', { class: 'figure' }, percent(worthOf(judge, owner)))))))))),
    judges.length === 1 ? element('p', { class: 'fine' }, `The service has not shown you the points of the others, but ${givenAway(view.algorithm_params.items)}.`) : null,
  ].filter(Boolean);
}

/** Says how the things are divided, before anybody seals. */
const whatHappens = (items, parties) => (parties > 2
  ? `Between ${parties} parties every thing is shared out in parts, in proportion to the points: ${items.length === 1 ? 'the one thing becomes' : `the ${items.length} things become`} up to ${items.length * parties} parts. For what cannot be cut, people take turns, sell it and share the money, or let one keep it and pay the others: agree on that first.`
  : ['Each thing goes to whoever wants it more, compared with the other things, until both have the same part of their own points. To get there one thing may be cut in two', ...(items.length > 1 && items.length <= 6 ? [': ', ...series(items.map(name), ' or '), '.'] : ['.']), ' A thing that gets no points at all is halved.']);

/** Says what the result tells of the points of the others. */
const givenAway = ({ length }) => (length <= 2 ? 'from a result on two things all points can be computed' : 'some points can be computed from the result: the fewer things, the more');

/** Returns the indexes of the parties, that of the viewer first. party: null for an audience. */
const viewerFirst = (labels, party) => [...(party === null ? [] : [party]), ...labels.map((_, i) => i).filter((i) => i !== party)];

const valuations = (input) => input?.valuations ?? {};
const total = (input) => Object.values(valuations(input)).reduce((sum, value) => sum + value, 0);
