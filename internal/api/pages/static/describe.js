import { QUICKNET } from './bls.js';
import { calendarOf } from './calendar.js';
import { byId, element } from './dom.js';
import { algorithmOf, drawTime, sealRound, sealTime } from './facts.js';
import { saveFile } from './keep.js';
import { ABOUT, COMMON } from './texts.js';
import { duration, localTime, name, names } from './words.js';

const MOST_LISTED = 50;

/** Shows the deal's parties, deadlines and rules. page: from pageOf. chain: hash of the declared beacon chain, undefined if the page has not read it or there is none; sealedFor: hash of the chain whose round opens the seals, null if the party opens by hand. */
export function describe({ view, party, cautions }, page, chain, sealedFor) {
  const you = view.parties[party];
  byId('kicker').replaceChildren(...ABOUT.you(element('strong', {}, name(you.label))));
  const subject = page.title(names(view.parties.map((p) => p.label), 4), view.algorithm_params, view.algorithm);
  byId('title').replaceChildren(...(view.title ? [name(view.title)] : subject));
  byId('subject').hidden = !view.title;
  if (view.title) byId('subject').replaceChildren(...subject);
  byId('words').hidden = !view.title && !view.message;
  byId('message').textContent = view.message ?? '';
  byId('writer').textContent = view.parties[0].label;
  byId('cautions').hidden = cautions.length === 0 || you.committed;
  byId('cautions').querySelector('ul').replaceChildren(...cautions.map((text) => element('li', {}, inWords(text, view))));
  showParties(view, party, cautions);
  const times = [[ABOUT.sealBy, view.commit_deadline], sealedFor ? [ABOUT.opensByItself, sealTime(view.commit_deadline)] : [ABOUT.openBy, view.reveal_deadline], ...(drawTime(view) ? [[ABOUT.drawAt, drawTime(view)]] : [])];
  byId('calendar').onclick = () => saveFile(`fairpact-${view.deal_id}.ics`, calendarOf(view.deal_id, byId('title').textContent, times), 'text/calendar');
  byId('until').hidden = STEP[view.state] === 2 || !(view.state in STEP);
  byId('times').replaceChildren(
    ...times.flatMap(([what, at]) => fact(what, localTime(at))),
    ...fact(...ABOUT.late));
  const about = algorithmOf(view.algorithm);
  byId('rules').replaceChildren(
    ...fact(ABOUT.settles, about ? ABOUT.purpose(about.purpose) : ABOUT.unknownPurpose),
    ...fact(ABOUT.algorithm, element('code', {}, view.algorithm)),
    ...(chain && drawTime(view) ? fact(ABOUT.randomValue, round(view.algorithm_params.beacon_round, chain, 'chain')) : []),
    ...(sealedFor ? fact(ABOUT.opensSeals, round(sealRound(view.commit_deadline), sealedFor, 'seal-chain'), sealedFor === QUICKNET.hash ? '' : ABOUT.couldOpen) : []),
    ...(view.audience ? fact(ABOUT.whoSeesDeal, ...ABOUT.everybody(element('a', { href: `/r/${view.deal_id}`, id: 'public-page' }, ABOUT.publicPage))) : []),
    ...fact(ABOUT.whoSeesSealed, whoSees(view, about), ABOUT.operatorSees),
    ...fact(ABOUT.afterwards, view.contents_deleted ? ABOUT.contentsDeleted : view.retention === 'purge' ? ABOUT.purges : ABOUT.keeps));
}

const round = (number, chain, id) => ABOUT.round(number, chain === QUICKNET.hash, element('code', { id }, chain));

function whoSees(view, about) {
  if (view.retention === 'purge') return ABOUT.deleted;
  if (view.mode === 'open' || about?.needs_beacon) return ABOUT.allSee;
  return ABOUT.allConsent;
}

function inWords(text, view) {
  if (text.startsWith('beacon_round')) return ABOUT.earlyRound(localTime(drawTime(view)), localTime(view.reveal_deadline));
  return text[0].toUpperCase() + text.slice(1);
}

