// Package invitation writes the text that an initiator sends to each party. The text tells
// a person or an AI agent how to join the deal.
package invitation

import (
	"strconv"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

// Seat holds the values of the invitation of one party.
type Seat struct {
	DealID         string
	Algorithm      *algorithm.Algorithm
	From           string // label of the initiator, party 0
	Party          int
	Label          string
	Token          string
	CommitDeadline int64   // unix seconds
	RevealDeadline int64   // unix seconds
	Key            *string // the declared seat key; nil: none
	OpensAt        int64   // when the seals open, if the deal requires them; 0: parties open by hand
	Chain          string  // hash of the beacon chain whose round opens the seals
	Title          string  // of the deal; empty: none, like Message
	Message        string
	Public         bool // everybody can see the deal
}

const (
	head = `{from} invites {label} to settle {purpose}.

{words}`
	linked = `Go to your link by {commit_by}, and seal your input there:
{base}/d/{deal_id}#{token}
`
	unlinked = `The sender of this text tells you the address of the Fairpact server. Go to /d/{deal_id} there by {commit_by}, enter your invite_token, and seal your input.
invite_token: {token}
`
	middle = `
Have ready: {ready}. Sealing takes a few minutes on a phone or a computer. You need no account.

First check on that page that the deal is what you agreed to. Nobody can change your sealed input, and ` + byHand + `
This text is a secret: whoever has it can act as you.

For an AI agent (party {party}, {algorithm})
Check the terms (your first call shows them), commit before {commit_deadline}` + revealLine + `
`
	byHand = `it stays on your device until all parties have sealed theirs. Then all inputs go to the service, which computes and signs the result.

Leave the page open, or open it again after all parties have sealed and before {reveal_by}: the page then opens your input. If a party misses the time to seal or the time to open, the deal is void and that party is named.
`
	byItself = `nobody can read it before {opens_by}, the service included. Then it opens by itself, and the service computes and signs the result.
` + notBack
	byOtherBeacon = `it opens by itself at {opens_by}. Then the service computes and signs the result. The beacon that opens it is not drand quicknet: whoever runs it could open it at any time.
` + notBack
	notBack = `
You need not come back: look at the result any time after. If a party misses the time to seal, the deal is void and that party is named.
`
	revealLine  = `, and reveal before {reveal_deadline} (unix seconds).`
	sealLine    = ` (unix seconds), with a timelock seal of your input: the deal takes no other commitment, and then you are done.`
	linkedAgent = `In your link, the deal_id is between /d/ and #, and your invite_token is after #. You need no account.
- MCP (Streamable HTTP): connect to {base}/mcp and call get_deal first.
- HTTP: read {base}/llms.txt, then GET {base}/v1/deals/{deal_id} with the header Authorization: Bearer YOUR_INVITE_TOKEN.`
	unlinkedAgent = `deal_id: {deal_id}. Your invite_token is above. You need no account.
- MCP (Streamable HTTP): connect to /mcp and call get_deal first.
- HTTP: read /llms.txt, then GET /v1/deals/{deal_id} with the header Authorization: Bearer YOUR_INVITE_TOKEN.`
)

// seatKeyNotice is appended to the invitation if the deal declares a seat key for the party.
const seatKeyNotice = `
- The deal accepts your commitment only with a signature by your seat key {key}. If that is not your key, do not commit, and ask for a new deal.`

// Template is the invitation with placeholders, which Text and the script of the page /new replace.
const Template = head + linked + middle + linkedAgent

// Once returns the Template of a deal that requires seals for the rounds of a beacon chain.
func Once(chain string) string { return once(Template, chain) }

func once(template, chain string) string {
	opens := byItself
	if chain != algorithm.Quicknet {
		opens = byOtherBeacon
	}
	return strings.NewReplacer(byHand, opens, revealLine, sealLine).Replace(template)
}

// Public says that everybody can see the deal.
const Public = "The deal is public: everybody who knows its address sees who takes part, the terms and the result.\n"

// words returns title, message and Public with an empty line at their end, or nothing. Each line of the message has a
// mark, so that no message looks like a part of the invitation. invite.js does the same.
func (s Seat) words() (text string) {
	if s.Title != "" {
		text = "Title: " + s.Title + "\n"
	}
	if s.Message != "" {
		text += s.From + " writes:\n> " + strings.ReplaceAll(s.Message, "\n", "\n> ") + "\n"
	}
	if s.Public {
		text += Public
	}
	if text != "" {
		text += "\n"
	}
	return text
}

// Text returns the invitation for a seat. If base, the address of the service, is empty, the text
// has paths instead of links.
func Text(base string, s Seat) string {
	text := Template
	if base == "" {
		text = head + unlinked + middle + unlinkedAgent
	}
	key := ""
	if s.OpensAt > 0 {
		text = once(text, s.Chain)
	}
	if s.Key != nil {
		text, key = text+seatKeyNotice, *s.Key
	}
	utc := func(at int64) string { return time.Unix(at, 0).UTC().Format("Mon, 02 Jan 2006 15:04 UTC") } // drops the seconds: naming a slightly earlier deadline is safe
	return strings.NewReplacer(
		"{base}", base, "{deal_id}", s.DealID, "{algorithm}", s.Algorithm.ID, "{purpose}", s.Algorithm.Purpose, "{ready}", s.Algorithm.Ready,
		"{from}", s.From, "{words}", s.words(), "{label}", s.Label, "{party}", strconv.Itoa(s.Party), "{token}", s.Token, "{key}", key,
		"{commit_by}", utc(s.CommitDeadline), "{reveal_by}", utc(s.RevealDeadline), "{opens_by}", utc(s.OpensAt),
		"{commit_deadline}", strconv.FormatInt(s.CommitDeadline, 10), "{reveal_deadline}", strconv.FormatInt(s.RevealDeadline, 10),
	).Replace(text)
}
