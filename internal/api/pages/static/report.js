import { known } from './algorithms.js';
import { element } from './dom.js';
import { valid } from './verify.js';
import { localTime, names } from './words.js';

/** Shows the verdict in the container, and below it a fold with all checks. The fold is open if a check failed. trusted: whether the keys come from elsewhere than the bundle. */
export function showReport(container, checks, certificate, notes = [], trusted = true) {
  const good = valid(checks);
  const failed = checks.filter((check) => !check.ok).length;
  container.replaceChildren(
    element('p', { class: `verdict ${!good ? 'bad' : trusted ? 'good' : ''}` },
      element('strong', {}, !good ? 'Not valid' : trusted ? 'Valid' : 'Consistent in itself, but its issuer is not known'),
      element('span', {}, good
        ? `All ${checks.length} checks hold. They were made in this browser.`
        : `${failed} of ${checks.length} checks failed. Do not rely on this certificate.`)),
    ...(good && known(certificate.algorithm) ? [statement(certificate)].filter(Boolean) : []),
    element('details', { class: 'checked', open: !good }, element('summary', {}, 'What was checked'), element('ol', { class: 'checks' }, checks.map(row))),
    ...(notes.length ? [element('p', {}, 'Not proven by this:'), element('ul', { class: 'unproven' }, notes.map((note) => element('li', {}, note)))] : []),
  );
  container.dataset.valid = good;
  if (good && !known(certificate?.algorithm)) {
    container.firstChild.lastChild.append(` This page does not know ${certificate.algorithm}: it verified signature and log, and did not recompute the result.`);
  }
  container.firstChild.scrollIntoView({ block: 'nearest' });
}

function row({ name, title, ok, detail, facts }) {
  return element('li', { class: ok ? 'ok' : 'fail', 'data-check': name },
    element('span', { class: 'mark' }, ok ? 'OK' : 'FAIL'),
    element('div', {},
      element('p', { class: 'title' }, title),
      element('p', { class: 'detail' }, detail),
      facts.length
        ? element('details', {}, element('summary', {}, 'Show the values', element('span', { class: 'unseen' }, ` of: ${title}`)),
          element('dl', {}, facts.map(([what, value]) => [element('dt', {}, what), element('dd', {}, value)])))
        : null));
}

/** Returns a node that says what the certificate settles. Returns null if the page does not know the algorithm or the form of its result. */
function statement(certificate) {
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
