import { QUICKNET } from './bls.js';
import { calendarOf } from './calendar.js';
import { byId, element } from './dom.js';
import { algorithmOf, drawTime, sealRound, sealTime } from './facts.js';
import { saveFile } from './keep.js';
import { duration, localTime, name, names } from './words.js';

const MOST_LISTED = 50;

/** Shows the deal's parties, deadlines and rules. page: from pageOf. chain: hash of the declared beacon chain, undefined if the page has not read it or there is none; sealedFor: hash of the chain whose round opens the seals, null if the party opens by hand. */
export function describe({ view, party, cautions }, page, chain, sealedFor) {
  const you = view.parties[party];
  byId('kicker').replaceChildren('You are ', element('strong', {}, name(you.label)));
  const subject = page.title(names(view.parties.map((p) => p.label), 4), view.algorithm_params, view.algorithm);
  byId('title').replaceChildren(...(view.title ? [name(view.title)] : subject));
  byId('subject').hidden = !view.title;
  if (view.title) byId('subject').replaceChildren(...subject);
  byId('words').hidden = !view.title && !view.message;
  byId('message').textContent = view.message ?? '';
  byId('writer').textContent = view.parties[0].label;
  byId('cautions').hidden = cautions.length === 0 || you.committed;
  byId('cautions').querySelector('ul').replaceChildren(...cautions.map((text) => element('li', {}, inWords(text, view))));
  showParties(view, party);
  const times = [['Seal by', view.commit_deadline], sealedFor ? ['Opens by itself', sealTime(view.commit_deadline)] : ['Open by', view.reveal_deadline], ...(drawTime(view) ? [['Draw at', drawTime(view)]] : [])];
  byId('calendar').hidden = !(view.state in STEP) || STEP[view.state] === 2;
  byId('calendar').onclick = () => saveFile(`fairpact-${view.deal_id}.ics`, calendarOf(view.deal_id, byId('title').textContent, times), 'text/calendar');
  byId('times').replaceChildren(
    ...times.flatMap(([what, at]) => fact(what, localTime(at))),
    ...fact('If a party is late', 'the deal is void, and the signed certificate names who was late.'));
  const about = algorithmOf(view.algorithm);
  byId('rules').replaceChildren(
    ...fact('It settles', about ? `${about.purpose}.` : 'what this page has no words for.'),
    ...fact('Algorithm', element('code', {}, view.algorithm)),
    ...(chain && drawTime(view) ? fact('Random value', round(view.algorithm_params.beacon_round, chain, 'chain')) : []),
    ...(sealedFor ? fact('What opens the seals', round(sealRound(view.commit_deadline), sealedFor, 'seal-chain'), sealedFor === QUICKNET.hash ? '' : '. Whoever runs it could open the seals at any time.') : []),
    ...(view.audience ? fact('Who sees the deal', 'Everybody who has the address of ', element('a', { href: `/r/${view.deal_id}`, id: 'public-page' }, 'its public page'), ', but not the inputs.') : []),
    ...fact('Who sees the inputs', whoSees(view, about), ' The operator can read each input once it is opened.'),
    ...fact('Afterwards', view.contents_deleted ? 'the service has deleted the inputs and the terms. Its certificate stays.' : view.retention === 'purge' ? 'the service deletes all inputs when the deal ends.' : 'the service keeps the inputs, encrypted.'));
}

const round = (number, chain, id) => [`round ${number} of ${chain === QUICKNET.hash ? 'drand quicknet' : 'a beacon that is not drand quicknet'}, chain `, element('code', { id }, chain)];

function whoSees(view, about) {
  if (view.retention === 'purge') return `No other party: they are deleted.${about?.may_reject ? '' : ' So the service cannot help to check the result.'}`;
  if (view.mode === 'open' || about?.needs_beacon) return 'All parties, once the result is there, so that each can check it.';
  return `The other parties only if all consent, once the result is there.${about?.may_reject ? '' : ' Until then the result is the operator’s word.'}`;
}

function inWords(text, view) {
  if (text.startsWith('beacon_round')) {
    return `The random value of this draw is public from ${localTime(drawTime(view))} on, before the last party has to open (${localTime(view.reveal_deadline)}): whoever opens last can know the winner first.`;
  }
  return text[0].toUpperCase() + text.slice(1);
}