const fact = (what, ...value) => [element('dt', {}, what), element('dd', {}, value)];

/** Shows the parties, with their numbers where the service cautions that two labels look alike. */
function showParties(view, party, cautions) {
  const alike = cautions.flatMap((text) => /^parties (\d+) and (\d+) have labels/.exec(text)?.slice(1).map(Number) ?? []);
  const order = [view.parties[party], ...view.parties.filter((p) => p.index !== party)];
  byId('parties').replaceChildren(...order.slice(0, MOST_LISTED).map((p) => element('li', { class: p.index === party ? 'you' : null },
    element('span', { class: 'label' }, name(p.label), p.index === party ? COMMON.thisIsYou : '', alike.includes(p.index) ? element('span', { class: 'hint' }, ABOUT.party(p.index)) : null),
    element('span', { class: `badge ${p.revealed || p.committed ? 'on' : ''}` }, ABOUT.badges[p.revealed ? 'opened' : p.committed ? 'sealed' : view.state === 'VOID' ? 'late' : 'missing']))));
  const rest = view.parties.length - MOST_LISTED;
  byId('more-parties').hidden = rest <= 0;
  byId('more-parties').textContent = ABOUT.moreParties(rest, view.parties.filter((p) => p.committed).length, view.parties.length);
}

const STEP = { OPEN: 0, COMMITTING: 0, REVEALING: 1, COMPUTED: 2, CERTIFIED: 2 };

/** Shows the state in plain words and marks its step in the progress bar. */
export function status(view, phase, party) {
  const step = STEP[view.state];
  for (const [i, item] of [...byId('progress').children].entries()) {
    item.classList.toggle('past', step !== undefined && (i < step || view.state in { COMPUTED: 1, CERTIFIED: 1 }));
    if (i === step) item.setAttribute('aria-current', 'step');
    else item.removeAttribute('aria-current');
  }
  byId('progress').hidden = step === undefined;
  const missing = (done) => names(view.parties.filter((p) => !p[done]).map((p) => p.label));
  const given = {
    sealed: () => [missing('committed')],
    opened: () => [missing('revealed')],
    done: () => [view.certificate_id],
    void: () => [names((view.void_flakers ?? []).map((i) => (i === party ? ABOUT.youAsOne : view.parties[i].label))), whyVoid(view)],
    expired: () => [algorithmOf(view.algorithm)?.needs_beacon],
  }[phase]?.() ?? [];
  const line = element('p', {}, ABOUT.status[phase](...given));
  if (byId('status').textContent !== line.textContent) byId('status').replaceChildren(...line.childNodes);
  byId('status-box').dataset.phase = phase;
  document.title = ABOUT.pageTitle(ABOUT.titles[phase]);
}

function whyVoid(view) {
  const late = view.void_flakers ?? [];
  if (late.some((i) => !view.parties[i].committed)) return ABOUT.whyVoid.unsealed;
  if (late.some((i) => !view.parties[i].revealed)) return ABOUT.whyVoid.unopened;
  return algorithmOf(view.algorithm)?.may_reject ? ABOUT.whyVoid.rejected : ABOUT.whyVoid.unfit;
}

const URGENT = 300; // seconds; the last minutes look like the last minutes

/** Shows the time left in the phase. now: the service's time in unix seconds. */
export function countdown(view, phase, now) {
  const until = { seal: view.commit_deadline, keyed: view.commit_deadline, elsewhere: view.commits_closed_at ? view.reveal_deadline : view.commit_deadline, sealed: view.commit_deadline, opening: view.reveal_deadline, opened: view.reveal_deadline, draw: drawTime(view) }[phase];
  const out = byId('countdown');
  out.hidden = !until;
  const urgent = until > now && until - now < URGENT && phase !== 'draw';
  out.classList.toggle('urgent', urgent);
  if (until) out.textContent = until > now ? ABOUT.left(duration(until - now), ABOUT.leftTo[phase], localTime(until)) : ABOUT.timeIsUp(phase === 'draw', localTime(until));
  if (urgent) document.title = out.textContent;
}
