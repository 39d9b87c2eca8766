// The forms for a party's input, one for each algorithm. A form is {intro, fields, button, read};
// a form that shows sums also has refresh. read() returns the input. If a field is wrong, read()
// focuses the field and throws an Error that says what to correct.

import { drawTime } from './describe.js';
import { element } from './dom.js';
import { algorithmOf } from './facts.js';
import { coalitions, shapley } from './algorithms.js';
import { inputProblem } from './inputcheck.js';
import { parse } from './jcs.js';
import { randomHex } from './seal.js';
import { isolated, localTime, name, percent } from './words.js';

export function formOf(view, party) {
  const make = { 'split.v1': points, 'random.v1': draw, 'shapley.v1': terms }[view.algorithm] ?? anything;
  return make(view, party);
}

/** Throws if the algorithm would refuse the input. */
function checked(view, input) {
  const problem = inputProblem(view.algorithm, algorithmOf(view.algorithm)?.max_input ?? Infinity, view.algorithm_params, input);
  if (problem) throw new Error(problem);
  return input;
}

function points(view) {
  const { items } = view.algorithm_params;
  const fields = items.map((item, i) => element('input', {
    type: 'number', inputmode: 'numeric', min: '0', step: '1', id: `points-${i}`, placeholder: '0', autocomplete: 'off', 'aria-describedby': `part-${i}`, oninput: total,
  }));
  const parts = items.map((_, i) => element('td', { id: `part-${i}`, class: 'number' }));
  const sum = element('td', { class: 'number', id: 'points-total' });
  const note = element('td', { class: 'number' });
  const valueOf = (field) => (field.value === '' && !field.validity.badInput ? 0 : field.valueAsNumber);
  function total() {
    const values = fields.map(valueOf);
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
    intro: [element('p', {}, 'Give each thing points: the more points, the more you want to get it. Only the proportions count, so any total will do; 100 is handy. A thing left empty counts 0.'),
      element('p', {}, 'Say what is true for you: ', view.mode === 'open' ? 'nobody sees your points before all are sealed. Once the result is there, the others may read them.' : 'the others never see your points, only the result.')],
    fields: element('table', { class: 'points' },
      element('caption', { class: 'unseen' }, 'Your points'),
      element('thead', {}, element('tr', {}, ['Thing', 'Points', 'Part'].map((head) => element('th', { scope: 'col', class: head === 'Part' ? 'number' : null }, head)))),
      element('tbody', {}, items.map((item, i) => element('tr', {},
        element('th', { scope: 'row' }, element('label', { for: `points-${i}` }, name(item))), element('td', {}, fields[i]), parts[i]))),
      element('tfoot', {}, element('tr', {}, element('th', { scope: 'row' }, 'Total'), sum, note))),
    refresh: total,
    button: 'Seal my points',
    read() {
      total();
      const wrong = fields.findIndex((field) => field.hasAttribute('aria-invalid'));
      if (wrong >= 0) {
        fields[wrong].focus();
        throw new Error(`The points for ${isolated(items[wrong])} ${valueOf(fields[wrong]) > Number.MAX_SAFE_INTEGER ? 'are too many' : 'must be a whole number, 0 or more'}.`);
      }
      return checked(view, { valuations: Object.fromEntries(items.map((item, i) => [item, valueOf(fields[i])])) });
    },
  };
}

function draw(view) {
  return {
    intro: [element('p', {}, `One of ${view.parties.length} is drawn. You have nothing to choose: this page makes a random number for you. The draw mixes the numbers of all parties with a value of a public beacon. The round of the beacon is already fixed: it is published at ${localTime(drawTime(view))}.`,
      drawTime(view) > view.reveal_deadline ? ' By then all have opened, so nobody can know or steer the outcome, us included.' : '')],
    fields: null,
    button: 'Take part in the draw',
    read: () => checked(view, { nonce: randomHex(32) }),
  };
}

function terms(view, party) {
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
    button: 'Seal my answer',
    read() {
      const chosen = fields.querySelector('input:checked');
      if (!chosen) {
        fields.querySelector('input').focus();
        throw new Error('Accept or reject first.');
      }
      return checked(view, { accept: chosen.value === 'true' });
    },
  };
}

function coalitionList(labels, { coalition_values: values }) {
  return element('details', {}, element('summary', {}, 'What each group is worth, as declared'),
    element('dl', { class: 'facts' }, Object.entries(values).flatMap(([key, value]) => [element('dt', {}, name(key.replaceAll(',', ' + '))), element('dd', {}, String(value))])),
    element('p', { class: 'fine' }, 'A group that is not listed is worth 0.'));
}

function anything(view) {
  const field = element('textarea', { id: 'any-input', rows: '8', spellcheck: 'false', autocomplete: 'off' });
  const known = algorithmOf(view.algorithm);
  const example = element('p', { class: 'fine' });
  if (known) example.append('For example ', element('code', {}, JSON.stringify(known.example_input)));
  else {
    fetch('/v1/algorithms').then((answer) => answer.json()).then(({ algorithms }) => {
      const vector = algorithms.find((one) => one.id === view.algorithm)?.test_vectors[0];
      if (vector) example.append('A published example: ', element('code', {}, JSON.stringify(vector.input.party_inputs[0])));
    }).catch(() => {}); // the form works without the example
  }
  return {
    intro: [element('p', {}, 'This page has no form for this algorithm. Enter your input as JSON, with whole numbers only. The page cannot check whether your input fits the rules, and a sealed input cannot be changed: compare it with the published example.')],
    fields: element('div', {}, element('label', { for: 'any-input' }, `Your input for ${isolated(view.algorithm)}`), field, example),
    button: 'Seal my input',
    read() {
      try {
        return checked(view, parse(field.value));
      } catch (fault) {
        field.focus();
        throw new Error(`The input cannot be used: ${fault.message}.`);
      }
    },
  };
}
