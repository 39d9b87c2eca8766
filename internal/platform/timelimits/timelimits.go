// Package timelimits is the table of the time limits that a call can meet on its way, longest
// first. A reveal that ends its deal meets all of them. Each limit is enforced where it is used.
package timelimits

import "time"

const (
	// Write is how long deal-api may take from the end of a request's header to the end of the
	// answer. It is longer than Call, so that a call that times out still gets an answer.
	Write = time.Minute
	// Call is the longest time of a call, not counting its wait for other parties. It is longer
	// than Body.
	Call = 35 * time.Second
	// Body is the longest time for a whole body to arrive.
	Body = 30 * time.Second
	// Append is how long log-server works on one append. It is longer than Issue: an append that
	// ends after its caller has given up is found by the retry.
	Append = 25 * time.Second
	// Step is the longest time of a deal's step, which continues if the caller hangs up.
	Step = 20 * time.Second
	// Statement is the longest time of one statement for a group of calls. It is at most Step.
	Statement = 20 * time.Second
	// Issue is how long a call signs, appends and publishes a certificate; then deadline-worker does.
	Issue = 3 * time.Second
	// Sign is the longest time of one signature with its retries. It leaves time of Issue for the
	// append.
	Sign = 2500 * time.Millisecond
)
