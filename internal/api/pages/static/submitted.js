// Verifies a bundle from somebody else, under the keys of this origin, because a forger can put
// other keys into a bundle.

import { isBundle, verifyBundle } from './bundle.js';
import { element } from './dom.js';
import { isObject, parse } from './jcs.js';
import { originKeys } from './keys.js';
import { showReport } from './report.js';
import { CHECK } from './texts.js';

/** Shows the report on a bundle, or why the text cannot be checked. known: seat keys by party. openings: from openingsIn. deal: the id of the deal that the bundle must be of, or null. */
export async function verifyText(text, out, { known = new Map(), openings = [], deal = null } = {}) {
  out.replaceChildren();
  delete out.dataset.valid;
  try {
    const bundle = parse(text, 34); // 32 levels of an input, and 2 of the bundle around it
    if (!isBundle(bundle)) throw new Error(CHECK.notABundle);
    if (deal !== null && bundle.certificate?.deal_id !== deal) throw new Error(CHECK.otherDeal(deal));
    const keys = await originKeys().catch(() => []); // the report says if there are no keys
    showReport(out, await verifyBundle({ bundle, keys, known, openings, issuer: location.host }), bundle.certificate);
  } catch (fault) {
    out.replaceChildren(element('p', { class: 'say bad' }, CHECK.cannotCheck(fault.message)));
  }
}

/** Returns the openings in the chosen files: {deal_id, party, input, salt} each. Throws if a file holds something else. */
export async function openingsIn({ files }) {
  return Promise.all([...files].map(async (file) => {
    try {
      const one = parse(await file.text(), 34); // 32 levels of an input, and 1 of the file around it
      if (!isObject(one?.input) || typeof one.salt !== 'string' || !Number.isSafeInteger(one.party) || one.party < 0) throw new Error(CHECK.notAnOpening);
      return one;
    } catch (fault) {
      throw new Error(CHECK.cannotUse(file.name, fault.message));
    }
  }));
}

export async function verifyFile(file, out) {
  if (file) await verifyText(await file.text(), out);
}
