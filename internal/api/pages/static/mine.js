// The deals of this device: seats that have sealed, deals made here with their invitations, and raffles. A link to each, its
// state, and how to forget it.

import { byId, call, element } from './dom.js';
import { created, made, sealed, seats } from './keep.js';
import { MINE } from './texts.js';
import { isolated, name, names } from './words.js';

const ENDED = { COMPUTED: 'result', CERTIFIED: 'result', VOID: 'void', CANCELLED: 'cancelled', EXPIRED: 'expired' };

/** Lists the deals. actForAll: continues a raffle; forgetDeal: deletes the links of a deal from this browser. */
export function listDeals(actForAll, forgetDeal) {
  const rows = [...new Set([...made.deals(), ...seats.deals()])].map((deal) => row(deal, actForAll, forgetDeal));
  byId('mine').hidden = rows.length === 0;
  byId('mine').querySelector('ul').append(...rows.map(({ node }) => node));
  byId('mine').addEventListener('toggle', async () => { // one after the other, and only for who looks
    for (const { read } of rows) await read();
  }, { once: true });
}

function row(deal, actForAll, forgetDeal) {
  const [seat, offer] = [seats.get(deal), made.get(deal)];
  const id = encodeURIComponent(deal);
  const watched = offer?.watched || offer?.raffle; // its organiser watches the public page
  const title = seat?.title ?? offer?.title;
  const link = element('a', { href: watched ? `/r/${id}` : `/d/${id}${seat || !offer ? '' : `#${offer.own}`}` }, title ? name(title) : watched ? MINE.draw : MINE.dealWith(names((offer?.texts ?? []).map(({ label }) => label), 4)));
  const state = element('span', { class: 'badge' });
  const button = (words, act) => element('button', { type: 'button', class: 'copy', 'aria-label': MINE.actOn(words, isolated(link.textContent)), onclick: act }, words);
  const invitations = offer?.texts?.length > 0 && button(MINE.invitations, () => {
    created.set('', offer);
    location.reload();
  });
  let ended = false;
  const node = element('li', { class: 'actions' }, link, state, offer?.raffle ? button(MINE.continue, () => actForAll(offer)) : invitations || null, button(MINE.forget, () => {
    forgetDeal(deal);
    if (ended) sealed.dropAll(deal); // before the end the invitation still needs it
    node.remove();
    byId('mine').querySelector('summary').focus();
  }));

  /** Reads the state of the deal, and hides invitations that nobody needs any more. */
  async function read() {
    const answer = await (watched ? call('GET', `/v1/public/${id}`) : call('GET', `/v1/deals/${id}`, { token: seat?.token ?? offer.own })).catch(() => null);
    if (!answer?.ok) return;
    const view = watched ? answer.json.deal : answer.json;
    const own = view.parties[answer.headers.get('fairpact-party') ?? -1];
    ended = view.state in ENDED;
    const count = view.parties.filter((p) => p.committed).length;
    state.textContent = ended ? MINE.ended[ENDED[view.state]] : own && !own.committed ? MINE.yourTurn : MINE.sealed(count, view.parties.length);
    state.classList.toggle('on', ENDED[view.state] === 'result');
    if (invitations) invitations.hidden = ended || count === view.parties.length;
  }
  return { node, read };
}
