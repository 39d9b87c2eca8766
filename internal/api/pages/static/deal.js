// The page of one deal, for the party whose token is in the link. It follows the deal and
// does what needs no decision: it reveals the party's sealed input once all have committed,
// and draws once the beacon round is published.

import { verifyFile } from './submitted.js';
import { countdown, describe, status } from './describe.js';
import { QUICKNET } from './bls.js';
import { byId, call, copyButton, element, once, problemOf } from './dom.js';
import { algorithmOf, drawTime, pageOf, sealTime, takesSeals } from './facts.js';
import { drafts, onSealedElsewhere, saveFile, sealed, seats, tokens } from './keep.js';
import { parse } from './jcs.js';
import { receiptFile } from './receipt.js';
import { showResult, tryAgain } from './outcome.js';
import { makeKey } from './p256.js';
import { review } from './review.js';
import { commitmentOf, seal } from './seal.js';
import { signSeat } from './seats.js';
import { Refused, Seat } from './seat.js';
import { sealOpening } from './timelock.js';
import { COMMON, SEAT } from './texts.js';
import { localTime, name, names } from './words.js';

const id = decodeURIComponent(location.pathname.split('/')[2]);
const ENDED = { COMPUTED: 'done', CERTIFIED: 'done', VOID: 'void', CANCELLED: 'cancelled', EXPIRED: 'expired' };
const LONG = 6 * 86400; // seconds; Safari deletes a page's data after seven days without a visit
const MOST_KEYS = 8; // a longer list of other parties' keys is folded
const RETRY_DECLARATION = 5; // seconds between two attempts to read the declaration
const RETRY_PAGE = 5; // seconds until the page loads again, after its forms could not be loaded
const LOOKS_AFTER_END = 3; // reads after the certificate is issued, while its witnesses cosign; then the page stops asking

let seat;
let now = null; // the newest answer: {view, party, cautions}
let phase = null;
let kept = false; // whether the answer to the commit was kept since the last new panel
let acted = false; // whether the person has acted since the last new panel
let page; // the forms and pictures of the deal's algorithm, from pageOf
let declared; // {declaration, origin} of the deal; undefined until it is read
let readFor; // whether the party had committed when the declaration was read
let early = false; // whether the form was drawn before the declaration was read
let timed = false; // whether the newest panel says that the input opens by itself

/** Returns the token of the link, or else the token stored in this tab, or of the seat that has sealed on this device. Stores the token of the link and removes it from the address bar, so that no screenshot or bookmark shows it. The browser's history may still contain the link. */
function takeToken() {
  const given = location.hash.slice(1);
  if (given.startsWith('it_')) {
    if (tokens.set(id, given)) history.replaceState(null, '', location.pathname);
    return given;
  }
  return tokens.get(id) ?? seats.get(id)?.token;
}

function phaseOf({ view, party }) {
  if (ENDED[view.state]) return ENDED[view.state];
  const { committed, commitment, revealed } = view.parties[party];
  if (!committed) return declared?.declaration.party_keys[party] ? 'keyed' : 'seal';
  if (!revealed && !held(commitment)) return opensByItself() ? 'sealed' : 'elsewhere';
  if (view.state !== 'REVEALING') return 'sealed';
  if (!revealed) return 'opening';
  return view.parties.every((p) => p.revealed) ? 'draw' : 'opened';
}

const unkept = {}; // inputs that the browser's storage refused, by commitment; they are lost when this page closes
const held = (commitment) => sealed.get(id, commitment) ?? unkept[commitment];

function keep(one) {
  if (sealed.set(id, one)) {
    navigator.storage?.persist?.().catch(() => {}); // only a request: the browser may refuse it
    return true;
  }
  unkept[one.commitment] = one;
  return false;
}

function show() {
  const [before, was] = [phase, timed];
  phase = phaseOf(now);
  timed = opensByItself();
  settleSent(now.view.parties[now.party].commitment);
  describe(now, page, declared?.declaration.beacon_chain, timed ? sealChain() : null);
  status(now.view, phase, now.party);
  tick();
  const answered = kept && now.view.parties[now.party].committed;
  if (phase !== before || answered || (phase === 'sealed' && timed !== was) || phase in { done: 1, void: 1 }) {
    kept &&= !answered;
    panels[phase](before);
  } else if (phase === 'seal' && early && declared) redraw();
}

