// The page of a public deal, for everybody who has its address. It shows who takes part, the time left, the result and its proof.

import { QUICKNET } from './bls.js';
import { byId, call, codeOf, copyButton, element, once, problemOf } from './dom.js';
import { drawTime, facts, pageOf, sightOf } from './facts.js';
import { saveFile } from './keep.js';
import { COMMON, PUBLIC } from './texts.js';
import { duration, localTime, name, names } from './words.js';

const id = decodeURIComponent(location.pathname.split('/')[2]);
const MOST_LISTED = 20;
const [SOON, IDLE] = [2, 30]; // seconds between two reads, around a deadline and else
const NEAR = 90; // seconds after a deadline or the round in which the page reads often
const LOOKS_AFTER_END = 3; // reads after the proof is there, while witnesses cosign
const ENDED = ['COMPUTED', 'CERTIFIED', 'VOID', 'EXPIRED', 'CANCELLED'];

let page; // the pictures of the deal's algorithm, from pageOf
let now = null; // the newest answer: {deal, bundle}
let clock = 0; // ms that the service's clock is ahead of this one
let shown = ''; // identifies the panel on the page

const seconds = () => (Date.now() + clock) / 1000;

/** Returns when the deal changes next by time alone, and what happens then; undefined if it has ended. */
function nextOf({ state, commit_deadline: commitBy, reveal_deadline: revealBy, parties, ...view }) {
  if (ENDED.includes(state)) return undefined;
  if (state !== 'REVEALING') return [commitBy, PUBLIC.left.seal];
  if (drawTime(view) && parties.every((p) => p.revealed)) return [drawTime(view), PUBLIC.left.draw];
  return [revealBy, PUBLIC.left.open];
}

function statusOf(deal) {
  const missing = (done) => deal.parties.filter((p) => !p[done]).length;
  const who = (n) => (deal.acted_by ? PUBLIC.organiser : PUBLIC.parties(n, deal.parties.length));
  switch (deal.state) {
    case 'OPEN':
    case 'COMMITTING': return PUBLIC.toSeal(who(missing('committed')));
    case 'REVEALING': return missing('revealed') ? PUBLIC.toOpen(who(missing('revealed'))) : drawTime(deal) ? PUBLIC.toDraw(deal.algorithm_params.beacon_round) : [PUBLIC.now];
    case 'VOID': return deal.acted_by ? PUBLIC.voidByOrganiser : PUBLIC.void(names((deal.void_flakers ?? []).map((i) => deal.parties[i].label)));
    case 'CANCELLED': return PUBLIC.cancelled;
    case 'EXPIRED': return PUBLIC.expired;
    default: return PUBLIC.settled(now.bundle);
  }
}

function tick() {
  if (!now) return;
  const [until, what] = nextOf(now.deal) ?? [];
  const out = byId('countdown');
  out.hidden = !until;
  if (until) out.textContent = until > seconds() ? `${duration(until - seconds())} ${what}` : PUBLIC.now;
}

function describe(deal) {
  const subject = page.title(names(deal.parties.map((p) => p.label), 4), deal.algorithm_params, deal.algorithm);
  const writer = deal.acted_by ? PUBLIC.organiser : deal.parties[0].label;
  byId('title').replaceChildren(...(deal.title ? [name(deal.title)] : subject));
  byId('subject').replaceChildren(...(deal.title ? subject : []));
  byId('message').hidden = !deal.message;
  byId('message').textContent = deal.message ?? '';
  byId('writer').replaceChildren(...(deal.title || deal.message ? PUBLIC.writtenBy(name(writer)) : []), deal.acted_by ? PUBLIC.actsForAll : '');
  byId('one-draw').hidden = !deal.acted_by;
  byId('other-beacon').hidden = !drawTime(deal) || (deal.result?.beacon.chain_hash ?? facts.beacon_chain) === QUICKNET.hash;
  document.title = PUBLIC.title(deal.title);
  byId('status').replaceChildren(...statusOf(deal));
  byId('status-box').dataset.phase = deal.state === 'VOID' ? 'void' : '';
  byId('parties').replaceChildren(...deal.parties.slice(0, MOST_LISTED).map((p) => element('li', {}, element('span', { class: 'label' }, name(p.label)),
    deal.acted_by ? null : element('span', { class: `badge ${p.committed ? 'on' : ''}` }, PUBLIC.badges[p.revealed ? 'opened' : p.committed ? 'sealed' : 'missing']))));
  byId('more-parties').hidden = deal.parties.length <= MOST_LISTED;
  byId('more-parties').textContent = PUBLIC.moreParties(deal.parties.length - MOST_LISTED, deal.parties.length);
  byId('times').replaceChildren(...[[PUBLIC.sealedBy, deal.commit_deadline], [PUBLIC.openedBy, deal.reveal_deadline], [PUBLIC.drawAt, drawTime(deal)]]
    .filter(([, at]) => at).flatMap(([what, at]) => [element('dt', {}, what), element('dd', {}, localTime(at))]));
  tick();
}

