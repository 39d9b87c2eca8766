// Storage in this browser. Tokens and typed values last as long as the tab.
// Sealed inputs with their seat keys and receipts, sealed seats, invitations and the API key stay until the page or the user deletes them.

function read(store, key) {
  try {
    return JSON.parse(store().getItem(key));
  } catch {
    return null; // storage is off, or the value is not JSON
  }
}

/** Stores a value. Returns false if the browser's storage refuses it. */
function write(store, key, value) {
  try {
    store().setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

const drop = (store, key) => {
  try {
    store().removeItem(key);
  } catch { /* storage is off, so it holds no value */ }
};

const tab = () => sessionStorage;
const browser = () => localStorage;
const named = (store, prefix) => ({
  get: (id = '') => read(store, prefix + id),
  set: (id, value) => write(store, prefix + id, value),
  drop: (id = '') => drop(store, prefix + id),
});

export const tokens = named(tab, 'fairpact:token:');

const byDeal = (prefix) => ({ ...named(browser, prefix), deals: () => keysUnder(prefix).map((key) => key.slice(prefix.length)) });

export const seats = byDeal('fairpact:seat:'); // the seats that have sealed on this device: {token, title}
export const made = byDeal('fairpact:made:'); // the deals made on this device: {deal, own, warning, texts, title, audience, raffle, watched}
export const drafts = named(tab, 'fairpact:draft:');
export const created = named(tab, 'fairpact:created'); // the deal whose invitations this tab shows
export const again = named(tab, 'fairpact:again'); // the terms of an ended deal, for the next form
export const apiKey = named(browser, 'fairpact:key');

// Each commitment has its own entry, so two tabs with different inputs do not overwrite each
// other. The page then uses the entry of the commitment that the service accepted.
const sealedKey = (deal, commitment) => `fairpact:sealed:${deal}:${commitment}`;
export const sealed = {
  get: (deal, commitment) => read(browser, sealedKey(deal, commitment)),
  set: (deal, { commitment, signed, ...one }) => write(browser, sealedKey(deal, commitment), one), // {input, salt, seat_key, consented, receipt, doubt}
  drop: (deal, commitment) => drop(browser, sealedKey(deal, commitment)),
  any: (deal) => keysUnder(sealedKey(deal, '')).length > 0,
  dropAll: (deal) => keysUnder(sealedKey(deal, '')).forEach((key) => drop(browser, key)),
};

function keysUnder(prefix) {
  try {
    return Object.keys(browser()).filter((key) => key.startsWith(prefix));
  } catch {
    return []; // storage is off
  }
}

/** Calls act when another tab has changed a sealed input of the deal. */
export function onSealedElsewhere(deal, act) {
  addEventListener('storage', (event) => {
    if (event.key?.startsWith(sealedKey(deal, ''))) act();
  });
}

export function saveFile(name, text, type = 'application/json') {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
