// Computes the result of a deal from its seals, its declaration and drand alone, if the service stopped or refuses.
// `fairpactctl settle` does the same.

import { known as algorithm } from './algorithms.js';
import { QUICKNET, signed } from './bls.js';
import { bytesOf, fromHex, sha256, toHex } from './bytes.js';
import { element, once } from './dom.js';
import { canonical, isObject, parse } from './jcs.js';
import { openSeal } from './opening.js';
import { digestOf } from './seats.js';
import { chainHash, roundOf } from './timelock.js';
import { opening } from './verify.js';
import { localTime, names } from './words.js';

export const isSeals = (v) => isObject(v) && Array.isArray(v.seals);

/** Returns the chain of a file. The hash of quicknet always means the key of this page. bound: whether the hash is that of the key and the other values. */
async function chainOf(other) {
  if ([undefined, null, QUICKNET.hash].includes(other?.chain_hash)) return { ...QUICKNET, bound: true };
  const { chain_hash: given, genesis_time: genesis, period, genesis_seed: seed, beacon_id: id } = other;
  if (!Number.isSafeInteger(genesis) || !Number.isSafeInteger(period)) throw new Error('The beacon chain in the file is malformed.');
  const bound = await chainHash(other) === given;
  if (!bound && (seed !== undefined || id !== undefined)) throw new Error(`The key and the other values of the beacon in the file do not hash to ${given}.`);
  return { hash: given, key: other.public_key, genesis, period, bound };
}

/** Returns {chain, rounds, at} of a file: the rounds whose signatures it needs, the one of the seals first, and the time of the last. Throws if the file is malformed. */
export async function planOf({ deal_id: deal, seals, declaration, development_beacon: other }) {
  if (!isObject(declaration)) throw new Error('The file has no declaration. Save it where you sealed, or with `fairpactctl deal seals`.');
  const chain = await chainOf(other);
  const { party_labels: labels, algorithm: id, algorithm_params: params } = declaration;
  if (typeof deal !== 'string' || !Array.isArray(labels) || !isObject(params) || !Number.isSafeInteger(declaration.commit_deadline)) throw new Error('The file is not what a Fairpact service declares.');
  if (!algorithm(id)) throw new Error(`This page does not know the algorithm ${id}.`);
  if (![null, undefined, chain.hash].includes(declaration.beacon_chain)) throw new Error(`The deal declares the beacon chain ${declaration.beacon_chain}, but the seals are for ${chain.hash}.`);
  if (seals.length !== labels.length || seals.some((one, i) => one?.party !== i)) throw new Error('The seals are not those of the parties, in their order.');
  const rounds = [roundOf(chain, declaration.commit_deadline), ...(algorithm(id).redraw ? [params.beacon_round] : [])];
  return { chain, rounds, at: chain.genesis + (Math.max(...rounds) - 1) * chain.period };
}

/** Returns the opening {deal_id, input, party, salt} in a plaintext, or null if it is not in the canonical form or not that of the party's commitment. */
export async function openingIn(text, deal, party, commitment) {
  try {
    const { deal_id: of, input, party: whose, salt } = parse(text, 33); // 32 levels of an input, and 1 around it
    const good = canonical({ deal_id: of, input, party: whose, salt }) === text && of === deal && whose === party;
    return good && await fits({ input, salt }, commitment) ? { input, salt } : null;
  } catch {
    return null;
  }
}

const fits = async ({ input, salt }, commitment) => isObject(input) && typeof salt === 'string' && bytesOf(salt).length <= 1024 && await opening(commitment, { input, salt }) !== null;

