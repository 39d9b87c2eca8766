import { element } from './dom.js';
import { localTime, name, names, percent, ratio } from './words.js';

/** Returns a node that says what the certificate settles. Returns null if the page does not know the algorithm or the form of its result. */
export function statement(certificate) {
  try {
    return certificate.outcome === 'VOID' ? voided(certificate) : WORDS[certificate.algorithm](certificate);
  } catch {
    return null; // a certificate of another deployment may have a result of any form
  }
}

const says = (certificate, ...words) => element('p', {}, 'It says: on ', localTime(certificate.timing.computed_at), ' ', ...words);

const WORDS = {
  'split.v1': (c) => element('div', {}, says(c, 'the things were divided.'),
    element('ul', {}, c.result.shares.map(({ label, items }) => element('li', {}, name(label), ': ',
      items.length ? items.map(({ item, share }, i) => [i ? ', ' : '', share === '1' ? '' : `${percent(ratio(share))} of `, name(item)]) : 'nothing')))),
  'random.v1': (c) => says(c, element('strong', {}, name(c.result.label)), ` was drawn, of ${c.parties.length}.`),
  'shapley.v1': (c) => element('div', {}, says(c, `${c.result.total} was shared.`),
    element('ul', {}, c.result.shares.map(({ label, payout }) => element('li', {}, name(label), `: ${payout}`)))),
};

const REASONS = { 'void:missed-commit': 'did not seal in time', 'void:missed-reveal': 'did not open in time', 'void:rejected': 'rejected the terms' };

function voided({ parties, void_flakers: flakers, properties }) {
  const reason = properties.map((property) => REASONS[property]).find(Boolean) ?? 'did not do their part';
  return element('p', {}, 'It says: nothing was settled, since ', ...names(flakers.map((i) => parties[i].label)), ` ${reason}.`);
}