/** Draws the form again after the declaration is read, and keeps the focus. Does nothing while the form is being sent. */
function redraw() {
  const button = byId('seal') ?? byId('review');
  if (!button || button.hasAttribute('aria-disabled')) return;
  const field = document.activeElement;
  if (byId('action').contains(field)) field.blur(); // otherwise panel() would move the focus to its heading
  ask();
  if (field.id) (byId(field.id) ?? byId('review'))?.focus({ preventScroll: true });
}

function tick() {
  if (now) countdown(now.view, phase, seat.now());
}

/** Shows a panel. Its heading gets the focus if the old panel had the focus or the person has acted. The test of the old focus is not enough, because on some systems a tap does not focus a button. */
function panel(title, ...content) {
  const had = byId('action').contains(document.activeElement);
  const heading = element('h2', { tabindex: '-1' }, title);
  byId('action').replaceChildren(heading, ...content.flat(Infinity).filter(Boolean));
  if (had || acted) {
    heading.focus({ preventScroll: true });
    byId('status-box').scrollIntoView({ block: 'nearest' }); // the status box is directly above the heading
  }
  acted = false;
}

/** Reports whether the party's input opens by itself at its beacon round. Before the party commits: whether the page will seal it so. */
function opensByItself() {
  if (!declared) return false;
  const { declaration, origin, seals } = declared;
  if (declaration.seals === 'required') return true;
  if (now.view.parties[now.party].committed) return (seals?.parties[now.party] ?? 'none') !== 'none';
  return takesSeals(origin, sealChain(), now.view);
}

/** Returns the hash of the beacon chain whose round opens the seals of the deal. If the deal declares none, this page seals only for drand quicknet, whose key it knows; another program may have sealed for the chain of the service. */
const sealChain = () => declared.declaration.beacon_chain ?? (now.view.parties[now.party].committed ? declared.seals?.chain_hash : null) ?? QUICKNET.hash;

const beforeItOpens = () => (sealChain() === QUICKNET.hash ? SEAT.untilItOpens : SEAT.couldOpen);

const whatIfLeft = () => opensByItself() ? element('p', { id: 'opens-itself' }, SEAT.needNotComeBack(element('strong', {}, localTime(sealTime(now.view.commit_deadline))), beforeItOpens()))
  : element('p', {}, SEAT.comeBack(element('strong', {}, localTime(now.view.reveal_deadline))));

function copyOf({ input, salt, seat_key, commitment }, saved = () => {}) {
  const { party } = now;
  return element('p', { class: 'actions' }, element('button', {
    type: 'button', class: 'second', id: 'save-sealed',
    onclick: () => {
      saveFile(`fairpact-${id}-party-${party}.json`, JSON.stringify({ deal_id: id, party, commitment, input, salt, seat_key }, null, 2));
      saved();
    },
  }, SEAT.saveCopy), element('span', { class: 'hint' }, SEAT.saveCopyHint(seat_key)));
}

const panels = {
  seal: () => ask(),
  keyed: () => ask(element('input', { type: 'file', id: 'seat-key' })),
  sealed() {
    const { commitment } = now.view.parties[now.party];
    const one = { ...held(commitment), commitment };
    const doubtful = opensByItself() && held(commitment) && (one.receipt ? one.doubt : SEAT.noReceipt);
    panel(opensByItself() && !doubtful ? SEAT.done : SEAT.sealed, doubtful && element('p', { class: 'warn', id: 'doubt' }, SEAT.doubt(doubtful)), element('p', {}, SEAT.nobodyCanChange, opensByItself() ? beforeItOpens() : SEAT.nobodyCanRead),
      opensByItself() ? element('p', { id: 'opens-itself' }, SEAT.opensOn(page.opens, element('strong', {}, localTime(sealTime(now.view.commit_deadline))))) : whatIfLeft(), ownInput(), held(commitment) && [ownKey(one), copyOf(one)],
      unkept[commitment] ? element('p', { class: 'warn' }, SEAT.keepsNothing)
        : now.view.reveal_deadline - seat.now() > LONG ? element('p', { class: 'warn' }, SEAT.lastsLong) : null);
  },
  elsewhere() {
    const problem = element('p', { class: 'say bad', role: 'alert' });
    const file = element('input', { type: 'file', id: 'sealed-file', accept: '.json,application/json' });
    file.addEventListener('change', async () => {
      problem.textContent = await takeCopy(await file.files[0].text());
    });
    panel(SEAT.elsewhere, element('p', {}, SEAT.sealedElsewhere),
      element('div', { class: 'card' }, element('label', { for: 'sealed-file' }, SEAT.copyLabel), file, problem),
      element('p', { class: 'warn' }, SEAT.notYou));
  },
  opening() {
    panel(SEAT.opening, element('p', {}, SEAT.openingMeans));
  },
  opened() {
    panel(SEAT.opened, element('p', {}, SEAT.partDone), ownInput(), sealsPart(), keyPart());
  },
  draw() {
    panel(SEAT.opened, element('p', {}, SEAT.partDone, SEAT.drawFollows(opensByItself())), keyPart());
  },
  done: ended,
  void: ended,
  cancelled: unsettled,
  expired: unsettled,
};

