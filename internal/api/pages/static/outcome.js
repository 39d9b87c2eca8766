// The panel of an ended deal: a picture of the result, the party's own input, the bundle, its verification in this browser,
// and the consent to show this party's input to the others.

import { element, once } from './dom.js';
import { sightOf } from './facts.js';
import { openingsIn, verifyText } from './submitted.js';
import { parse } from './jcs.js';
import { again, saveFile } from './keep.js';
import { COMMON, RESULT } from './texts.js';
import { names } from './words.js';

let shown = ''; // identifies the panel on the page by state and certificate

/** Shows the panel of an ended deal. page: from pageOf; own: the party's input in this browser; consented: keeps that the party has consented; end: the content below the proof. */
export async function showResult({ view, party, page, seat, own, consented, end }, panel) {
  const key = `${view.state === 'VOID'} ${view.certificate_id}`;
  if (key === shown) return;
  shown = key;
  const inputs = view.parties.map(() => null);
  if (own) inputs[party] = own.input;
  let sight = sightOf(view);
  let missing = null; // the parties that have not consented; null if the page does not know
  try {
    if (sight === 'consent' && own?.consented) missing = await consent(seat, own);
    if (missing?.length === 0) sight = 'all';
    if (sight === 'all') for (const row of parse(await seat.fetch('inputs'), 40).inputs) inputs[row.party] = row.input;
  } catch { /* the picture shows what is known */ }
  if (shown !== key) return; // a newer state replaced the panel
  const result = view.state === 'VOID'
    ? [element('p', {}, RESULT.voidMeans(view.commits_closed_at), tryAgain(view, party))]
    : await page.picture(view, party, inputs);
  if (shown !== key) return;
  const again = () => {
    shown = '';
    showResult({ view, party, page, seat, own: { ...own, consented: true }, consented, end }, panel);
  };
  const show = sight === 'consent' ? showing({ view, party, seat, own, missing }, () => {
    consented();
    again();
  }) : null;
  panel(view.state === 'VOID' ? RESULT.void : COMMON.result, result, own && page.own ? element('details', { id: 'own-input' }, element('summary', {}, COMMON.whatYouSealed), page.own(view, own.input)) : null, view.certificate_id ? proof({ view, party, seat, own, sight, show }) : element('p', {}, RESULT.signing), end);
}

/** Returns a link to a new deal with the same terms, which this party makes. The new deal has links of its own. */
export const tryAgain = ({ deal_id: deal, algorithm, algorithm_params: params, mode, retention, title, message, parties, contents_deleted: deleted }, party) => deleted ? null : element('a', {
  href: '/new', id: 'try-again', onclick: () => again.set('', { deal, algorithm, params, mode, retention, title, message, names: [parties[party], ...parties.filter((p) => p.index !== party)].map((p) => p.label) }),
}, RESULT.tryAgain);

/** Consents, or repeats the consent. Returns the parties that have not consented. */
async function consent(seat, { input, salt }) {
  const answer = await seat.act('disclose', { input, salt });
  if (!answer.ok) throw new Error(answer.json?.error ?? RESULT.noConsent);
  return answer.json.missing;
}

/** Returns the buttons that save and verify the bundle, and what lets all parties check a sealed deal. */
function proof({ view, party, seat, own, sight, show }) {
  const report = element('div', { class: 'report', id: 'report', 'aria-live': 'polite' });
  const saved = element('p', { class: 'hint', id: 'saved', role: 'status' });
  const files = element('input', { type: 'file', id: 'openings', multiple: true, accept: '.json,application/json' });
  const act = (id, words, does) => element('button', {
    type: 'button', class: 'second', id, onclick: (event) => once(event.target, async () => {
      try {
        await does(await seat.fetch('bundle?openings=1')); // with the openings of any size
      } catch (fault) {
        report.replaceChildren(element('p', { class: 'say bad' }, fault.message));
      }
    }),
  }, words);
  return [
    element('h2', {}, COMMON.proof),
    element('p', {}, COMMON.proves, view.state === 'VOID' ? RESULT.missedDeadline : RESULT.proves[sight]),
    element('p', { class: 'actions' },
      act('save-bundle', COMMON.saveProof, (text) => {
        const file = `fairpact-${view.deal_id}-proof.json`;
        saveFile(file, text);
        saved.textContent = RESULT.saved(file, location.host + location.pathname);
      }),
      act('verify-bundle', COMMON.check, async (text) => verifyText(withInput(text, own), report, { known: new Map(own?.seat_key ? [[party, own.seat_key.public]] : []), openings: await openingsIn(files), deal: seat.deal }))),
    element('p', { class: 'hint' }, RESULT.whoseKeys(location.host, element('a', { href: '/#verify' }, COMMON.wholeVerifier))),
    saved, report, show,
    sight === 'consent' || (sight === 'nobody' && view.state !== 'VOID') ? exchange(view, party, own, files) : null,
  ];
}

/** Returns the offer to show this party's input to the other parties. */
function showing({ view, party, seat, own, missing }, done) {
  const title = element('h2', {}, RESULT.letAllCheck);
  if (missing) {
    return element('div', { id: 'showing' }, title, element('p', { id: 'missing' }, RESULT.consented(names(missing.map((i) => view.parties[i].label)))));
  }
  if (!own) return element('div', { id: 'showing' }, title, element('p', {}, RESULT.consentElsewhere));
  const problem = element('p', { class: 'say bad', role: 'alert' });
  return element('div', { id: 'showing' }, title,
    element('p', {}, RESULT.consentMeans),
    element('p', { class: 'actions' }, element('button', {
      type: 'button', class: 'second', id: 'disclose', onclick: (event) => once(event.target, async () => {
        try {
          await consent(seat, own);
          done();
        } catch (fault) {
          problem.textContent = fault.message;
        }
      }),
    }, RESULT.consent)), problem);
}

/** Returns the exchange of openings without the service. */
function exchange(view, party, own, files) {
  return element('details', { id: 'exchange' }, element('summary', {}, RESULT.exchange),
    element('p', {}, RESULT.exchangeMeans),
    own ? element('p', { class: 'actions' }, element('button', {
      type: 'button', class: 'second', id: 'save-opening', onclick: () => saveFile(`fairpact-${view.deal_id}-opening-${party}.json`, JSON.stringify({ deal_id: view.deal_id, party, input: own.input, salt: own.salt }, null, 2)),
    }, RESULT.saveOpening), element('span', { class: 'hint' }, RESULT.saveOpeningHint)) : null,
    element('label', { for: 'openings' }, RESULT.openings, element('span', { class: 'hint' }, RESULT.openingsHint)), files);
}

/** Returns the bundle with the party's input, so that the verification checks the input too. Returns it unchanged if own is not set. */
function withInput(text, own) {
  if (!own) return text;
  const bundle = parse(text, 40);
  if (bundle.own_input) Object.assign(bundle.own_input, { input: own.input, salt: own.salt });
  return JSON.stringify(bundle);
}
