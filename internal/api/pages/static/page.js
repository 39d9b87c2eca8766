import { byId, call, copyButton, element } from './dom.js';
import { start as startLog } from './log.js';
import { start as startTryIt } from './tryit.js';
import { start as startVerifier } from './verifier.js';

startTryIt();
startVerifier();
startLog().catch((fault) => { byId('log-checkpoint').textContent = fault.message; });

for (const block of document.querySelectorAll('pre[data-copy]')) {
  block.textContent = block.textContent.replaceAll('ORIGIN', location.origin);
  block.before(copyButton(block.dataset.copy, () => block.textContent));
}

const [status, head] = await Promise.all([call('GET', '/v1/status'), call('GET', '/v1/log/tree-head')]).catch(() => []);
const strip = byId('deployment');
if (status?.ok && head?.ok) {
  const certificates = head.json.tree_size === 1 ? '1 certificate' : `${head.json.tree_size} certificates`;
  strip.replaceChildren(
    element('span', {}, `Version ${status.json.version}, ${certificates} in the log.`),
    element('span', {}, `Signing key: ${status.json.key_custody}.`));
  if (status.json.dev_ephemeral_key) byId('development').hidden = false;
} else {
  strip.textContent = 'The status of this deployment cannot be read just now.';
}