/** Returns what this party sealed, or null if the browser does not hold it or it holds no choice. */
function ownInput() {
  const one = held(now.view.parties[now.party].commitment);
  return one && (page.own || one.receipt) ? element('div', { class: 'card', id: 'own-input' }, element('h3', {}, COMMON.whatYouSealed), page.own?.(now.view, one.input), receiptOf(one)) : null;
}

/** Returns the button that saves the receipt of the party's seal, or nothing without a receipt. */
const receiptOf = (one) => one?.receipt && element('p', { class: 'actions', id: 'receipt' }, element('button', {
  type: 'button', class: 'second', id: 'save-receipt', onclick: () => saveFile(`fairpact-${id}-receipt-${now.party}.json`, JSON.stringify(one.receipt, null, 2)),
}, SEAT.saveReceipt), element('span', { class: 'hint' }, one.doubt ? SEAT.receiptDoubt(one.doubt) : SEAT.receiptProves));

/** Returns the offer of a file that settles the deal without the service, or null if the service shows the seals to nobody. The service has deleted the seals of those who opened; this party's own comes from its receipt. */
const sealsPart = () => (opensByItself() && now.view.mode === 'open' ? element('p', { class: 'actions' }, element('button', {
  type: 'button', class: 'second', id: 'save-seals', onclick: async ({ target }) => {
    try {
      const [beacon, answer] = await Promise.all([call('GET', '/v1/beacon'), seat.fetch('seals')]);
      if (!beacon.ok) throw new Error(problemOf(beacon));
      const development = beacon.json.chain_hash === QUICKNET.hash ? {} : { development_beacon: beacon.json };
      const seals = parse(answer);
      const own = seals.seals[now.party];
      own.seal ??= held(own.commitment)?.receipt?.seal ?? null;
      saveFile(`fairpact-${id}-seals.json`, JSON.stringify({ ...seals, declaration: declared.declaration, ...development }, null, 2));
      const missing = seals.seals.filter((one) => one.seal === null).map(({ party }) => now.view.parties[party].label);
      target.nextElementSibling.replaceChildren(...(missing.length ? SEAT.sealsMissing(names(missing)) : [SEAT.sealsComplete]));
    } catch (fault) {
      target.nextElementSibling.textContent = fault.message;
    }
  },
}, SEAT.saveSeals), element('span', { class: 'hint' }, SEAT.sealsMean)) : null);

/** Returns a list of the seat keys that are declared for other parties, or null. The person compares these keys before sealing. */
function otherKeys() {
  const keys = (declared?.declaration.party_keys ?? []).map((key, party) => ({ key, party })).filter(({ key, party }) => key !== null && party !== now.party);
  return keys.length ? element('details', { id: 'other-keys', open: keys.length <= MOST_KEYS }, element('summary', {}, SEAT.otherKeys(keys.length)),
    element('ul', {}, keys.map(({ key, party }) => element('li', {}, SEAT.keyOf(name(now.view.parties[party].label), party), element('code', {}, key))))) : null;
}

/** Returns the offer to sign with a new key, or null if the deal takes no keys or its declaration is not read yet. If the deal declares another origin, the offer only names that origin. */
function keyOffer() {
  if (!declared?.origin) return null;
  if (declared.origin !== location.origin) return element('p', { class: 'hint', id: 'prove-elsewhere' }, SEAT.keysElsewhere(element('code', {}, declared.origin)));
  return element('details', { id: 'prove' }, element('summary', {}, SEAT.proveLater),
    element('p', {}, SEAT.whyAKey(now.party === 0)),
    element('label', { class: 'choice' }, element('input', { type: 'checkbox', id: 'new-key' }), element('span', {}, SEAT.newKey, element('span', { class: 'hint' }, SEAT.newKeyHint))));
}

