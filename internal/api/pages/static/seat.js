// One party's seat in a deal: the calls that the party's token allows, and waiting for changes.
// view and act repeat a call if no answer comes. The next view of the deal shows whether an
// earlier attempt took effect.

import { call, codeOf, problemOf } from './dom.js';
import { parse } from './jcs.js';
import { COMMON } from './texts.js';

const LONGEST_WAIT = 45; // seconds, the service's limit of ?wait=
const LONGEST_PAUSE = 30; // seconds, the longest pause between two attempts
const FEW_PARTIES = 16; // in a larger deal the page waits only for a new state, so that not every party loads the view after each commit

const REFUSALS = ['AUTH_REQUIRED', 'INVALID_CREDENTIAL', 'FORBIDDEN', 'DEAL_NOT_FOUND'];

/** Refused is thrown when the service does not accept the token for this deal. code: the service's. */
export class Refused extends Error {
  constructor(answer) {
    super(problemOf(answer));
    this.code = codeOf(answer);
  }
}

export class Seat {
  constructor(deal, token, onTrouble) {
    this.deal = deal;
    this.path = `/v1/deals/${encodeURIComponent(deal)}`;
    this.token = token;
    this.onTrouble = onTrouble; // gets the reason before each retry, and null once the service answers
    this.clock = 0; // ms that the service's clock is ahead of this one
    this.since = null; // the ETag of the newest view, or its state
    this.hurry = new AbortController();
    addEventListener('online', () => this.lookNow());
    document.addEventListener('visibilitychange', () => document.hidden || this.lookNow());
  }

  /** Returns the service's time in unix seconds. */
  now() {
    return (Date.now() + this.clock) / 1000;
  }

  /** Returns the signal that lookNow aborts to end the current waits. */
  get hurried() {
    if (this.hurry.signal.aborted) this.hurry = new AbortController();
    return this.hurry.signal;
  }

  /** Ends the current waits, so that the page reads the deal at once. */
  lookNow() {
    this.since = null;
    this.hurry.abort();
  }

  /** Waits until the deal has changed since the last view, at most this many seconds. Returns {view, party, cautions}. Throws Refused if the token is not accepted. */
  async view(seconds = LONGEST_WAIT) {
    for (let failures = 0; ; failures++) {
      const { hurried } = this;
      const query = this.since ? `?wait=${Math.min(Math.max(Math.ceil(seconds), 1), LONGEST_WAIT)}&since=${encodeURIComponent(this.since)}` : '';
      let answer;
      try {
        const limit = AbortSignal.timeout((LONGEST_WAIT + 15) * 1000);
        answer = await call('GET', this.path + query, { token: this.token, signal: AbortSignal.any([hurried, limit]) });
      } catch {
        if (hurried.aborted) continue;
      }
      if (answer?.ok) {
        this.onTrouble(null);
        this.clock = answer.date - Date.now();
        const view = parse(answer.text, 40);
        this.since = view.parties.length > FEW_PARTIES ? view.state : answer.headers.get('etag');
        const party = answer.headers.get('fairpact-party');
        return {
          view,
          party: party === null ? null : Number(party),
          cautions: answer.headers.get('fairpact-caution')?.split(/(?<=\.), /) ?? [],
        };
      }
      if (answer && REFUSALS.includes(codeOf(answer))) {
        this.since = null; // so that the next accepted read answers at once
        throw new Refused(answer);
      }
      await this.retry(answer, failures);
    }
  }

  /** Waits before a call is repeated: Retry-After or else 2^failures seconds, at most LONGEST_PAUSE. lookNow ends the wait early. */
  async retry(answer, failures) {
    this.onTrouble(answer ? COMMON.busyTrying(problemOf(answer)) : COMMON.lostTrying);
    await this.pause(Number(answer?.headers.get('retry-after')) || 2 ** failures);
  }

  async pause(seconds) {
    const { hurried } = this;
    await new Promise((done) => {
      setTimeout(done, Math.min(seconds, LONGEST_PAUSE) * 1000);
      hurried.addEventListener('abort', done, { once: true });
    });
  }

  /**
   * Sends an action until the service answers it. Repeats the call after a 5xx, a 429
   * or no answer. Returns an answer of 2xx or 409: the next view shows whether the
   * action took effect. Throws an Error in the service's words for any other answer.
   */
  async act(action, body) {
    for (let failures = 0; ; failures++) {
      const answer = await call('POST', `${this.path}/${action}`, { token: this.token, body }).catch(() => null);
      if (answer?.ok || answer?.status === 409) {
        this.since = null;
        this.onTrouble(null);
        return answer;
      }
      if (answer && answer.status < 500 && answer.status !== 429) {
        // final: the service itself refused the action, and no earlier attempt can have taken effect.
        throw Object.assign(new Error(problemOf(answer)), { final: failures === 0 && codeOf(answer) !== undefined });
      }
      await this.retry(answer, failures);
    }
  }

  /** Fetches a document of the deal as text, such as its declaration or its bundle. */
  async fetch(what) {
    const answer = await call('GET', `${this.path}/${what}`, { token: this.token });
    if (!answer.ok) throw new Error(problemOf(answer));
    return answer.text;
  }
}
