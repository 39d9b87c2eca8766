// Package wire holds the JSON bodies of API responses. The server, the command line and the tests share
// its types. MCP responses differ from REST bodies only in the texts that name calls and in the members
// that package mcp adds. Package ops parses the requests.
package wire

import (
	"encoding/json"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/translog"
)

// Response bodies, and members of them, that the use cases return as they are.
type (
	NewKey      = escrow.NewKey       // POST /v1/keys
	Invite      = escrow.Invite       // a member of Created
	Revealed    = escrow.Revealed     // POST /v1/deals/{id}/reveal
	Declaration = escrow.Declaration  // GET /v1/deals/{id}/declaration
	SealTexts   = escrow.SealTexts    // GET /v1/deals/{id}/seals
	Report      = escrow.Verification // GET /v1/verify/{cert_id}
	TreeHead    = translog.TreeHead   // GET /v1/log/tree-head
)

// Status is the body of GET /v1/status (SPEC 2.8).
type Status struct {
	Status       string   `json:"status"`
	Service      string   `json:"service"`
	Version      string   `json:"version"`
	PublicKey    string   `json:"pubkey"`
	Custody      string   `json:"key_custody"`
	LegacyKeys   []string `json:"legacy_pubkeys"`
	DevEphemeral bool     `json:"dev_ephemeral_key"`
	Note         string   `json:"note"`
}

// Created is the body of POST /v1/deals (SPEC 2.3).
type Created struct {
	DealID  string     `json:"deal_id"`
	State   deal.State `json:"state"`
	Invites []Invite   `json:"invite_tokens"`
	Warning string     `json:"warning,omitempty"`
}

// CreatedOf returns the body of a creation. The caller of REST knows the deadlines: it sent them.
func CreatedOf(c escrow.Created) Created { return Created{c.DealID, c.State, c.Invites, c.Warning} }

// Committed is the body of POST /v1/deals/{id}/commit.
type Committed struct {
	escrow.Committed
	Next string `json:"next"` // the party's next call
}

// View is a deal view (SPEC 2.4).
type View struct {
	DealID          string          `json:"deal_id"`
	Algorithm       string          `json:"algorithm"`
	Params          json.RawMessage `json:"algorithm_params"`
	Mode            string          `json:"mode"`
	Retention       string          `json:"retention"`
	State           string          `json:"state"`
	Initiator       int             `json:"initiator"` // always 0: party 0 is the initiator
	Parties         []Party         `json:"parties"`
	CommitDeadline  int64           `json:"commit_deadline"`
	RevealDeadline  int64           `json:"reveal_deadline"`
	CreatedAt       int64           `json:"created_at"`
	CommitsClosedAt *int64          `json:"commits_closed_at"`
	RevealsClosedAt *int64          `json:"reveals_closed_at"`
	ComputedAt      *int64          `json:"computed_at"`
	Result          json.RawMessage `json:"result"`
	VoidFlakers     []int           `json:"void_flakers"`
	CertificateID   *string         `json:"certificate_id"`
	ContentsDeleted bool            `json:"contents_deleted,omitempty"` // Params is `{}`
	Audience        string          `json:"audience,omitempty"`
	ActedBy         string          `json:"acted_by,omitempty"`
	Title           string          `json:"title,omitempty"`
	Message         string          `json:"message,omitempty"`
}

// Party is a party in a View.
type Party struct {
	Index      int     `json:"index"`
	Label      string  `json:"label"`
	Committed  bool    `json:"committed"`
	Commitment *string `json:"commitment"`
	Revealed   bool    `json:"revealed"`
}

// Bundle is a certificate with everything that its offline verification needs.
type Bundle struct {
	Version     string           `json:"bundle_version"`
	Certificate json.RawMessage  `json:"certificate"`
	TreeHead    TreeHead         `json:"tree_head"`
	Keys        json.RawMessage  `json:"keys"`
	LogProof    string           `json:"log_proof,omitempty"`
	Declaration json.RawMessage  `json:"declaration,omitempty"`
	Beacon      *BeaconChain     `json:"beacon,omitempty"`
	Closing     *Closing         `json:"closing,omitempty"`
	Own         *escrow.OwnInput `json:"own_input,omitempty"`
	Openings    []escrow.Opened  `json:"openings,omitempty"`
}

// Public is the body of GET /v1/public/{id}.
type Public struct {
	Deal   View    `json:"deal"`
	Bundle *Bundle `json:"bundle"` // nil until the certificate is in the log, and if there is none
}

// Closing proves when the commitments of a deal with seals were fixed.
type Closing struct {
	Beacon   BeaconChain `json:"beacon"`
	Seals    []*string   `json:"seal_hashes"`
	LogProof string      `json:"log_proof"`
}

// BeaconChain is the chain of a drand beacon.
type BeaconChain struct {
	Hash      string `json:"chain_hash"`
	PublicKey string `json:"public_key"`
	Genesis   int64  `json:"genesis_time"`
	Period    int64  `json:"period"`
	Seed      string `json:"genesis_seed,omitempty"`
	ID        string `json:"beacon_id,omitempty"`
}

// Beacon is the body of GET /v1/beacon: the chain of new draws and seals.
type Beacon struct {
	BeaconChain
	Scheme string `json:"scheme"`
}