const ownKey = ({ seat_key: key }) => key && element('div', { id: 'own-key' },
  element('p', {}, SEAT.ownKey(now.party === 0)),
  element('p', { class: 'actions' }, element('code', {}, key.public), copyButton(SEAT.publicKey, () => key.public)));

/** Returns the party's public key and the button that saves a copy, or nothing without a seat key. The panels after “Sealed” show both, because the party that seals last never sees “Sealed”. */
function keyPart() {
  const { commitment } = now.view.parties[now.party];
  const one = held(commitment);
  return one?.seat_key ? [ownKey(one), copyOf({ ...one, commitment })] : [];
}

/** Returns the private key in the text of a file: PEM, or a saved copy with a seat key. */
function privateKeyIn(text) {
  try {
    return parse(text, 40).seat_key.private;
  } catch {
    return text;
  }
}

/** Shows the form for the party's input. keyFile is the field for the private key, null if the deal declares no key for this seat. */
function ask(keyFile = null) {
  const form = page.form(now.view, now.party);
  const offer = keyFile ? null : keyOffer();
  const newKey = () => offer?.querySelector('#new-key');
  early = !declared;
  let chosen = false; // the person chose a new key before a reload, but this form lacks that choice
  const problem = element('p', { class: 'say bad', id: 'problem', role: 'alert' });
  const button = element('button', page.own ? { class: 'button', id: 'review' } : { class: 'button', id: 'seal', type: 'button' }, form.button);
  const node = element('form', { class: 'card', novalidate: true, id: 'input-form' }, form.fields, keyFile && [element('label', { for: 'seat-key' }, SEAT.keyFile), keyFile, element('p', { class: 'hint' }, SEAT.keyFileHint(element('code', {}, declared.declaration.party_keys[now.party])))], offer, problem, element('p', { class: 'actions' }, button,
    element('span', { class: 'hint' }, page.own ? SEAT.nothingSealed : SEAT.drawIsFinal)));
  node.addEventListener('input', () => { problem.textContent = ''; });
  const open = () => panel(SEAT.yourTurn, form.intro, otherKeys(), node, whatIfLeft());
  const send = async (one) => (keep(one) ? commit(one) : saveFirst(one)); // keep the input first: the service's answer may be lost
  node.addEventListener('submit', (event) => event.preventDefault());
  button.addEventListener('click', (event) => { // Enter in a field clicks a submit button, which only reviews
    event.preventDefault();
    once(button, async () => {
      problem.textContent = '';
      try {
        const one = await seal(form.read());
        if (chosen && !declared) throw new Error(SEAT.keyTooEarly);
        if (newKey()?.checked) one.seat_key = await makeKey();
        const key = keyFile ? { public: declared.declaration.party_keys[now.party], private: privateKeyIn(await keyFile.files[0]?.text()) } : one.seat_key;
        if (key) one.signed = await signSeat(key, declared, now.view, now.party, one.commitment);
        if (!page.own) return await send(one);
        acted = true;
        review(panel, page.own(now.view, one.input), form.doubts(), () => {
          acted = true;
          open();
        }, () => send(one), opensByItself() ? beforeItOpens() : null);
      } catch (fault) {
        problem.textContent = fault.message;
      }
    });
  });
  open();
  [chosen] = remember(node, form.refresh);
  if (newKey()?.checked) offer.open = true;
}

function unsettled() {
  panel(SEAT.nothingSettled, element('p', {}, SEAT.noCertificate, tryAgain(now.view, now.party)), forget());
}

function ended() {
  const { commitment } = now.view.parties[now.party];
  const own = held(commitment);
  showResult({ ...now, page, seat, own, consented: () => keep({ ...own, consented: true, commitment }), end: [keyPart(), receiptOf(own), forget()] }, panel);
}

