// The panel of an ended deal: a picture of the result, the bundle, and its verification in
// this browser.

import { element, once } from './dom.js';
import { verifyText } from './submitted.js';
import { parse } from './jcs.js';
import { saveFile } from './keep.js';

let shown = ''; // identifies the panel on the page by state and certificate

/** Shows the panel of an ended deal. page: from pageOf; own: the party's input in this browser; end: the content below the proof. */
export async function showResult({ view, party, page, seat, own, end }, panel) {
  const key = `${view.state === 'VOID'} ${view.certificate_id}`;
  if (key === shown) return;
  shown = key;
  const inputs = view.parties.map(() => null);
  if (own) inputs[party] = own.input;
  if (view.state !== 'VOID' && view.mode === 'open' && view.retention !== 'purge') {
    try {
      for (const row of parse(await seat.fetch('inputs'), 40).inputs) inputs[row.party] = row.input;
    } catch { /* the picture shows what is known */ }
    if (shown !== key) return; // a newer state replaced the panel
  }
  const result = view.state === 'VOID'
    ? [element('p', {}, `Nothing was settled. The signed certificate says who caused that.${view.commits_closed_at ? '' : ' No sealed input was opened.'} `, element('a', { href: '/new' }, 'Make a new deal'), '.')]
    : await page.picture(view, party, inputs);
  if (shown !== key) return;
  panel(view.state === 'VOID' ? 'The deal is void' : 'The result', result, view.certificate_id ? proof(view, party, seat, own) : element('p', {}, 'The certificate is being signed…'), end);
}

/** Returns the buttons that save and verify the bundle. */
function proof(view, party, seat, own) {
  const report = element('div', { class: 'report', id: 'report', 'aria-live': 'polite' });
  const saved = element('p', { class: 'hint', id: 'saved', role: 'status' });
  const act = (id, words, does) => element('button', {
    type: 'button', class: 'second', id, onclick: (event) => once(event.target, async () => {
      try {
        await does(await seat.fetch('bundle'));
      } catch (fault) {
        report.replaceChildren(element('p', { class: 'say bad' }, fault.message));
      }
    }),
  }, words);
  return [
    element('h2', {}, 'Proof'),
    element('p', {}, 'One file proves this result to anybody who knows this service’s key, even if this service is gone. The file holds the signed certificate and its place in the public log, but no input.'),
    element('p', { class: 'actions' },
      act('save-bundle', 'Download the proof', (text) => {
        const file = `fairpact-${view.deal_id}-proof.json`;
        saveFile(file, text);
        saved.textContent = `Saved as ${file}. Whoever gets it can check it at ${location.host}${location.pathname}.`;
      }),
      act('verify-bundle', 'Check it in this browser', (text) => verifyText(withInput(text, own), report, new Map(own?.seat_key ? [[party, own.seat_key.public]] : [])))),
    saved, report,
  ];
}

/** Returns the bundle with the party's input, so that the verification checks the input too. Returns it unchanged if own is not set. */
function withInput(text, own) {
  if (!own) return text;
  const bundle = parse(text, 40);
  if (bundle.own_input) Object.assign(bundle.own_input, { input: own.input, salt: own.salt });
  return JSON.stringify(bundle);
}
