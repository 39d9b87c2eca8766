// The invitations of a deal, from the template of package invitation.

import { facts, sealTime } from './facts.js';
import { INVITATION } from './texts.js';

const address = facts.public_url || location.origin;

const utc = (seconds) => `${new Date(seconds * 1000).toUTCString().slice(0, 22)} UTC`;

export const linkOf = (deal, token) => `${address}/d/${deal}#${token}`;

/** Returns title, message and audience as package invitation writes them. */
function wordsOf(from, title, message, audience) {
  const words = `${title ? INVITATION.title(title) : ''}${message ? INVITATION.message(from, `> ${message.replaceAll('\n', '\n> ')}`) : ''}${audience ? INVITATION.public : ''}`;
  return words && `${words}\n`;
}

/** Returns the text for one party: {deal, algorithm, from, invite, commitDeadline, revealDeadline, once, title, message, audience}. from: the initiator's label. once: the deal requires seals. */
export function invitation({ deal, algorithm, from, invite, commitDeadline, revealDeadline, once, title, message, audience }) {
  const values = {
    base: address, deal_id: deal, algorithm: algorithm.id, purpose: algorithm.purpose, ready: algorithm.ready, from, words: wordsOf(from, title, message, audience), label: invite.label, party: String(invite.party),
    token: invite.token, commit_by: utc(commitDeadline), reveal_by: utc(revealDeadline), opens_by: utc(sealTime(commitDeadline)), commit_deadline: String(commitDeadline), reveal_deadline: String(revealDeadline),
  };
  // All placeholders are replaced in one pass, because a label may contain a placeholder.
  return (once ? facts.invitation_once : facts.invitation).replace(/\{([a-z_]+)\}/g, (place, key) => values[key] ?? place);
}
