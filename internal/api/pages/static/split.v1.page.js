// The pages of a split.v1 deal.

import { bar, divided, youOr } from './bars.js';
import { element } from './dom.js';
import { MOST, checked, lines, listed, missing, quoted, repeated, wholeField, wholeNumber } from './inputcheck.js';
import { encode, isObject } from './jcs.js';
import { COMMON, SPLIT } from './texts.js';
import { isolated, name, names, percent, percents, ratio, series } from './words.js';

export const { opens } = SPLIT;

export const title = (labels, { items }) => SPLIT.title(labels, items.length > 4 ? [SPLIT.things(items.length)] : names(items));

export function declare() {
  const hint = element('p', { class: 'hint', role: 'status' });
  const items = element('textarea', { id: 'items', class: 'plain', rows: '4', required: true, autocomplete: 'off' });
  return {
    offer: (labels) => { hint.textContent = labels.length > 2 ? SPLIT.manyParties(labels.length) : ''; },
    fields: [element('label', { for: 'items' }, SPLIT.items, element('span', { class: 'hint' }, SPLIT.itemsHint)), items, hint],
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
    sum.textContent = Number.isNaN(all) ? SPLIT.wholeOnly : String(all);
    note.textContent = all > 0 ? '100 %' : '';
  }
  total();
  return {
    intro: [element('p', { id: 'what-happens' }, whatHappens(items, view.parties.length)),
      element('p', {}, SPLIT.givePoints),
      element('p', {}, SPLIT.keepSecret, view.mode === 'open' && view.retention !== 'purge' ? SPLIT.allSeePoints
        : SPLIT.onlyResult(SPLIT.givenAway(items.length)))],
    fields: element('table', { class: 'points' },
      element('caption', { class: 'unseen' }, SPLIT.yourPoints),
      element('thead', {}, element('tr', {}, SPLIT.columns.map((head, i) => element('th', { scope: 'col', class: i === 2 ? 'number' : null }, head)))),
      element('tbody', {}, items.map((item, i) => element('tr', {},
        element('th', { scope: 'row' }, element('label', { for: `points-${i}` }, name(item))), element('td', {}, fields[i]), parts[i]))),
      element('tfoot', {}, element('tr', {}, element('th', { scope: 'row' }, SPLIT.total), sum, note))),
    refresh: total,
    button: SPLIT.review,
    doubts() {
      if (fields.every((field) => wholeNumber(field) === 0)) return [SPLIT.noPoints];
      const empty = items.filter((_, i) => fields[i].value.trim() === '');
      return empty.length ? [SPLIT.leftEmpty(names(empty), empty.length)] : [];
    },
    read() {
      total();
      const wrong = fields.findIndex((field) => field.hasAttribute('aria-invalid'));
      if (wrong >= 0) {
        fields[wrong].focus();
        throw new Error(wholeNumber(fields[wrong]) > MOST ? SPLIT.tooMany(isolated(items[wrong])) : SPLIT.notWhole(isolated(items[wrong]), fields[wrong].value.trim()));
      }
      return checked(check, view, { valuations: Object.fromEntries(items.map((item, i) => [item, wholeNumber(fields[i])])) });
    },
  };
}

export function own({ algorithm_params: { items } }, input) {
  const sum = total(input);
  const row = (what, points) => element('tr', {}, element('th', { scope: 'row' }, what), element('td', { class: 'number' }, String(points)), element('td', { class: 'number' }, sum > 0 ? percent(points / sum) : ''));
  return element('table', { class: 'points' },
    element('caption', { class: 'unseen' }, SPLIT.yourPoints),
    element('thead', {}, element('tr', {}, SPLIT.columns.map((head, i) => element('th', { scope: 'col', class: i === 0 ? null : 'number' }, head)))),
    element('tbody', {}, items.map((item) => row(name(item), valuations(input)[item] ?? 0))),
    element('tfoot', {}, row(SPLIT.total, sum)));
}