const fact = (what, ...value) => [element('dt', {}, what), element('dd', {}, value)];

function showParties(view, party) {
  const order = [view.parties[party], ...view.parties.filter((p) => p.index !== party)];
  byId('parties').replaceChildren(...order.slice(0, MOST_LISTED).map((p) => element('li', { class: p.index === party ? 'you' : null },
    element('span', { class: 'label' }, name(p.label), p.index === party ? ' (you)' : '', element('span', { class: 'hint' }, ` party ${p.index}`)),
    element('span', { class: `badge ${p.revealed || p.committed ? 'on' : ''}` }, p.revealed ? 'opened' : p.committed ? 'sealed' : view.state === 'VOID' ? 'not sealed' : 'not sealed yet'))));
  const rest = view.parties.length - MOST_LISTED;
  byId('more-parties').hidden = rest <= 0;
  byId('more-parties').textContent = `and ${rest} more; ${view.parties.filter((p) => p.committed).length} of all ${view.parties.length} have sealed`;
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
  const open = view.parties.filter((p) => !p.committed).map((p) => p.label);
  const closed = view.parties.filter((p) => !p.revealed).map((p) => p.label);
  const words = {
    seal: ['It is your turn: seal your input.'],
    keyed: ['It is your turn: seal your input, signed with the key of your seat.'],
    elsewhere: ['Your seat has sealed an input, and this browser does not hold it.'],
    sealed: ['You have sealed. Waiting for ', ...names(open), '.'],
    opening: ['Everybody has sealed. Opening yours…'],
    opened: ['Everybody has sealed, and yours is open. Waiting for ', ...names(closed), '.'],
    draw: ['Everybody has opened. Waiting for the public beacon to draw.'],
    done: [view.certificate_id ? 'Settled. The certificate of the result is signed and in the public log.' : 'Settled. The result is there; its certificate is being signed.'],
    void: ['Void: ', ...names((view.void_flakers ?? []).map((i) => (i === party ? 'you' : view.parties[i].label))), ` ${whyVoid(view)}.`],
    cancelled: ['Cancelled by its initiator before anybody else had sealed.'],
    expired: [`Ended without a result: ${algorithmOf(view.algorithm)?.needs_beacon ? 'the public beacon could not be read in time' : 'the service could not open an input'}. No party is at fault.`],
  }[phase];
  const line = element('p', {}, words);
  if (byId('status').textContent !== line.textContent) byId('status').replaceChildren(...line.childNodes);
  byId('status-box').dataset.phase = phase;
  document.title = `${{ seal: 'Your turn', keyed: 'Your turn', elsewhere: 'Your turn', done: 'Settled', void: 'Void' }[phase] ?? 'Waiting'}: a Fairpact deal`;
}

function whyVoid(view) {
  const late = view.void_flakers ?? [];
  if (late.some((i) => !view.parties[i].committed)) return 'did not seal in time';
  if (late.some((i) => !view.parties[i].revealed)) return 'did not open in time';
  return algorithmOf(view.algorithm)?.may_reject ? 'rejected the terms' : 'gave an input that does not fit the rules';
}

const URGENT = 300; // seconds; the last minutes look like the last minutes
const LEFT_TO = { seal: ' to seal', keyed: ' to seal', sealed: ' to seal', opening: ' to open', opened: ' to open', draw: ' to the draw' };

/** Shows the time left in the phase. now: the service's time in unix seconds. */
export function countdown(view, phase, now) {
  const until = { seal: view.commit_deadline, keyed: view.commit_deadline, elsewhere: view.commits_closed_at ? view.reveal_deadline : view.commit_deadline, sealed: view.commit_deadline, opening: view.reveal_deadline, opened: view.reveal_deadline, draw: drawTime(view) }[phase];
  const out = byId('countdown');
  out.hidden = !until;
  const urgent = until > now && until - now < URGENT && phase !== 'draw';
  out.classList.toggle('urgent', urgent);
  if (until) out.textContent = until > now ? `${duration(until - now)} left${LEFT_TO[phase] ?? ''}, until ${localTime(until)}` : `${phase === 'draw' ? 'The beacon round is due' : 'The time is up'} (${localTime(until)})`;
  if (urgent) document.title = out.textContent;
}
