package signing

import "time"

// limits are how long and how often a provider is asked.
type limits struct {
	deadline    time.Duration // of one Sign, retries and waiting included
	attempt     time.Duration // of one call to the provider
	concurrency int           // calls to the provider at once
	tries       uint          // calls to the provider for one Sign
	trip        uint32        // failures in a row that open the breaker
	open        time.Duration // that the breaker stays open until one call probes
}

// What a reveal may wait for is 3 seconds (escrow, issueBound), and the log must
// have its part of that. So Sign ends within 2.5 s. A single call that takes
// longer than 1.5 s (a cloud HSM answers in tens of milliseconds) counts as
// failed, which leaves time for a second one over another connection.
//
// Five failures in a row with no success between, by whatever callers, open the
// breaker: with a provider that refuses at once that is a second's work of one
// caller or milliseconds of many; with one that hangs, 1.5 s. All callers that
// wait are woken then, and for 2 s each is answered at once; after that one call
// goes through as a probe, and everybody else is still answered at once. So a
// reveal waits 2.5 s at the worst, during the first 1.5 s of an outage and where
// it happens to be the probe, and else not at all; and signing goes on at most
// 2 s and one call after the provider is back.
var defaultLimits = limits{
	deadline:    2500 * time.Millisecond,
	attempt:     1500 * time.Millisecond,
	concurrency: 32,
	tries:       4,
	trip:        5,
	open:        2 * time.Second,
}

// The pauses between tries are uniform in [0, ceiling) (full jitter: callers
// that failed together do not come back together), with a ceiling that doubles
// from the first to the last of these.
const (
	firstCeiling = 100 * time.Millisecond
	lastCeiling  = 800 * time.Millisecond
)
