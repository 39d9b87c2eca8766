// Acts for all parties of a draw by one organiser: seals a random number for each, and opens them once all are sealed.

import { bytesOf, sha256, toHex } from './bytes.js';
import { commitmentOf } from './seal.js';
import { Seat } from './seat.js';

const AT_ONCE = 6; // calls under way

/** Returns what party i seals. All parties follow from the seed, so that a reload continues with the same numbers. */
async function sealedOf(seed, i) {
  const [nonce, salt] = await Promise.all(['nonce', 'salt'].map(async (what) => toHex(await sha256(bytesOf(`${seed} ${what} ${i}`)))));
  return { input: { nonce }, salt: salt.slice(0, 32), commitment: await commitmentOf({ nonce }, salt.slice(0, 32)) };
}

/** Seals and opens for all parties. Calls progress(done, all) after each act. An act that an earlier visit has done is answered 409, like one after its deadline: the deal itself shows which. */
export async function act(deal, { tokens, seed }, progress, trouble) {
  let done = 0;
  for (const action of ['commit', 'reveal']) {
    let next = 0;
    const worker = async () => {
      while (next < tokens.length) {
        const i = next++;
        const { input, salt, commitment } = await sealedOf(seed, i);
        await new Seat(deal, tokens[i], trouble).act(action, action === 'commit' ? { commitment } : { input, salt });
        progress(++done, 2 * tokens.length);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }
}
