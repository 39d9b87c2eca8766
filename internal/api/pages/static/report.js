import { known } from './algorithms.js';
import { element } from './dom.js';
import { FALSE, NONE, OPEN, PROVEN } from './verdict.js';
import { valid } from './verify.js';
import { localTime, name, names } from './words.js';

/** Shows the verdict of verifyBundle or verifyCertificate, the claims, and below them a fold with all checks. The fold is open if a check failed. */
export function showReport(container, { checks, claims, development }, certificate) {
  const good = valid(checks);
  const failed = checks.filter((check) => !check.ok).length;
  const trusted = claims[0].status === PROVEN;
  container.replaceChildren(
    element('p', { class: `verdict ${!good ? 'bad' : trusted ? 'good' : ''}` },
      element('strong', {}, !good ? 'Not valid' : trusted ? 'Valid' : `Consistent in itself, but ${development ? 'signed by a development key' : 'its issuer is not known'}`),
      element('span', {}, good
        ? `All ${checks.length} checks hold. They were made in this browser.`
        : `${failed} of ${checks.length} checks failed. Do not rely on this certificate.`)),
    ...(good ? [element('p', { class: 'hint' }, `Certificate of the deal ${certificate.deal_id}.`), statement(certificate)].filter(Boolean) : []),
    element('ul', { class: 'checks claims' }, claims.filter(({ status }) => status !== NONE).map((one) => claimed(one, certificate.parties))),
    element('details', { class: 'checked', open: !good }, element('summary', {}, 'What was checked'), element('ol', { class: 'checks' }, checks.map(row))),
  );
  container.dataset.valid = good;
  container.firstChild.scrollIntoView({ block: 'nearest' });
}

function claimed({ claim, title, status, detail, parties = [] }, labelled) {
  return element('li', { class: { [PROVEN]: 'ok', [FALSE]: 'fail', [OPEN]: 'open' }[status], 'data-claim': claim, 'data-status': status },
    element('span', { class: 'mark' }, status === OPEN ? 'not proven' : status),
    element('div', {}, element('p', { class: 'title' }, title), element('p', { class: 'detail' }, detail),
      parties.length && parties.length <= 16 ? element('ul', { class: 'detail' }, parties.map((of) => element('li', {}, labelled?.[of.party]?.label ? [name(String(labelled[of.party].label)), ` (party ${of.party}): `] : `party ${of.party}: `, of.detail))) : null));
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

/** Returns a node that says what the certificate settles. Returns null if the page does not know the form of its result. */
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
