// The verifier's form. The checks call no service. Only the Fetch buttons do.

import { isBundle, verifyBundle } from './bundle.js';
import { byId, call, problemOf } from './dom.js';
import { parse } from './jcs.js';
import { fetchCurrent, fetchKeys, keysOf, marked } from './keys.js';
import { parsePolicy } from './notes.js';
import { showReport } from './report.js';
import { knownKeys } from './seats.js';
import { isSeals, showSettlement } from './settle.js';
import { openingsIn } from './submitted.js';
import { verifyCertificate } from './verify.js';

let current = null; // {pubkey, development} of this origin's current key, null until fetched; a key set does not mark development keys

const field = (name) => byId(`verify-${name}`);

function say(text, bad = false) {
  const note = byId('verify-note');
  note.textContent = text;
  note.classList.toggle('bad', bad);
}

function read(name, what, depth) {
  const text = field(name).value.trim();
  if (!text) return null;
  try {
    return parse(text, depth);
  } catch (fault) {
    field(name).closest('details')?.setAttribute('open', '');
    field(name).focus();
    throw new Error(`The ${what} cannot be read: ${fault.message}.`);
  }
}

function readKeys() {
  const text = field('keys').value.trim();
  if (!text.startsWith('{')) return text.split(/[\s,]+/).filter(Boolean).map((pubkey) => ({ pubkey }));
  const document = read('keys', 'key set');
  try {
    return marked(keysOf(document), current);
  } catch (fault) {
    field('keys').closest('details').open = true;
    field('keys').focus();
    throw new Error(`The keys cannot be used: ${fault.message}. Paste the answer of /v1/pubkeys.`);
  }
}

function readKnown() {
  try {
    return knownKeys(field('parties').value);
  } catch (fault) {
    field('parties').closest('details').open = true;
    field('parties').focus();
    throw new Error(`The keys of the parties cannot be read: ${fault.message}.`);
  }
}

async function verify() {
  const out = byId('verify-report');
  out.replaceChildren();
  delete out.dataset.valid;
  const certificate = read('certificate', 'certificate', 34); // maximum depth: 32 of an input plus 2 levels of the bundle
  if (isSeals(certificate)) {
    await showSettlement(out, certificate, await openingsIn(field('openings')));
    say('Read the seals in this browser.');
    return;
  }
  const keys = readKeys();
  const known = readKnown();
  if (isBundle(certificate)) {
    await verifyWhole(out, certificate, keys, known);
    return;
  }
  const head = read('head', 'tree head');
  if (certificate === null) throw new Error('Paste a certificate first, choose its file, or fetch it.');
  if (head === null || keys.length === 0) {
    field('keys').closest('details').open = true;
    throw new Error('The check needs a verifying key and a signed tree head, and one or both are missing. Paste them, or fetch them from this service.');
  }
  const inputs = read('inputs', 'list of inputs', 34); // maximum depth: 32 of an input plus 2 levels around it
  const params = read('params', 'parameters');
  const verdict = await verifyCertificate({ certificate, head, keys, inputs, openings: await openingsIn(field('openings')), params, known });
  showReport(out, verdict, certificate);
  if (inputs !== null && !verdict.checks.some(({ name }) => name === 'result')) say('Checked. The result was not recomputed.');
  else say(inputs === null ? 'Checked without the inputs. If you give the inputs, the page also recomputes the result.' : 'Checked, and recomputed from the inputs.');
}

/** Verifies a bundle and shows the report. The keys and the policy in the form say whom to trust; both are optional. */
async function verifyWhole(out, bundle, keys, known) {
  const text = field('policy').value;
  let policy = null;
  try {
    if (text.trim()) policy = await parsePolicy(text);
  } catch (fault) {
    field('policy').closest('details').open = true;
    field('policy').focus();
    throw new Error(`The policy cannot be read: ${fault.message}.`);
  }
  showReport(out, await verifyBundle({ bundle, keys, policy, known, openings: await openingsIn(field('openings')) }), bundle.certificate);
  say('Checked the bundle in this browser.');
}

/** Fetches {keys, current, head}: this origin's key set, its current key, and the tree head of the certificate's proof. If the log has no head of that size, head is the newest. */
export async function fetchTrust(certificate) {
  const [keys, own] = await Promise.all([fetchKeys(), fetchCurrent()]);
  current = own ?? current;
  let head = await call('GET', '/v1/log/tree-head');
  const size = certificate?.log_proof?.tree_size;
  if (head.ok && Number.isSafeInteger(size) && size >= 0 && size < head.json.tree_size) {
    const older = await call('GET', `/v1/log/tree-head?tree_size=${size}`);
    if (older.ok) head = older;
  }
  if (!head.ok) throw new Error(problemOf(head));
  return { keys, current, head: parse(head.text) };
}

async function fillTrust() {
  const { keys, head } = await fetchTrust(read('certificate', 'certificate'));
  field('keys').value = JSON.stringify(keys, null, 2);
  field('head').value = JSON.stringify(head, null, 2);
  say('Fetched. The service itself names these keys: compare them with keys that you have from elsewhere.');
}

async function fillCertificate() {
  const [deal, token] = [byId('fetch-deal').value.trim(), byId('fetch-token').value.trim()];
  if (!deal || !token) throw new Error('The deal id or the invite token is missing: give both, because a certificate is private to the parties of its deal.');
  const answer = await call('GET', `/v1/deals/${encodeURIComponent(deal)}/certificate`, { token });
  if (!answer.ok) throw new Error(problemOf(answer));
  if (answer.json.deal_id !== deal) throw new Error(`The service answered with a certificate that is not of the deal ${deal}.`);
  field('certificate').value = JSON.stringify(parse(answer.text), null, 2);
  say('Fetched. The token was used once and is not kept.');
  byId('fetch-token').value = '';
}

export function load(values) {
  for (const [name, value] of Object.entries(values)) field(name).value = value;
  byId('verify-report').replaceChildren();
  field('keys').closest('details').open = true;
  byId('verify').scrollIntoView();
  field('certificate').focus({ preventScroll: true });
  say('Filled in from the deal above. Change any character and verify again.');
}

export function start() {
  const on = (id, act) => byId(id).addEventListener('click', async (event) => {
    event.preventDefault();
    say('Working…');
    try {
      await act();
    } catch (fault) {
      say(fault.message, true);
    }
  });
  on('verify-go', verify);
  byId('verify-file').addEventListener('change', async ({ target }) => {
    if (!target.files.length) return;
    field('certificate').value = await target.files[0].text();
    byId('verify-go').click();
  });
  on('fetch-trust', fillTrust);
  on('fetch-certificate', fillCertificate);
}
