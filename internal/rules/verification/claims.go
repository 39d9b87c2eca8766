package verification

import (
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Names of the claims, in report order. A report always has all seven.
const (
	Issued   = "issued"   // who issued the certificate
	Logged   = "logged"   // it is in the log
	Cosigned = "cosigned" // a quorum of witnesses saw the log
	Agreed   = "agreed"   // who agreed
	Fixed    = "fixed"    // the inputs were fixed before any was revealed
	Follows  = "result"   // the result follows from the inputs
	Drawn    = "draw"     // the draw follows from the nonces and the beacon
)

// Status says how far a claim is proven.
type Status string

// The statuses of a claim.
const (
	Proven        Status = "proven"
	NotProven     Status = "not proven" // Detail says why, and what to supply
	False         Status = "false"
	NotApplicable Status = "not applicable"
)

// Claim is what a certificate may be taken for, and how far the checks prove it (protocol 9.2).
type Claim struct {
	Claim   string       `json:"claim"`
	Status  Status       `json:"status"`
	Detail  string       `json:"detail"`           // the reason; for NotProven after `; ` what to supply
	Parties []PartyClaim `json:"parties,omitzero"` // set for Agreed
}

// PartyClaim is the claim Agreed for one party.
type PartyClaim struct {
	Party  int    `json:"party"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
}

// seen is what the checks found, as far as the claims need it.
type seen struct {
	issuer      string // see Evidence.Issuer; fromFile for the verified file itself
	development bool
	alone       bool // the certificate came without its bundle
	policy      *checkpoint.Policy
	parties     []PartyClaim
	origin      string       // of the deployment for which seat keys signed; "": none did
	closed      *closed      // what the closing shows; nil: the bundle has none
	late        string       // how the times contradict the declaration
	early       string       // how the beacon round of the draw could be out before the last reveal
	opened      map[int]bool // parties whose commitments were opened; nil if no opening is known
	recomputed  bool         // the result was recomputed from the inputs of all parties
	supposed    bool         // the result was recomputed as if all parties accepted whose inputs are missing
	bound       bool         // the hash of the beacon chain in the bundle is that of its key and its other values
	chain       string       // the beacon chain, known beforehand, that signed the round
}

const fromFile = "file"

// neededBy lists the checks on which a claim depends. If one of them failed, the claim is false.
var neededBy = map[string][]string{
	Issued:   {BundleShape, Shape, KeysUsable, Signature, TreeHeadSignature, KeyInForce},
	Logged:   {TreeSize, MerkleInclusion, LogProof, CheckpointSignature},
	Cosigned: {Witnesses},
	Fixed:    {Closing, ClosingWitnesses},
	Agreed:   {PartySignatures, PartyKeys, Declaration},
	Follows:  {InputRootForm, Consistency, Commitments, InputRoot, Result, OwnInput, InputPath},
	Drawn:    {Draw, BeaconChain, BeaconSignature},
}

// judge sets the claims.
func (r *Report) judge() {
	c := r.of
	r.Claims = nil
	for _, name := range []string{Issued, Logged, Cosigned, Agreed, Fixed, Follows, Drawn} {
		claim := Claim{Claim: name}
		wrong := r.failed(name)
		switch {
		case c == nil && name == Issued && wrong != nil:
			claim.Status, claim.Detail = False, wrong.Detail
		case c == nil:
			claim.Status, claim.Detail = NotProven, "the document is malformed"
		case wrong != nil:
			claim.Status, claim.Detail = False, wrong.Name+": "+wrong.Detail
		default:
			claim.Status, claim.Detail = r.standing(name, c)
		}
		if claim.Status == Proven && len(r.Claims) > 0 && r.Claims[0].Status == False {
			claim.Status, claim.Detail = NotProven, "nothing is proven by a certificate of another issuer"
		}
		if name == Agreed {
			claim.Parties = slices.Concat([]PartyClaim{}, r.seen.parties)
		}
		r.Claims = append(r.Claims, claim)
	}
}

// failed returns the first failed check on which the claim depends, or nil.
func (r *Report) failed(claim string) *Check {
	for _, check := range r.Checks {
		// A declaration that fails only in its times makes the claim Fixed false, not Agreed.
		if !check.OK && slices.Contains(neededBy[claim], check.Name) && (check.Name != Declaration || r.seen.late == "") {
			return &check
		}
	}
	return nil
}

// standing returns the status of a claim of which no check failed.
func (r *Report) standing(claim string, c *certificate.Certificate) (Status, string) {
	switch claim {
	case Issued:
		return r.issued()
	case Logged:
		status, by := r.issued()
		if status == Proven {
			by = "of this issuer"
		}
		return status, "a leaf under a tree head " + by
	case Cosigned:
		return r.cosigned()
	case Agreed:
		proven := 0
		for _, party := range r.seen.parties {
			if party.Status == Proven {
				proven++
			}
		}
		words := fmt.Sprintf("%d of %d parties signed with the seat key that you named", proven, len(r.seen.parties))
		if r.seen.origin != "" {
			words += ", for the deployment at " + r.seen.origin
		}
		if proven == len(r.seen.parties) {
			return Proven, words
		}
		if slices.Contains(c.Properties, certificate.ActedByInitiator) {
			return NotApplicable, "the initiator acted for all parties, as the deal declares"
		}
		return NotProven, words + "; name the seat keys that you know with --seat-key N=KEY"
	case Fixed:
		if r.seen.late != "" {
			return False, r.seen.late
		}
		return r.fixed(c)
	case Follows:
		return r.follows(c)
	}
	return r.drawn(c)
}

func (r *Report) issued() (Status, string) {
	switch {
	case r.seen.development:
		return NotProven, "signed by a key that the deployment declares a development key: such certificates prove nothing"
	case r.seen.issuer == fromFile:
		return NotProven, "signed by a key that this file brought; give the key of the deployment with --pubkey or --keys"
	case r.seen.issuer == "":
		return Proven, "signed by a key that you gave"
	}
	return Proven, "signed by a key that " + r.seen.issuer + " names"
}

func (r *Report) cosigned() (Status, string) {
	switch {
	case r.seen.alone:
		return NotProven, "a certificate alone has no checkpoint; verify the bundle with --policy"
	case r.seen.policy == nil:
		return NotProven, "no policy says which witnesses you trust; give one with --policy"
	case !r.seen.policy.Demands():
		return NotProven, "the policy requires no cosignatures"
	}
	for _, check := range r.Checks {
		if check.Name == Witnesses {
			return Proven, check.Detail
		}
	}
	return NotProven, "log_proof is malformed"
}

func (r *Report) follows(c *certificate.Certificate) (Status, string) {
	switch {
	case r.seen.recomputed:
		return Proven, "recomputed from the inputs of all parties"
	case c.Outcome == certificate.Void:
		return NotProven, "there is no result; which party missed its deadline or rejected is the operator's word"
	case r.seen.opened == nil && r.seen.alone && !r.seen.supposed:
		return NotProven, "the result was not recomputed; verify the bundle, or give --inputs and --params"
	}
	var missing []int
	for i := range c.Parties {
		if !r.seen.opened[i] {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return NotProven, "all commitments were opened, but the params are missing: verify the bundle, or give --params"
	}
	word := ""
	if r.seen.supposed {
		word = "the arithmetic holds, but that all accepted is the operator's word: "
	}
	return NotProven, word + fmt.Sprintf("the inputs of %d of %d parties are missing: %s; %s", len(missing), len(c.Parties), problem.List(missing, "%d", ", "), obtain(c))
}

// obtain says how to get the openings that are missing.
func obtain(c *certificate.Certificate) string {
	if slices.Contains(c.Properties, certificate.InputsPurged) {
		return "the service deleted them, but the parties can send their openings: --opening FILE"
	}
	if a, _ := algorithm.Lookup(c.Algorithm); a.Redraws() {
		return "get the bundle again"
	}
	return "all parties can consent to show their inputs, or send their openings: --opening FILE"
}

func (r *Report) drawn(c *certificate.Certificate) (Status, string) {
	if a, _ := algorithm.Lookup(c.Algorithm); !a.Redraws() || c.Outcome == certificate.Void {
		return NotApplicable, "nothing was drawn"
	}
	for _, check := range r.Checks {
		if check.Name == Result && !check.OK {
			return False, check.Name + ": " + check.Detail
		}
	}
	switch {
	case r.seen.early != "":
		return NotProven, r.seen.early + ": whoever revealed last could choose the winner; only another deal, with a later round, can prove a draw"
	case r.seen.alone:
		return NotProven, "a certificate alone does not show whether its beacon round was out before the last reveal; verify the bundle, which has the declared deadlines"
	case !r.seen.recomputed:
		return NotProven, "nonce_digest is the operator's word: the openings of all parties are missing; " + obtain(c)
	case r.seen.chain == "":
		if r.seen.bound {
			return NotProven, "the beacon's chain is not drand quicknet; its key belongs to the chain hash, which the deal declared, but whose chain it is you must know"
		}
		return NotProven, "the beacon's chain is not drand quicknet, and nothing shows that its key belongs to the chain hash; compare it with the one that you know"
	}
	return Proven, "nonces, beacon round and winner were recomputed; " + r.seen.chain + " signed the round"
}
