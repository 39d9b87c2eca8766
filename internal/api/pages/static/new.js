// The creation page: creates a deal and shows its invitations.

import { QUICKNET } from './bls.js';
import { byId, call, codeOf, copyButton, element, once, problemOf } from './dom.js';
import { algorithmOf, facts, pageOf, roundAfter } from './facts.js';
import { lines, repeated } from './inputcheck.js';
import { invitation, linkOf } from './invite.js';
import { again, apiKey, created, made, saveFile, seats } from './keep.js';
import { listDeals } from './mine.js';
import { keyProblem } from './p256.js';
import { randomHex } from './seal.js';
import { COMMON, NEW } from './texts.js';
import { isolated, name, names } from './words.js';

const LENGTHS = [120, 300, 900, 3600, 86400, 3 * 86400, 7 * 86400].map((seconds, i) => [seconds, NEW.lengths[i]]);

const MOST_ORGANISED = 500; // names that the page acts for; fairpactctl deal raffle takes more
const MOST_SHOWN = 100; // invitations on the page; the saved file has all

const kind = () => document.querySelector('#kinds input:checked').value;
/** Returns the names. A single line with commas is a list too: two names never stand on one line. */
function given() {
  const list = lines(byId('names'));
  return list.length === 1 ? list[0].split(/[,;]/).map((one) => one.trim()).filter(Boolean) : list;
}

const mode = () => document.querySelector('#modes input:checked').value;
const parts = {}; // from declare, by algorithm
let part; // the shown one
let unanswered = null; // {said, key, body} of a creation whose answer was lost; a retry with its key creates no second deal

function offerKinds() {
  byId('kinds').append(...facts.algorithms.map((one, i) => element('label', { class: 'choice' },
    element('input', { type: 'radio', name: 'algorithm', value: one.id, checked: i === 0 }),
    element('span', {}, one.title, element('span', { class: 'hint' }, NEW.kind(one))))));
  for (const [id, preset, first] of [['commit-seconds', 86400, 1], ['reveal-seconds', 86400, 1], ['draw-seconds', 900, 0]]) {
    byId(id).append(...LENGTHS.slice(first).map(([seconds, words]) => element('option', { value: String(seconds), selected: seconds === preset }, words)));
  }
}

/** Chooses what the address names: /new#raffle, or the id of an algorithm. */
function choose(wanted) {
  const { id } = facts.algorithms.find((one) => (wanted === 'raffle' ? one.needs_beacon : one.id === wanted)) ?? {};
  for (const field of byId('kinds').querySelectorAll('input')) field.checked ||= field.value === id;
  byId('organise').checked = wanted === 'raffle';
}

/** Shows the fields of the chosen algorithm. What was entered for another one is kept. */
async function showPart() {
  const id = kind();
  parts[id] ??= (await pageOf(id)).declare(id);
  if (id !== kind()) return;
  if (part !== parts[id]) byId('part').replaceChildren(...[parts[id].fields].flat());
  part = parts[id];
  const { needs_beacon: draws, may_reject: accepts } = algorithmOf(id);
  byId('modes').hidden = draws || accepts; // a draw shows its numbers in either mode, and Shapley shares follow from what is declared
  byId('organise-part').hidden = !draws;
  showOrganised();
  part.offer?.(given());
}

/** Reports whether one organiser acts for all names. */
const organised = () => byId('organise').checked && !byId('organise-part').hidden;

function showOrganised() {
  byId('draw-part').hidden = !organised();
  document.querySelector('.by-parties').hidden = organised();
  byId('part').hidden = organised();
  byId('names-hint').textContent = organised() ? NEW.namesOfAll : NEW.namesAndYou;
}

const show = () => showPart().catch(() => { byId('new-problem').textContent = NEW.formLost; });

/** Enters the terms of an ended deal. Its invitations are dead, so this tab forgets them. */
async function refill({ deal, algorithm, params, mode: who, retention, title, message, names: parties }) {
  if (created.get()?.deal === deal) created.drop();
  made.drop(deal);
  again.drop();
  byId('names').value = parties.join('\n');
  for (const [list, value] of [['kinds', algorithm], ['modes', who]]) [...byId(list).querySelectorAll('input')].forEach((field) => { field.checked = field.value === value; });
  byId('retention').value = retention;
  byId('title').value = title ?? '';
  byId('message').value = message ?? '';
  byId('words-part').open = Boolean(title || message);
  await show();
  part?.fill?.(params);
}