/** Returns a button that deletes the deal's inputs and keys from this browser, or null if the browser keeps none. */
function forget() {
  const key = held(now.view.parties[now.party].commitment)?.seat_key;
  return sealed.any(id) ? element('p', { class: 'actions' }, element('button', {
    type: 'button', class: 'second', id: 'forget', onclick: (event) => {
      sealed.dropAll(id);
      seats.drop(id);
      byId('own-key')?.remove();
      byId('own-input')?.remove();
      byId('receipt')?.remove();
      byId('save-sealed')?.closest('p').remove();
      event.target.closest('p').textContent = SEAT.forgotten;
    },
  }, SEAT.forget), element('span', { class: 'hint' }, SEAT.forgetHint(key))) : null;
}

/** Restores the values typed before a reload of this tab, and keeps new ones. Returns the stored values that have no field in this form. Only the choice of a new key may lack a field. */
function remember(form, refresh = () => {}) {
  const fields = [...form.querySelectorAll('input:not([type=file]), textarea')];
  const on = (field) => (field.type === 'radio' || field.type === 'checkbox' ? 'checked' : 'value');
  const typed = drafts.get(id) ?? [];
  const rest = typed.slice(fields.length);
  fields.forEach((field, i) => { field[on(field)] = typed[i] ?? field[on(field)]; });
  refresh();
  form.addEventListener('input', () => drafts.set(id, [...fields.map((field) => field[on(field)]), ...rest]));
  return rest;
}

/** Asks the person to save a copy before the page sends the commitment. Used if the browser's storage refused the input: after this page closes, only the copy can open the commitment. */
function saveFirst(one) {
  const problem = element('p', { class: 'say bad', role: 'alert' });
  const button = element('button', {
    type: 'button', class: 'button', id: 'seal-saved', disabled: true,
    onclick: () => once(button, () => commit(one).catch((fault) => { problem.textContent = fault.message; })),
  }, SEAT.haveCopy);
  panel(SEAT.saveFirst, element('p', {}, SEAT.saveFirstWhy),
    copyOf(one, () => { button.disabled = false; }), problem, element('p', { class: 'actions' }, button));
}

let sent = null; // the commitment that this page sent; null after the deal shows which one was accepted

/** If the service accepted another commitment for the seat, deletes the input that this page sealed. */
function settleSent(commitment) {
  if (!sent || !commitment) return;
  if (sent !== commitment) sealed.drop(id, sent);
  sent = null;
}

/** Returns what the page sends in addition to the commitment if the deal takes seals: the opening, sealed for the round of the deal on a beacon. */
async function timelocked({ input, salt }) {
  declared ??= await readDeclared();
  if (!opensByItself()) return {};
  const beacon = await call('GET', '/v1/beacon');
  if (!beacon.ok) throw new Error(problemOf(beacon));
  if (beacon.json.chain_hash !== sealChain()) throw new Error(SEAT.wrongChain(sealChain(), beacon.json.chain_hash));
  return { beacon: beacon.json, seal: await sealOpening(beacon.json, now.view.commit_deadline, { deal_id: id, party: now.party, input, salt }) };
}

async function commit(one) {
  try {
    const locked = await timelocked(one);
    const { json } = await seat.act('commit', { commitment: one.commitment, ...one.signed, seal: locked.seal });
    if (locked.seal) {
      const { file: receipt, doubt } = await receiptFile(locked, json?.receipt, { deal: id, party: now.party, commitment: one.commitment, origin: declared.origin, deadline: now.view.commit_deadline });
      keep({ ...one, receipt, doubt });
      kept = true; // the deal may have shown the commitment before, and its panel no receipt
    }
  } catch (fault) {
    if (fault.final) sealed.drop(id, one.commitment);
    throw fault;
  }
  sent = one.commitment;
  acted = true;
  seats.set(id, { token: seat.token, title: byId('title').textContent });
  drafts.drop(id);
  seat.lookNow(); // reads whether the service accepted this commitment
}

/** Keeps the sealed input of a saved copy. Returns what is wrong with the copy, or ''. */
async function takeCopy(text) {
  const { commitment } = now.view.parties[now.party];
  try {
    const { input, salt, seat_key } = parse(text, 40);
    if (typeof salt !== 'string' || await commitmentOf(input, salt) !== commitment) return SEAT.wrongCopy;
    keep({ input, salt, seat_key, commitment });
  } catch (fault) {
    return SEAT.badCopy(fault.message);
  }
  seat.lookNow();
  return '';
}

