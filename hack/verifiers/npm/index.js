// What a program imports. The modules in lib are those of Fairpact's web page.

import * as bundles from './lib/bundle.js';
import { parse as read } from './lib/jcs.js';
import * as certificates from './lib/verify.js';

export { isBundle } from './lib/bundle.js';
export { canonical } from './lib/jcs.js';
export { keysOf } from './lib/keys.js';
export { parsePolicy } from './lib/notes.js';
export { commitmentOf, seal } from './lib/seal.js';
export { knownKeys } from './lib/seats.js';
export { roundOf, sealOpening } from './lib/timelock.js';

/**
 * @typedef {{name: string, title: string, ok: boolean, detail: string}} Check
 * @typedef {{claim: string, title: string, status: 'proven' | 'not proven' | 'false' | 'not applicable', detail: string}} Claim
 * @typedef {{valid: boolean, checks: Check[], claims: Claim[], development: boolean}} Verdict
 * @typedef {{pubkey: string, state?: string, tree_size?: number, development?: boolean}} Key
 * @typedef {{deal_id: string, party: number, input: object, salt: string}} Opening
 */

/**
 * Reads JSON strictly: it refuses duplicate members and every number that is not an exact integer.
 * @param {string} text
 * @param {number} depth of nesting at most; a bundle has up to 34 levels
 */
export const parse = (text, depth = 34) => read(text, depth);

/** @param {Check[]} checks */
const judged = ({ checks, ...rest }) => ({ valid: certificates.valid(checks), checks, ...rest });

/**
 * Verifies a bundle, the answer of GET /v1/deals/{id}/bundle, without a network. `valid` is true if no check failed.
 * claims[0] says whether one of `keys` issued it: without `keys` it is never proven.
 * @param {{bundle: object, keys?: Key[], policy?: object | null, known?: Map<number, string>, openings?: Opening[]}} options
 *   policy: from parsePolicy. known: seat keys by party, from knownKeys.
 * @returns {Promise<Verdict>}
 */
export const verifyBundle = async (options) => judged(await bundles.verifyBundle(options));

/**
 * Verifies a certificate with the tree head of its log_proof.
 * @param {{certificate: object, head: object, keys: Key[], inputs?: object[] | null, openings?: Opening[], params?: object | null, known?: Map<number, string>}} options
 * @returns {Promise<Verdict>}
 */
export const verifyCertificate = async (options) => judged(await certificates.verifyCertificate(options));
