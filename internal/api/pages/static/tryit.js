// Plays a deal against this origin. The page plays every party. It seals each input itself
// and sends only its commitment until all parties have committed.

import { byId, call, element, once, problemOf } from './dom.js';
import { canonical, parse } from './jcs.js';
import { keysOf, marked } from './keys.js';
import { showReport } from './report.js';
import { seal } from './seal.js';
import { verifyCertificate } from './verify.js';
import { fetchTrust, load } from './verifier.js';
import { percent, ratio } from './words.js';

const LABELS = ['Ann', 'Bob'];

/** Hides credentials, because the screen may be shared. */
const masked = (text) => text.replace(/\b(fp|it)_[A-Za-z0-9_-]{8,}/g, '$1_…');

const shortened = (line) => line.replace(/\b(d_.{4})[^/]+/, '$1…');

const pretty = (answer) => masked(answer.json === null ? answer.text : JSON.stringify(answer.json, null, 2));

class Story {
  constructor(list) {
    this.list = list;
    list.replaceChildren();
  }

  /** Shows one step. who: the party that acts; words: what the step means; parts: details as a list of [name, text]; bad: whether the step failed. */
  tell(who, words, parts = [], bad = false) {
    this.list.append(element('li', { class: bad ? 'bad' : null },
      element('p', {}, element('span', { class: LABELS.includes(who) ? `who ${who.toLowerCase()}` : 'who' }, who), ' ', words),
      parts.length
        ? element('details', {}, element('summary', {}, shortened(parts[0][1].split('\n')[0])),
          parts.map(([what, text]) => [element('p', { class: 'what' }, what), element('pre', {}, text)]))
        : null));
  }

  /** Sends a request, shows the request with its answer, and returns the answer. Throws if the answer is an error. */
  async send(who, words, method, path, options = {}) {
    const answer = await call(method, path, options);
    const request = [`${method} ${path}`];
    if (options.token) request.push(masked(`Authorization: Bearer ${options.token}`));
    if (options.body !== undefined) request.push('', JSON.stringify(options.body, null, 2));
    this.tell(who, answer.ok ? words : problemOf(answer), [['Request', request.join('\n')], [`Answer ${answer.status}`, pretty(answer)]], !answer.ok);
    if (!answer.ok) throw new Error('The deal stopped here: the last step shows the error of the service.');
    return answer;
  }
}

let examples = []; // published vectors that this page can play

/** Offers the first vector of each algorithm that has a result and needs no beacon round. */
async function offerExamples() {
  const catalogue = await call('GET', '/v1/algorithms');
  if (!catalogue.ok) return; // the default deal works without the examples
  const playable = (v) => v.expected_output !== null && !('beacon_round' in v.input.algorithm_params);
  examples = parse(catalogue.text, 40).algorithms.flatMap((a) => a.test_vectors.filter(playable).slice(0, 1));
  byId('try-example').append(...examples.map((v, i) => element('option', { value: String(i) }, `${v.algorithm}: the published example ${v.vector_id}`)));
}

const rows = () => [...byId('try-items').querySelectorAll('tbody tr')];

/** Returns the chosen example, or the deal in the table: items and both parties' valuations. */
function read() {
  const example = examples[byId('try-example').value];
  if (example) {
    const { party_labels: labels, algorithm_params: params, party_inputs: inputs } = example.input;
    return { algorithm: example.algorithm, labels, params, inputs };
  }
  const items = rows().map((row) => row.querySelector('th').textContent);
  const inputs = LABELS.map((_, party) => ({
    valuations: Object.fromEntries(rows().map((row, i) => {
      const value = Number(row.querySelectorAll('input')[party].value);
      if (!Number.isSafeInteger(value) || value < 0) throw new Error(`Points are whole numbers of 0 or more: correct “${items[i]}” of ${LABELS[party]}.`);
      return [items[i], value];
    })),
  }));
  return { algorithm: 'split.v1', labels: LABELS, params: { items }, inputs };
}