/** Returns the settlement. signatures: one for each round of planOf, hex; openings: opening files, for parties whose seal does not open. */
export async function settle(file, signatures, openings = []) {
  const { chain, rounds } = await planOf(file);
  const { deal_id: deal, seals, declaration: { algorithm: id, algorithm_params: params, party_labels: labels } } = file;
  for (const [i, round] of rounds.entries()) if (!await signed(chain.key, round, signatures[i])) throw new Error(`The signature of round ${round} is missing or does not verify.`);
  const inputs = [];
  for (const { party, commitment, seal } of seals) {
    const given = openings.find((one) => one.party === party && one.deal_id === deal);
    try {
      if (!given && typeof seal !== 'string') throw new Error('it is not in the file');
      const opened = given ? await fits(given, commitment) && given
        : await openingIn(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(await openSeal(seal, chain.hash, rounds[0], signatures[0])), deal, party, commitment);
      if (!opened) throw new Error('it does not open the commitment');
      inputs.push(opened.input);
    } catch (fault) {
      throw new Error(`The ${given ? 'opening' : 'seal'} of party ${party} cannot be used: ${fault.message}. If this party opened by hand, add the file of its opening under “Inputs”.`);
    }
  }
  const of = algorithm(id);
  const beacon = of.redraw && { chain_hash: chain.hash, round: rounds[1], signature: signatures[1], randomness: toHex(await sha256(fromHex(signatures[1]))) };
  const result = await of.result(labels, params, inputs, beacon);
  return {
    deal_id: deal, declaration_sha256: await digestOf(file.declaration), round: rounds[0], commitments: seals.map(({ commitment }) => commitment),
    result, rejected: of.rejectors?.(inputs) ?? [], certified: false,
  };
}

/** Shows the settlement, once the person has given the signatures of the rounds: this page asks nobody but its own origin. */
export async function showSettlement(out, file, openings) {
  const { chain, rounds, at } = await planOf(file);
  const field = element('textarea', { id: 'rounds', rows: '3', spellcheck: 'false', autocomplete: 'off' });
  const problem = element('p', { class: 'say bad', role: 'alert' });
  const result = element('div', { id: 'settled' });
  const button = element('button', {
    type: 'button', class: 'button', id: 'settle', onclick: () => once(button, async () => {
      problem.textContent = '';
      result.replaceChildren();
      try {
        const found = field.value.match(/\b[0-9a-f]{96}\b/g) ?? [];
        const signatures = await Promise.all(rounds.map(async (round) => (await Promise.all(found.map(async (one) => await signed(chain.key, round, one) && one))).find(Boolean)));
        result.replaceChildren(...words(await settle(file, signatures, openings), file, chain));
      } catch (fault) {
        problem.textContent = fault.message;
      }
    }),
  }, 'Compute the result');
  const address = (round) => `https://api.drand.sh/${chain.hash}/public/${round}`;
  out.replaceChildren(element('p', {}, `From ${localTime(at)} on, these seals give the result, without the service. Open ${rounds.length > 1 ? 'these addresses' : 'this address'} of the public beacon, and copy what ${rounds.length > 1 ? 'they show' : 'it shows'}:`),
    element('ul', {}, rounds.map((round) => element('li', {}, chain.hash !== QUICKNET.hash ? [`round ${round} of beacon chain `, element('code', {}, chain.hash), ', which is not drand quicknet: whoever runs it could open the seals at any time'] : element('a', { href: address(round), rel: 'noreferrer' }, element('code', {}, address(round)))))),
    element('label', { for: 'rounds' }, 'What the beacon published ', element('span', { class: 'hint' }, 'this page verifies it')), field, problem, element('p', { class: 'actions' }, button), result);
}

function words(settled, { declaration: { algorithm: id, party_labels: labels } }, chain) {
  const parties = labels.map((label) => ({ label }));
  const [what, ...rows] = settled.result === null ? [['Nothing is settled, since ', ...names(settled.rejected.map((i) => labels[i])), ' rejected the terms.']]
    : algorithm(id).settled({ algorithm: id, result: settled.result, parties });
  return [
    element('p', { class: 'verdict' }, element('strong', {}, 'Computed here; no certificate was issued'), element('span', {}, 'This follows from the declaration, the commitments and the seals in the file. Compare their hashes below with those that the other parties keep.')),
    chain.bound ? null : element('p', { class: 'warn' }, 'Nothing shows that the key in the file belongs to beacon chain ', element('code', {}, chain.hash), ': compare it with the key that you know.'),
    element('p', {}, what), rows.length ? element('ul', {}, rows.map((row) => element('li', {}, row))) : null,
    element('details', {}, element('summary', {}, 'The values'), element('pre', {}, JSON.stringify(settled, null, 2))),
  ].filter(Boolean);
}