/** Takes the next step that needs no decision. Returns false if there is no such step. */
async function due() {
  if (phase === 'opening') {
    const { input, salt } = held(now.view.parties[now.party].commitment);
    await seat.act('reveal', { input, salt });
    return true;
  }
  if (phase === 'draw' && drawTime(now.view) <= seat.now()) {
    const answer = await seat.act('entropy');
    if (!answer.ok) await seat.pause(2);
    return true;
  }
  return false;
}

/** Returns the deal's declaration, or undefined if it cannot be read now. */
async function readDeclared() {
  try {
    return parse(await seat.fetch('declaration'), 40);
  } catch {
    return undefined; // the page works without it, and follow() reads it again
  }
}

/** Reports whether the page needs the declaration. A party needs it before sealing, and until its input is open. The page of a draw always shows the declared beacon chain. */
const needsDeclared = ({ view, party }) => !view.contents_deleted && ((!ENDED[view.state] && !view.parties[party].revealed) || algorithmOf(view.algorithm)?.needs_beacon !== false);

/** Reloads the page, because a browser may not fetch a module again that it could not load. Nothing is sealed yet that a reload would lose. */
async function again(own) {
  own.onTrouble(SEAT.loadsAgain);
  await own.pause(RETRY_PAGE);
  await own.view(1); // so that the page is not left while the service is away
  location.reload();
  await new Promise(() => {});
}

/** Follows the deal for one seat. Ends when no change is expected, or when another token is entered. */
async function follow(own) {
  for (let looks = 0; looks < LOOKS_AFTER_END;) {
    try {
      const next = await own.view(phase === 'draw' ? drawTime(now.view) - own.now() : phase === 'seal' && !declared ? RETRY_DECLARATION : undefined);
      if (seat !== own) return;
      const forms = page ?? pageOf(next.view.contents_deleted ? null : next.view.algorithm).catch(() => again(own)); // while the declaration is read
      const { committed } = next.view.parties[next.party];
      if (readFor !== committed && needsDeclared(next)) { // again once the party has committed, because it says which commitments have a seal
        const read = await readDeclared();
        if (seat !== own) return;
        if (read) [declared, readFor] = [read, committed];
      }
      page = await forms;
      if (seat !== own) return;
      now = next;
      byId('stranger').hidden = true;
      byId('loading').hidden = true;
      byId('deal').hidden = false;
      show();
      await due();
    } catch (fault) {
      if (seat !== own) return;
      const refused = fault instanceof Refused;
      if (refused) stranger(fault);
      else own.onTrouble(fault.message);
      await own.pause(refused ? 30 : 15); // retry even after a refusal: a sealed input must be revealed in time
      if (seat !== own) return;
    }
    if (phase in { cancelled: 1, expired: 1 } || now?.view.state === 'CERTIFIED' || (phase === 'void' && now.view.certificate_id)) return;
    if (now?.view.certificate_id) looks++;
  }
}

function stranger(refusal) {
  byId('loading').hidden = true;
  byId('deal').hidden = true;
  byId('stranger').hidden = false;
  byId('refusal').hidden = !refusal;
  byId('refusal').textContent = refusal ? SEAT.refused[refusal.code] ?? refusal.message : '';
}

function start(token) {
  now = null;
  phase = null;
  declared = readFor = undefined;
  seat = new Seat(id, token, (trouble) => {
    byId('trouble').hidden = !trouble;
    byId('trouble').textContent = trouble ?? '';
  });
  byId('copy-link').replaceChildren(copyButton(SEAT.myLink, () => `${location.origin}${location.pathname}#${token}`, SEAT.copyMyLink, SEAT.noCopyLink));
  byId('stranger').hidden = true;
  byId('loading').hidden = false;
  follow(seat);
}

byId('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  const token = byId('token').value.trim();
  byId('token').value = '';
  tokens.set(id, token);
  start(token);
});
byId('submitted').addEventListener('change', () => verifyFile(byId('submitted').files[0], byId('submitted-report')));
addEventListener('hashchange', () => { // reload only for a token: the skip link changes the hash too
  if (location.hash.startsWith('#it_') && takeToken() !== seat?.token) location.reload();
});

onSealedElsewhere(id, () => seat?.lookNow());
setInterval(tick, 1000);

const token = takeToken();
if (token) start(token);
else stranger();
