import { known } from './algorithms.js';
import { element } from './dom.js';
import { localTime, names } from './words.js';

/** Returns a node that says what the certificate settles. Returns null if the page does not know the algorithm or the form of its result. */
export function statement(certificate) {
  try {
    return certificate.outcome === 'VOID' ? voided(certificate) : computed(certificate);
  } catch {
    return null; // a certificate of another deployment may have a result of any form
  }
}

function computed(certificate) {
  const [what, ...rows] = known(certificate.algorithm).settled(certificate);
  return element('div', {}, element('p', {}, 'It says: on ', localTime(certificate.timing.computed_at), ' ', what), rows.length ? element('ul', {}, rows.map((row) => element('li', {}, row))) : null);
}

const REASONS = { 'void:missed-commit': 'did not seal in time', 'void:missed-reveal': 'did not open in time', 'void:rejected': 'rejected the terms' };

function voided({ parties, void_flakers: flakers, properties }) {
  const reason = properties.map((property) => REASONS[property]).find(Boolean) ?? 'did not do their part';
  return element('p', {}, 'It says: nothing was settled, since ', ...names(flakers.map((i) => parties[i].label)), ` ${reason}.`);
}
