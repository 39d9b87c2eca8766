package e2e

import (
	"strings"
	"time"
)

// After is a deadline at least d away.
func After(d time.Duration) int64 { return time.Now().Add(d + time.Second - 1).Unix() }

func Timed(b Body, commitDeadline, revealDeadline int64) Body {
	b["commit_deadline"], b["reveal_deadline"] = commitDeadline, revealDeadline
	return b
}

// CreateInTime creates a deal, or returns nil if its deadline has passed.
func (c *Client) CreateInTime(key string, b Body) *Dealt {
	c.T.Helper()
	a := c.Do("POST", "/v1/deals", key, b)
	if a.Status == 400 && strings.Contains(a.ErrorText(), "is not after now") {
		return nil
	}
	if a.Status != 201 {
		c.T.Fatalf("create: %d %s", a.Status, a.Body)
	}
	return c.Created(key, a)
}

// Trio creates a split of three parties, or returns nil if its deadline has passed.
func (c *Client) Trio(key string, commitDeadline, revealDeadline int64) *Dealt {
	c.T.Helper()
	b := Timed(SplitBody(0, 0), commitDeadline, revealDeadline)
	b["party_labels"] = []string{"ann", "bob", "cem"}
	return c.CreateInTime(key, b)
}

// Act is the body of a commit or a reveal.
func (s Sealed) Act(action string) Body {
	if action == "commit" {
		return Body{"commitment": s.Commitment}
	}
	return Body{"input": s.Input, "salt": s.Salt}
}

// Attempt sends a commit or reveal that may come late, and tells whether it was
// accepted. SPEC 3: a missed deadline is the only other answer.
func (d *Dealt) Attempt(action string, party int, b Body) bool {
	d.C.T.Helper()
	a := d.C.Do("POST", d.Path("/"+action), d.Tokens[party], b)
	if a.Status != 200 && (a.Status != 409 || a.Code() != "DEADLINE_PASSED") {
		d.C.T.Fatalf("%s of party %d: %d %s", action, party, a.Status, a.Body)
	}
	return a.Status == 200
}
