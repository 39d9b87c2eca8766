// Package invitation writes the text that an initiator sends to each party. A person or an
// agent can join the deal with it.
package invitation

import (
	"strconv"
	"strings"
	"time"
)

// Seat holds the values of an invitation.
type Seat struct {
	DealID         string
	Algorithm      string // id of the algorithm
	Purpose        string // what the algorithm decides
	Party          int
	Label          string
	Token          string
	CommitDeadline int64 // unix seconds
	RevealDeadline int64 // unix seconds
}

const (
	head = `Fairpact invitation for {label} (party {party})

This deal settles {purpose}, by {algorithm}. Each party seals its input. Once all have, all inputs are opened together and the result is computed, signed and proven in a public log. Nobody sees an input before all are sealed, and nobody can change one.

Seal by {commit_by}. Open by {reveal_by}. A party that misses either time is named, and the deal is void.

`
	linked = `A person opens this link:
{base}/d/{deal_id}#{token}

An agent finds its deal_id in the link, between /d/ and #, and its invite_token after #. It needs no account.
- MCP (Streamable HTTP): connect to {base}/mcp and call get_deal first.
- HTTP: read {base}/llms.txt, then GET {base}/v1/deals/{deal_id} with the header Authorization: Bearer and the invite_token.
`
	unlinked = `deal_id: {deal_id}
invite_token: {token}

Whoever sends this names the address of the Fairpact server. You need no account there.
- A person opens /d/{deal_id} and enters the invite_token.
- MCP (Streamable HTTP): connect to /mcp and call get_deal first.
- HTTP: read /llms.txt, then GET /v1/deals/{deal_id} with the header Authorization: Bearer and the invite_token.
`
	tail = `
First see that the deal is what you agreed to, then commit.

This text is a secret: whoever has it can act as you.`
)

// Template is the text with a {name} for each value. The page that creates deals fills it
// in itself.
const Template = head + linked + tail

// Text returns the invitation to a seat. base is the address of the service; if it is "",
// the text contains only paths.
func Text(base string, s Seat) string {
	text := Template
	if base == "" {
		text = head + unlinked + tail
	}
	utc := func(at int64) string { return time.Unix(at, 0).UTC().Format("2006-01-02 15:04:05 UTC") }
	return strings.NewReplacer(
		"{base}", base, "{deal_id}", s.DealID, "{algorithm}", s.Algorithm, "{purpose}", s.Purpose, "{label}", s.Label,
		"{party}", strconv.Itoa(s.Party), "{token}", s.Token,
		"{commit_by}", utc(s.CommitDeadline), "{reveal_by}", utc(s.RevealDeadline),
	).Replace(text)
}
