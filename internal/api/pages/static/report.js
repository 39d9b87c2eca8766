import { known } from './algorithms.js';
import { element } from './dom.js';
import { statement } from './statement.js';
import { valid } from './verify.js';

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
