// Shows the newest checkpoint of the log and its cosigners on the front page.

import { toHex } from './bytes.js';
import { byId, call, element } from './dom.js';
import { parseNote, parsePolicy } from './notes.js';

const row = (title, ...words) => element('div', {}, element('dt', {}, title), element('dd', {}, words));

function witnesses(note, policy) {
  const lines = new Set(note.lines.map((line) => `${line.name}+${toHex(line.id)}`));
  return [...policy.witnesses.values()].map((key) => `${key.name} (${lines.has(key.words) ? 'cosigned' : 'not yet'})`);
}

export async function start() {
  const place = byId('log-checkpoint');
  const status = await call('GET', '/v1/log/status');
  if (!status.ok) throw new Error('The log cannot be read just now.');
  const { origin, checkpoint_size: size, certified_size: certified, quorum } = status.json;
  if (origin === null) {
    place.replaceChildren(element('p', {}, 'This deployment publishes no checkpoints: its operator has set no log key. Certificates verify against its tree head.'));
    return;
  }
  if (size === null) {
    place.replaceChildren(element('p', {}, 'The first checkpoint is being signed; load this page again in a few seconds.'));
    return;
  }
  const answers = await Promise.all([call('GET', '/checkpoint'), quorum ? call('GET', '/v1/log/policy') : null]);
  if (answers.some((answer) => answer && !answer.ok)) throw new Error('The log cannot be read just now.');
  const note = parseNote(answers[0].text);
  const cosigned = quorum ? witnesses(note, await parsePolicy(answers[1].text)) : [];
  place.replaceChildren(
    element('dl', { class: 'log' },
      row('Log', element('code', {}, note.origin)),
      row('Certificates', String(note.size)),
      row('Root', element('code', {}, toHex(note.root))),
      row('Witnesses', quorum ? `${cosigned.join(', ')}; their quorum has cosigned the first ${certified ?? 0} certificates` : 'none: only the operator says that everybody sees the same log')),
    element('details', {}, element('summary', {}, 'The checkpoint as it was signed'), element('pre', {}, answers[0].text)));
}