async function play(story) {
  const { algorithm, labels, params, inputs } = read();
  const [first, second] = labels;
  const key = await story.send(first, 'takes an API key. No signup, no e-mail.', 'POST', '/v1/keys');
  const now = Math.floor(key.date / 1000); // by the service's clock
  const created = await story.send(first, 'opens the deal and gets one invite token for each party.', 'POST', '/v1/deals', {
    token: key.json.api_key,
    body: { algorithm, party_labels: labels, commit_deadline: now + 300, reveal_deadline: now + 600, algorithm_params: params },
  });
  const deal = `/v1/deals/${created.json.deal_id}`;
  const tokens = created.json.invite_tokens.map((invite) => invite.token);
  const sealed = [];
  for (const [party, label] of labels.entries()) {
    const { salt, commitment } = await seal(inputs[party]);
    sealed.push({ input: inputs[party], salt });
    story.tell(label, 'seals the input here, in the browser: canonical JSON, then a random salt, then SHA-256.', [
      ['Canonical input (RFC 8785)', canonical(inputs[party])], ['Salt', salt], ['Commitment', commitment]]);
    await story.send(label, 'commits. Only the hash leaves.', 'POST', `${deal}/commit`, { token: tokens[party], body: { commitment } });
  }
  await story.send(second, 'reads the deal: all have committed, nobody can change an input any more, and the view shows no input.', 'GET', deal, { token: tokens[1] });
  let last;
  for (const [party, label] of labels.entries()) {
    last = await story.send(label, party === labels.length - 1 ? 'reveals. With the last reveal the algorithm runs.' : 'reveals input and salt; the service checks them against the hash.',
      'POST', `${deal}/reveal`, { token: tokens[party], body: sealed[party] });
  }
  const certificate = await certificateOf(story, deal, first, tokens[0]);
  return { certificate, params, sealed, result: last.json.result, own: labels === LABELS, bundle: () => bundleOf(deal, tokens[0]) };
}

async function bundleOf(deal, token) {
  const answer = await call('GET', `${deal}/bundle`, { token });
  if (!answer.ok) throw new Error(problemOf(answer));
  const link = URL.createObjectURL(new Blob([answer.text], { type: 'application/json' }));
  element('a', { href: link, download: `${answer.json.certificate.cert_id}.bundle.json` }).click();
  setTimeout(() => URL.revokeObjectURL(link), 60_000);
}

async function certificateOf(story, deal, who, token) {
  await call('GET', `${deal}?wait=20&since=COMPUTED`, { token });
  const answer = await story.send(who, 'fetches the certificate: signed, and proven to be in the public log.', 'GET', `${deal}/certificate`, { token });
  return parse(answer.text);
}

function picture(result, items) {
  const bars = items.map((item) => {
    const first = ratio(result.shares[0].items.find((row) => row.item === item)?.share ?? '0');
    const bar = element('span', { class: 'bar', 'aria-hidden': 'true' }, element('span', {}));
    bar.firstChild.style.width = `${first * 100}%`;
    return element('li', {}, element('span', { class: 'item' }, item), bar,
      element('span', { class: 'parts' }, [[0, first], [1, 1 - first]].filter(([, share]) => share > 0).map(([p, share]) => `${LABELS[p]} ${percent(share)}`).join(', ')));
  });
  const gets = result.shares.map((share) => `${share.label} gets ${percent(share.value_ppb / 1e9)} of what ${share.label} values`);
  return [element('h3', {}, 'The result'), element('ul', { class: 'bars' }, bars), element('p', {}, `${gets.join('; ')}. Neither could see the other’s points before both were bound to their own.`)];
}

async function run() {
  const [note, story, outcome] = ['try-note', 'try-story', 'try-outcome'].map(byId);
  outcome.replaceChildren();
  note.classList.remove('bad');
  note.textContent = 'Playing…';
  try {
    const told = new Story(story);
    const { certificate, params, sealed, result, own, bundle } = await play(told);
    const { keys, current, head } = await fetchTrust(certificate);
    const verdict = await verifyCertificate({ certificate, head, keys: marked(keysOf(keys), current), inputs: sealed, params, issuer: location.host });
    const report = element('div', { id: 'try-report' });
    showReport(report, verdict, certificate);
    const shown = own ? picture(result, params.items) : [element('h3', {}, 'The result'), element('pre', {}, JSON.stringify(result, null, 2))];
    outcome.replaceChildren(...shown, element('h3', {}, 'The certificate, verified here'), report,
      element('button', {
        type: 'button', class: 'second', id: 'try-load', onclick: () => load({
          certificate: JSON.stringify(certificate, null, 2), keys: JSON.stringify(keys, null, 2), head: JSON.stringify(head, null, 2),
          inputs: JSON.stringify(sealed, null, 2), params: JSON.stringify(params, null, 2),
        }),
      }, 'Open it in the verifier and try to forge it'), ' ',
      element('button', {
        type: 'button', class: 'second', id: 'try-bundle', onclick: () => bundle().catch((fault) => { note.textContent = fault.message; }),
      }, 'Download the bundle'),
      element('p', { class: 'hint' }, 'The bundle is one file that proves the certificate offline, even if this service is gone. Open it in the verifier below, or run ', element('code', {}, 'fairpactctl verify FILE --pubkey KEY'), '.'));
    note.textContent = 'Done: a settled deal with a verified certificate.';
  } catch (fault) {
    note.classList.add('bad');
    note.textContent = fault.message;
  }
}

export function start() {
  offerExamples().catch(() => {}); // the default deal works without the examples
  byId('try-example').addEventListener('change', () => { byId('try-items').hidden = byId('try-example').value !== ''; });
  byId('try-form').addEventListener('submit', (event) => {
    event.preventDefault();
    once(byId('try-go'), run);
  });
}