export function picture(view, party, inputs) {
  const labels = view.parties.map((p) => p.label);
  const { shares } = view.result;
  const order = viewerFirst(labels, party);
  const things = view.algorithm_params.items.map((item) => {
    const parts = order.map((i) => shares[i].items.find((one) => one.item === item)?.share ?? '0');
    const figures = percents(parts.map(ratio));
    const who = order.flatMap((i, place) => (parts[place] === '0' ? [] : [[youOr(labels[i], i === party), parts[place] === '1' ? SPLIT.allOfIt : SPLIT.partOfIt(figures[place], parts[place])]]));
    return element('li', {}, element('span', { class: 'what' }, name(item)), divided(parts.map(ratio)), element('span', { class: 'figure' }, who.flatMap((one, i) => [i ? ', ' : '', one])));
  });
  return [
    party === null ? null : element('p', { class: 'headline' }, SPLIT.youGet(element('strong', {}, percent(shares[party].value_ppb / 1e9)))),
    party === null ? null : wanted(view.algorithm_params.items, shares[party], inputs[party]),
    element('ul', { class: 'shares things' }, things),
    element('ul', {}, order.slice(party === null ? 0 : 1).map((i) => element('li', {}, SPLIT.othersGet(name(labels[i]), percent(shares[i].value_ppb / 1e9), name(labels[i]))))),
    shares.some(({ items }) => items.some(({ share: part }) => part !== '1')) ? element('p', {}, SPLIT.ifShared) : '',
    ...fairDivision(view, labels, party, inputs),
  ];
}

/** Says what the party wanted most and what it gets of that, or returns null without its points. */
function wanted(items, { items: got }, input) {
  if (!total(input)) return null;
  const points = (item) => valuations(input)[item] ?? 0;
  const most = items.reduce((best, item) => (points(item) > points(best) ? item : best));
  const part = got.find(({ item }) => item === most)?.share;
  return element('p', { id: 'wanted' }, SPLIT.youWanted(name(most), points(most), total(input), part));
}

/** Returns the rule of the division and a table. The table shows what each share is worth to each party whose input is known. */
function fairDivision(view, labels, party, inputs) {
  const { shares, method } = view.result;
  const judges = labels.map((_, i) => i).filter((i) => total(inputs[i]) > 0);
  const [first, second] = labels.map(name);
  const rule = method === 'adjusted_winner'
    ? element('p', {}, SPLIT.inOrder(first, second, name(labels[0]), name(labels[1])))
    : element('p', {}, SPLIT.inProportion(percent(1 / labels.length)));
  if (judges.length === 0) return [element('h2', {}, COMMON.whyFair), rule];
  const worthOf = (judge, owner) => shares[owner].items.reduce((sum, { item, share }) => sum + ratio(share) * (valuations(inputs[judge])[item] ?? 0), 0) / total(inputs[judge]);
  const columns = viewerFirst(labels, party);
  return [
    element('h2', {}, COMMON.whyFair), rule,
    element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': SPLIT.worths }, element('table', { class: 'worths' },
      element('caption', {}, judges.length === 1 ? SPLIT.worthsByYou : SPLIT.worthsByEach),
      element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, SPLIT.byPointsOf), columns.map((i) => element('th', { scope: 'col' }, i === party ? SPLIT.yourPart : SPLIT.partOf(name(labels[i])))))),
      element('tbody', {}, columns.filter((i) => judges.includes(i)).map((judge) => element('tr', { class: judge === party ? 'you' : null },
        element('th', { scope: 'row' }, youOr(labels[judge], judge === party)),
        columns.map((owner) => element('td', { class: owner === judge ? 'own' : null }, bar(worthOf(judge, owner), judge === party), element('span', { class: 'figure' }, percent(worthOf(judge, owner)))))))))),
    judges.length === 1 ? element('p', { class: 'fine' }, SPLIT.notShown(SPLIT.givenAway(view.algorithm_params.items.length))) : null,
  ].filter(Boolean);
}

/** Says how the things are divided, before anybody seals. */
const whatHappens = (items, parties) => (parties > 2 ? SPLIT.sharedOut(parties, items.length) : SPLIT.oneIsCut(items.length > 1 && items.length <= 6 ? series(items.map(name), SPLIT.or) : []));

/** Returns the indexes of the parties, that of the viewer first. party: null for an audience. */
const viewerFirst = (labels, party) => [...(party === null ? [] : [party]), ...labels.map((_, i) => i).filter((i) => i !== party)];

const valuations = (input) => input?.valuations ?? {};
const total = (input) => Object.values(valuations(input)).reduce((sum, value) => sum + value, 0);
