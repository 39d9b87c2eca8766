// The pages of a deal whose algorithm has no module ID.page.js: JSON. Each such module has
//
//   title(labels, params, id)     one sentence about what the deal settles; labels are nodes
//   opens                         what opens by itself: the subject and the verb
//   declare(id)                   the part of the form for a new deal: {fields, params(), check(), offer(labels), fill(params)};
//                                 check marks wrong fields, offer follows the names, fill enters params; these may be missing
//   check(params, input)          what is wrong with an input, or null
//   form(view, party)             the form for a party's input: {intro, fields, button, read(), doubts(), refresh()}. read returns
//                                 the input, or focuses the wrong field and throws; doubts are lines that the person confirms; refresh may be missing
//   own(view, input)              nodes that show the party its own input; without it there is nothing to review
//   picture(view, party, inputs)  nodes that show the result; party is null for an audience; inputs are by party, null for unknown ones

import { element } from './dom.js';
import { algorithmOf } from './facts.js';
import { checked } from './inputcheck.js';
import { INPUT_DEPTH, parse } from './jcs.js';
import { GENERIC } from './texts.js';
import { isolated } from './words.js';

export const { opens } = GENERIC;

export const title = (labels, _, id) => GENERIC.title(labels, element('code', {}, id));

export function declare(id) {
  const params = element('textarea', { id: 'params', rows: '5', spellcheck: 'false', autocomplete: 'off', placeholder: JSON.stringify(algorithmOf(id).example_params) });
  return {
    fields: [element('label', { for: 'params' }, GENERIC.params, element('span', { class: 'hint' }, GENERIC.paramsHint)), params],
    params: () => parse(params.value),
    fill: (before) => { params.value = JSON.stringify(before); },
  };
}

const check = () => null;

export function form(view) {
  const field = element('textarea', { id: 'any-input', rows: '8', spellcheck: 'false', autocomplete: 'off' });
  const known = algorithmOf(view.algorithm);
  const example = element('p', { class: 'fine' });
  if (known) example.append(GENERIC.example, element('code', {}, JSON.stringify(known.example_input)));
  else {
    fetch('/v1/algorithms').then((answer) => answer.json()).then(({ algorithms }) => {
      const vector = algorithms.find((one) => one.id === view.algorithm)?.test_vectors[0];
      if (vector) example.append(GENERIC.published, element('code', {}, JSON.stringify(vector.input.party_inputs[0])));
    }).catch(() => {}); // the form works without the example
  }
  return {
    intro: [element('p', {}, GENERIC.intro)],
    fields: element('div', {}, element('label', { for: 'any-input' }, GENERIC.input(isolated(view.algorithm))), field, example),
    button: GENERIC.review,
    doubts: () => [],
    read() {
      try {
        return checked(check, view, parse(field.value, INPUT_DEPTH));
      } catch (fault) {
        field.focus();
        throw new Error(GENERIC.unusable(fault.message));
      }
    },
  };
}

export const own = (_, input) => element('pre', {}, JSON.stringify(input, null, 2));

export const picture = (view) => [element('pre', {}, JSON.stringify(view.result, null, 2))];