/** Shows the result, once there is one. The picture computes a draw again from the openings in the bundle. */
async function showResult({ deal, bundle }) {
  const key = `${deal.state} ${bundle !== null}`;
  if (key === shown) return;
  shown = key;
  const settled = deal.state === 'COMPUTED' || deal.state === 'CERTIFIED';
  const inputs = deal.parties.map((_, i) => bundle?.openings?.[i]?.input ?? null);
  const picture = settled ? [element('h2', {}, COMMON.result), ...await page.picture(deal, null, inputs)] : [];
  if (key === shown) byId('action').replaceChildren(...[...picture, ...(bundle ? proof(deal, bundle) : [])].flat(Infinity).filter(Boolean));
}

function proof(deal, bundle) {
  const report = element('div', { class: 'report', id: 'report', 'aria-live': 'polite' });
  const text = JSON.stringify(bundle);
  const check = element('button', {
    type: 'button', class: 'second', id: 'verify-bundle', onclick: () => once(check, async () => (await import('./submitted.js')).verifyText(text, report, { deal: id })),
  }, COMMON.check);
  return [
    element('h2', {}, COMMON.proof),
    element('p', {}, COMMON.proves,
      deal.state === 'VOID' ? '' : bundle.openings ? PUBLIC.recomputes : PUBLIC.operatorsWord[sightOf(deal)]),
    element('p', { class: 'actions' }, element('button', { type: 'button', class: 'second', id: 'save-bundle', onclick: () => saveFile(`fairpact-${id}-proof.json`, text) }, COMMON.saveProof), check),
    element('p', { class: 'hint' }, PUBLIC.whoseKeys(location.host, element('a', { href: '/#verify' }, COMMON.wholeVerifier))),
    report,
  ];
}

/** Returns the seconds until the page reads the deal again. */
function pause({ deal }, failures) {
  if (failures) return Math.min(2 ** failures, IDLE);
  const [until] = nextOf(deal) ?? [];
  if (!until) return SOON;
  const left = until - seconds();
  return left > 0 ? Math.min(left + 0.5 + Math.random(), IDLE) : left > -NEAR ? SOON : IDLE;
}

function trouble(text) {
  byId('trouble').hidden = !text;
  byId('trouble').textContent = text;
}

async function follow() {
  let tag = null;
  for (let [looks, failures] = [0, 0]; looks < LOOKS_AFTER_END;) {
    const answer = await call('GET', `/v1/public/${encodeURIComponent(id)}`, { header: tag ? { 'If-None-Match': tag } : {} }).catch(() => null);
    if (!now && answer && codeOf(answer) === 'DEAL_NOT_FOUND') {
      byId('loading').hidden = true;
      byId('stranger').hidden = false;
      return;
    }
    if (answer?.ok) {
      tag = answer.headers.get('etag');
      now = answer.json;
      clock = answer.date - Date.now();
      page ??= await pageOf(now.deal.contents_deleted ? null : now.deal.algorithm);
      byId('loading').hidden = true;
      byId('deal').hidden = false;
      describe(now.deal);
      await showResult(now);
    }
    const read = answer?.ok || answer?.status === 304;
    failures = read ? 0 : failures + 1;
    trouble(read ? '' : answer ? COMMON.busyTrying(problemOf(answer)) : COMMON.lostTrying);
    const over = now && (['EXPIRED', 'CANCELLED', 'CERTIFIED'].includes(now.deal.state) || (ENDED.includes(now.deal.state) && now.bundle));
    if (over) looks++;
    await new Promise((done) => { setTimeout(done, 1000 * (now ? pause(now, failures) : Math.min(2 ** failures, IDLE))); });
  }
}

const address = `${facts.public_url || location.origin}/r/${id}`;
byId('address').append(element('a', { href: address }, address));
byId('copy-address').append(copyButton(PUBLIC.address, () => address, PUBLIC.copyAddress));
byId('print').addEventListener('click', () => print());
byId('qr').addEventListener('error', () => { byId('qr').hidden = true; });
byId('qr').src = `/r/${encodeURIComponent(id)}/qr.svg`;
setInterval(tick, 1000);
follow().catch((fault) => trouble(PUBLIC.failed(fault.message)));
