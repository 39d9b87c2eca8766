#!/usr/bin/env node
// Verifies a bundle, with the exit codes of Fairpact's other verifiers.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { canonical, isBundle, knownKeys, parse, parsePolicy, verifyBundle } from './index.js';

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      pubkey: { type: 'string', multiple: true, default: [] }, policy: { type: 'string' }, opening: { type: 'string', multiple: true, default: [] },
      'seat-key': { type: 'string', multiple: true, default: [] }, deal: { type: 'string' }, json: { type: 'boolean', default: false },
    },
  });
  if (positionals.length !== 1) throw new Error('give one file: fairpact-verify BUNDLE [--pubkey KEY]… [--policy FILE] [--opening FILE]… [--seat-key N=KEY]… [--deal ID] [--json]');
  const bundle = parse(readFileSync(positionals[0], 'utf8'));
  if (!isBundle(bundle)) throw new Error(`${positionals[0]} is not a bundle: give the answer of GET /v1/deals/{id}/bundle`);
  const verdict = await verifyBundle({
    bundle, keys: values.pubkey.map((pubkey) => ({ pubkey })), policy: values.policy ? await parsePolicy(readFileSync(values.policy, 'utf8')) : null,
    known: knownKeys(values['seat-key'].join('\n')), openings: values.opening.map((file) => parse(readFileSync(file, 'utf8'))),
  });
  const short = (value) => ((text) => (text.length > 200 ? `${text.slice(0, 200)}...` : text))(typeof value === 'string' ? value : canonical(value ?? null));
  const { deal_id, algorithm, outcome, parties, result } = bundle.certificate ?? {};
  const rows = Array.isArray(parties) ? parties : [];
  const of = {
    deal_id: short(deal_id), algorithm: short(algorithm), outcome: short(outcome), parties: rows.length, labels: rows.slice(0, 16).map((row) => short(row?.label)), result: short(result),
    log: short(String(bundle.log_proof ?? '').split('\n\n')[1]?.split('\n')[0] ?? ''),
  };
  if (values.deal !== undefined) {
    const ok = deal_id === values.deal;
    verdict.checks.push({ name: 'deal', title: 'It is of the deal that you named', ok, detail: ok ? values.deal : `the certificate is of deal ${of.deal_id}, not of ${values.deal}`, facts: [] });
    verdict.valid &&= ok;
  }
  const code = !verdict.valid ? 1 : verdict.claims[0].status === 'proven' ? 0 : 4;
  if (values.json) {
    console.log(JSON.stringify({ ...of, ...verdict }, null, 2));
    return code;
  }
  const printable = (text) => text.replace(/[^ -~’]/g, (c) => `\\u{${c.codePointAt(0).toString(16)}}`); // strangers write labels
  for (const { name, ok, detail } of verdict.checks) console.log(printable(`${ok ? 'OK  ' : 'FAIL'} ${name.padEnd(22)} ${detail}`));
  const labels = [...of.labels.map((label, i) => `${i} ${JSON.stringify(label)}`), ...(of.parties > of.labels.length ? [`and ${of.parties - of.labels.length} more`] : [])];
  for (const [name, text] of [['certificate of deal', `${of.deal_id}, ${of.algorithm}, ${of.outcome}`], ['parties', labels.join(', ')], ['result', of.result], ['log', of.log]]) if (text) console.log(printable(`${name.padEnd(23)} ${text}`));
  for (const { status, claim, detail } of verdict.claims) console.log(printable(`${status.padEnd(14)} ${claim.padEnd(8)} ${detail}`));
  console.log({ 0: 'valid', 1: 'NOT VALID', 4: 'CONSISTENT, ISSUER UNKNOWN' }[code]);
  return code;
}

try {
  process.exitCode = await main();
} catch (fault) {
  console.error(`fairpact-verify: ${fault.message}`);
  process.exitCode = 2;
}