/** Shows at a field what is wrong with its list. The service's errors name members of the request, not fields. */
function checkLists() {
  const { min_parties: least, max_parties: most } = algorithmOf(kind());
  const names = given();
  const limit = organised() ? MOST_ORGANISED : most;
  byId('names').setCustomValidity(names.length < least || names.length > limit ? NEW.giveNames(least, limit, names.length) : organised() ? '' : repeated(names));
  part?.check?.();
}

/** Returns the declared keys by party, or undefined if there are none. */
function partyKeys(labels) {
  const keys = labels.map(() => null);
  for (const line of lines(byId('keys'))) {
    const [, who, key] = /^(.+?)\s+(\S+)$/.exec(line) ?? [];
    const party = labels.indexOf(who);
    if (party < 0) throw new Error(NEW.noKeyInLine(line));
    if (keyProblem(key)) throw new Error(NEW.wrongKey(isolated(who), keyProblem(key)));
    if (keys[party]) throw new Error(NEW.keyTwice(isolated(who)));
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
  await showPart(); // the person may have chosen another algorithm just now
  const [first, then, whole] = ['commit-seconds', 'reveal-seconds', 'draw-seconds'].map((id) => Number(byId(id).value));
  const [commits, reveals] = organised() ? [whole / 2, whole / 2] : [first, then];
  const body = { algorithm: kind(), party_labels: given(), algorithm_params: part.params(), mode: mode(), retention: byId('retention').value };
  for (const id of ['title', 'message']) body[id] = byId(id).value.trim() || undefined;
  if (organised()) Object.assign(body, { audience: 'public', acted_by: 'initiator', mode: 'open', retention: 'standard' });
  else {
    body.party_keys = partyKeys(body.party_labels);
    if (byId('public').checked) body.audience = 'public';
    if (byId('act-once').checked) body.seals = 'required';
  }
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
  if (body.acted_by) return actForAll({ deal, title: body.title, own: invites[0].token, texts: [], raffle: { tokens: invites.map(({ token }) => token), seed: randomHex(32) } });
  const texts = invites.slice(1).map((invite) => ({
    label: invite.label, link: linkOf(deal, invite.token), text: invitation({ deal, algorithm, from: invites[0].label, invite, commitDeadline, revealDeadline, once: Boolean(body.seals), title: body.title, message: body.message, audience: body.audience }),
  }));
  const offer = { deal, own: invites[0].token, warning, texts, title: body.title, audience: body.audience };
  made.set(deal, offer);
  created.set('', offer); // a reload of this tab shows them again
  showMade(offer);
}

/** Acts for all parties of a raffle, then shows its public page. A closed tab can continue, because this browser keeps tokens and seed until all is opened. */
async function actForAll(offer) {
  const kept = made.set(offer.deal, offer) ? '' : NEW.keepOpen;
  byId('make').hidden = true;
  byId('acting').hidden = false;
  byId('acting-again').hidden = true;
  byId('acting-title').focus();
  try {
    const { act } = await import('./raffle.js');
    await act(offer.deal, offer.raffle, (done, all) => {
      Object.assign(byId('acting-progress'), { max: all, value: done });
      byId('acting-status').textContent = kept + NEW.acting(done >= all / 2, Math.round(100 * done / all));
    }, (trouble) => { if (trouble) byId('acting-status').textContent = trouble; });
  } catch (fault) {
    byId('acting-status').textContent = NEW.drawFailed(fault.message);
    byId('acting-again').hidden = false;
    byId('acting-again').onclick = () => actForAll(offer);
    return;
  }
  made.set(offer.deal, { ...offer, raffle: undefined, watched: true });
  location.assign(`/r/${encodeURIComponent(offer.deal)}`);
}

function showMade({ deal, own, warning, texts, audience }) {
  byId('watch').hidden = !audience;
  byId('watch-link').href = byId('watch-link').textContent = `${facts.public_url || location.origin}/r/${deal}`;
  byId('make').hidden = true;
  byId('made').hidden = false;
  if (!made.get(deal)) byId('kept').textContent = NEW.notKept; // its storage is off or full
  byId('own-seat').href = `/d/${encodeURIComponent(deal)}#${own}`;
  // The own link names this origin, not the public URL: the browser stores sealed inputs by origin.
  const ownLink = byId('own-seat').href;
  byId('own-link').value = ownLink;
  byId('copy-own').replaceChildren(copyButton(NEW.ownLink, () => ownLink));
  byId('advice').hidden = !warning;
  byId('advice').querySelector('p').textContent = warning ? NEW.advice(warning) : '';
  byId('invitations').replaceChildren(...texts.slice(0, MOST_SHOWN).map(({ label, link, text }) => {
    const share = navigator.share ? element('button', { type: 'button', class: 'copy', 'aria-label': NEW.shareOf(isolated(label)), onclick: () => navigator.share({ text }).catch(() => {}) }, NEW.share) : null;
    return element('li', { class: 'card' }, element('h3', {}, name(label)), element('p', { class: 'actions' }, copyButton(NEW.invitationOf(isolated(label)), () => text, NEW.copyInvitation), link && copyButton(NEW.linkOf(isolated(label)), () => link, NEW.copyLink), share),
      element('textarea', { readonly: true, rows: '6', 'aria-label': NEW.invitation(isolated(label)) }, text));
  }));
  if (texts.length > MOST_SHOWN) byId('invitations').append(element('li', { class: 'fine' }, NEW.moreInvitations(texts.length - MOST_SHOWN)));
  byId('save-invitations').onclick = () => saveFile(`fairpact-${deal}-invitations.json`, JSON.stringify({ deal_id: deal, own_link: ownLink, invitations: texts }, null, 2));
  byId('cancel').onclick = () => once(byId('cancel'), () => cancel(deal).catch((fault) => { byId('cancel-problem').textContent = fault.message; }));
  byId('made-title').focus();
}

async function cancel(deal) {
  const answer = await call('POST', `/v1/deals/${encodeURIComponent(deal)}/cancel`, { token: apiKey.get() }).catch(() => { throw new Error(COMMON.lost); });
  if (codeOf(answer) === 'CANNOT_CANCEL') throw new Error(NEW.cannotCancel);
  if (!answer.ok) throw new Error(problemOf(answer));
  forgetDeal(deal);
  byId('made').replaceChildren(element('h1', { tabindex: '-1', id: 'made-title' }, NEW.cancelled), element('p', { class: 'lead' }, NEW.cancelledMeans, element('a', { href: '/new' }, NEW.another)));
  byId('made-title').focus();
}

function forgetDeal(deal) {
  if (created.get()?.deal === deal) created.drop();
  made.drop(deal);
  seats.drop(deal);
}

byId('new-form').addEventListener('submit', (event) => {
  event.preventDefault();
  once(byId('create'), async () => {
    byId('new-problem').textContent = '';
    try {
      await make();
    } catch (fault) {
      byId('new-problem').textContent = fault instanceof TypeError ? COMMON.lost : fault.message;
    }
  });
});
byId('another').addEventListener('click', () => {
  created.drop();
  location.reload();
});
byId('create').addEventListener('click', checkLists);
byId('kinds').addEventListener('change', show);
byId('organise').addEventListener('change', showOrganised);
byId('names').addEventListener('input', () => part?.offer?.(given()));

byId('keys-part').hidden = !facts.public_url; // a service without a public address takes no seat keys, and no seals
byId('once-part').hidden = !facts.public_url;
byId('act-once').checked = Boolean(facts.public_url);
byId('could-open').hidden = facts.beacon_chain === QUICKNET.hash;
byId('nobody-reads').hidden = !byId('could-open').hidden;
offerKinds();
choose(location.hash.slice(1));
byId('loading').hidden = true;
byId('new-form').hidden = false;
listDeals(actForAll, forgetDeal);
const terms = again.get();
const before = created.get();
if (terms) refill(terms);
else {
  show();
  // Somebody who comes by a link wants the form: the invitations are under “Your deals on this device”.
  if (before && (performance.getEntriesByType('navigation')[0]?.type !== 'navigate' || !made.get(before.deal))) showMade(before);
}
