// The creation page: creates a deal and shows its invitations.

import { byteOrder } from './algorithms.js';
import { byId, call, copyButton, element, once, problemOf } from './dom.js';
import { algorithmOf, facts, roundAfter } from './facts.js';
import { invitation, linkOf } from './invite.js';
import { parse } from './jcs.js';
import { apiKey, created, saveFile } from './keep.js';
import { keyProblem } from './p256.js';
import { randomHex } from './seal.js';
import { isolated, name } from './words.js';

const LENGTHS = [[300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour'], [86400, '1 day'], [3 * 86400, '3 days'], [7 * 86400, '1 week']];
const TITLES = { 'split.v1': 'Divide things', 'random.v1': 'Draw one of you', 'shapley.v1': 'Share a joint gain' };

const MOST_SHOWN = 100; // invitations on the page; the saved file has all

const lines = (id) => byId(id).value.split('\n').map((line) => line.trim()).filter(Boolean);
const kind = () => document.querySelector('#kinds input:checked').value;
let unanswered = null; // {said, key, body} of a creation whose answer was lost; a retry with its key creates no second deal

function offerKinds() {
  byId('kinds').append(...facts.algorithms.map((one, i) => element('label', { class: 'choice' },
    element('input', { type: 'radio', name: 'algorithm', value: one.id, checked: i === 0 }),
    element('span', {}, TITLES[one.id] ?? one.id, element('span', { class: 'hint' }, `${one.purpose}; ${one.min_parties} to ${one.max_parties} parties`)))));
  for (const [id, preset] of [['commit-seconds', 86400], ['reveal-seconds', 86400]]) {
    byId(id).append(...LENGTHS.map(([seconds, words]) => element('option', { value: String(seconds), selected: seconds === preset }, words)));
  }
}

function showParts() {
  const id = kind();
  byId('items-part').hidden = id !== 'split.v1';
  byId('items').required = id === 'split.v1';
  byId('draw-part').hidden = id !== 'random.v1';
  byId('worth-part').hidden = id !== 'shapley.v1';
  byId('params-part').hidden = Object.hasOwn(TITLES, id);
  byId('params').placeholder = JSON.stringify(algorithmOf(id).example_params);
  if (id === 'shapley.v1') offerWorths();
}

/** Returns all coalitions as lists of names, small ones first. Returns none for more than eight parties. */
function groups(names) {
  if (names.length > 8) return [];
  const all = Array.from({ length: 2 ** names.length - 1 }, (_, set) => names.filter((_, i) => (set + 1) & (1 << i)));
  return all.sort((a, b) => a.length - b.length);
}

const coalitionKey = (group) => [...group].sort((a, b) => (byteOrder(a, b) ? -1 : 1)).join(',');

function offerWorths() {
  const before = new Map([...byId('worths').querySelectorAll('input')].map((field) => [field.dataset.key, field.value]));
  byId('worths').replaceChildren(...groups(lines('names')).map((group, i) => {
    const id = `worth-${i}`;
    const joined = coalitionKey(group);
    return element('div', {}, element('label', { for: id }, name(group.join(' + ')), group.length === 1 ? ' alone' : ''),
      element('input', { id, type: 'number', inputmode: 'numeric', min: '0', step: '1', 'data-key': joined, value: before.get(joined) ?? '' }));
  }));
}

/** Shows at a field what is wrong with its list. The service's errors name members of the request, not fields. */
function checkLists() {
  const { min_parties: least, max_parties: most } = algorithmOf(kind());
  const names = lines('names');
  byId('names').setCustomValidity(names.length < least || names.length > most ? `Give ${least} to ${most} names, one a line. You gave ${names.length}.` : repeated(names));
  byId('items').setCustomValidity(kind() === 'split.v1' ? repeated(lines('items')) : '');
}

function repeated(list) {
  const twice = list.find((one, i) => list.indexOf(one) < i);
  return twice === undefined ? '' : `“${twice}” is there twice: give each its own name.`;
}

function params() {
  switch (kind()) {
    case 'split.v1':
      return { items: lines('items') };
    case 'random.v1':
      return {}; // declaration() adds the beacon round
    case 'shapley.v1':
      return { coalition_values: Object.fromEntries([...byId('worths').querySelectorAll('input')].map((field) => [field.dataset.key, field.value === '' ? 0 : field.valueAsNumber])) };
  }
  return parse(byId('params').value);
}

/** Returns the declared keys by party, or undefined if there are none. */
function partyKeys(labels) {
  const keys = labels.map(() => null);
  for (const line of lines('keys')) {
    const [, who, key] = /^(.+?)\s+(\S+)$/.exec(line) ?? [];
    const party = labels.indexOf(who);
    if (party < 0) throw new Error(`Under “Keys of the parties”, the line “${line}” has no key, or its name is not one of the names above. Write a name, a space and the key.`);
    if (keyProblem(key)) throw new Error(`The key of ${isolated(who)} ${keyProblem(key)}.`);
    if (keys[party]) throw new Error(`A key of ${isolated(who)} is there twice.`);
    keys[party] = key;
  }
  return keys.some(Boolean) ? keys : undefined;
}

/** Returns the answer of send(key) with this browser's API key. Takes a new key if there is none or the answer is 401: a service with a new database does not know the old key. */
async function withKey(send) {
  let own = apiKey.get();
  for (let fresh = !own; ; fresh = true) {
    if (fresh) {
      const taken = await call('POST', '/v1/keys');
      if (!taken.ok) return taken;
      own = taken.json.api_key;
      apiKey.set('', own);
    }
    const answer = await send(own);
    if (answer.status !== 401 || fresh) return answer;
  }
}

/** Returns {said, key, body} for the deal in the form. Deadlines are by the service's clock. If a creation got no answer and the form is unchanged, returns that creation again. */
async function declaration() {
  const [commits, reveals] = ['commit-seconds', 'reveal-seconds'].map((id) => Number(byId(id).value));
  const body = { algorithm: kind(), party_labels: lines('names'), algorithm_params: params(), mode: byId('mode').value, retention: byId('retention').value };
  body.party_keys = partyKeys(body.party_labels);
  const said = JSON.stringify([body, commits, reveals]);
  if (unanswered?.said === said) return unanswered;
  const { date } = await call('GET', '/v1/status');
  body.commit_deadline = Math.floor(date / 1000) + commits;
  body.reveal_deadline = body.commit_deadline + reveals;
  if (algorithmOf(body.algorithm).needs_beacon) body.algorithm_params.beacon_round ??= roundAfter(body.reveal_deadline);
  return { said, key: randomHex(16), body };
}

async function make() {
  unanswered = await declaration();
  const { key, body } = unanswered;
  const answer = await withKey((token) => call('POST', '/v1/deals', { token, body, header: { 'Idempotency-Key': key } }));
  unanswered = null;
  const [algorithm, commitDeadline, revealDeadline] = [algorithmOf(body.algorithm), body.commit_deadline, body.reveal_deadline];
  if (!answer.ok) throw new Error(problemOf(answer));
  const { deal_id: deal, invite_tokens: invites, warning } = answer.json;
  const texts = invites.slice(1).map((invite) => ({
    label: invite.label, link: linkOf(deal, invite.token), text: invitation({ deal, algorithm, from: invites[0].label, invite, commitDeadline, revealDeadline }),
  }));
  const made = { deal, own: invites[0].token, warning, texts };
  created.set('', made); // a reload of this tab shows them again
  showMade(made);
}

function showMade({ deal, own, warning, texts }) {
  byId('make').hidden = true;
  byId('made').hidden = false;
  byId('own-seat').href = `/d/${encodeURIComponent(deal)}#${own}`;
  // The own link names this origin, not the public URL: the browser stores sealed inputs by origin.
  const ownLink = byId('own-seat').href;
  byId('own-link').value = ownLink;
  byId('copy-own').replaceChildren(copyButton('your own link', () => ownLink));
  byId('advice').hidden = !warning;
  byId('advice').querySelector('p').textContent = warning ? `${warning}.` : '';
  byId('invitations').replaceChildren(...texts.slice(0, MOST_SHOWN).map(({ label, link, text }) => {
    const share = navigator.share ? element('button', { type: 'button', class: 'copy', 'aria-label': `Share the invitation of ${isolated(label)}`, onclick: () => navigator.share({ text }).catch(() => {}) }, 'Share') : null;
    return element('li', { class: 'card' }, element('h3', {}, name(label)), element('p', { class: 'actions' }, copyButton(`the invitation of ${isolated(label)}`, () => text, 'Copy the invitation'), link && copyButton(`only the link of ${isolated(label)}`, () => link, 'Copy only the link'), share),
      element('textarea', { readonly: true, rows: '6', 'aria-label': `Invitation of ${isolated(label)}` }, text));
  }));
  if (texts.length > MOST_SHOWN) byId('invitations').append(element('li', { class: 'fine' }, `and ${texts.length - MOST_SHOWN} more: save all invitations now, since a reload may lose them.`));
  byId('save-invitations').onclick = () => saveFile(`fairpact-${deal}-invitations.json`, JSON.stringify({ deal_id: deal, own_link: ownLink, invitations: texts }, null, 2));
  byId('made-title').focus();
}

byId('new-form').addEventListener('submit', (event) => {
  event.preventDefault();
  once(byId('create'), async () => {
    byId('new-problem').textContent = '';
    try {
      await make();
    } catch (fault) {
      byId('new-problem').textContent = fault instanceof TypeError ? 'The connection is lost. Try again.' : fault.message;
    }
  });
});
byId('another').addEventListener('click', () => {
  created.drop();
  location.reload();
});
byId('create').addEventListener('click', checkLists);
byId('kinds').addEventListener('change', showParts);
byId('names').addEventListener('input', showParts);

byId('keys-part').hidden = !facts.public_url; // a service without a public address takes no seat keys
offerKinds();
showParts();
const before = created.get();
if (before) showMade(before);
