package crash

import (
	"time"

	"github.com/fairpact/fairpact/e2e"
)

func lastCommit(c *e2e.Client, _ time.Duration) *e2e.Cut {
	x := e2e.Open(c, e2e.SplitBody(time.Hour, 2*time.Hour), 1, 0, e2e.AnnsValues, e2e.BobsValues)
	return x.Ends("/commit", 1, e2e.Body{"commitment": x.Inputs[1].Commitment})
}

// lateLastCommit and lateLastReveal are complete before their deadline and are
// looked at after it: nobody is missing, so nobody is named.
func lateLastCommit(c *e2e.Client, lead time.Duration) *e2e.Cut {
	at := e2e.After(lead)
	x := e2e.Near(c, at, at+3600)
	if x == nil || !x.Commits(1) {
		return nil
	}
	x.From = at
	return x.Ends("/commit", 1, e2e.Body{"commitment": x.Inputs[1].Commitment})
}

func lateLastReveal(c *e2e.Client, lead time.Duration) *e2e.Cut {
	at := e2e.After(lead)
	x := e2e.Near(c, at, at+1)
	if x == nil || !x.Commits(2) || !x.Reveals(1) {
		return nil
	}
	x.From = at + 1
	return x.Revealing(1)
}
