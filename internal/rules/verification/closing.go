package verification

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// closed is what the closing of a bundle shows, for the claim Fixed.
type closed struct {
	known    bool   // the beacon chain, and so the time of its rounds, was known beforehand
	unsealed []int  // parties that did not seal
	detail   string // where the commitments were, and when; set if witnesses cosigned in time
}

// closing adds the checks Closing and ClosingWitnesses. `declared` reports whether the declaration of the
// bundle is the one of the certificate.
func (r *Report) closing(members map[string]any, declared bool, trusted keys.List, policy *checkpoint.Policy) {
	c, declaration := *r.of, map[string]any{}
	if declared {
		declaration = members["declaration"].(map[string]any)
	}
	given, ok := members["closing"].(map[string]any)
	demands := policy != nil && policy.Demands()
	if !ok {
		if demands && mustClose(c.Payload, declaration) {
			r.add(ClosingWitnesses, "inputs came from seals, but the bundle has no closing: nothing shows that the commitments were fixed before the seals could be read", "")
		}
		return
	}
	of := &closed{}
	leaf, wrong := closingLeafOf(given, c.Payload, declaration, of)
	note, at, round := leaf.note, leaf.at, leaf.round
	var words string
	if wrong == "" {
		signed, _ := checkpoint.ParseNote(string(note))
		wrong, _ = checkpointSigner(note, signed, trusted, policy)
		words = fmt.Sprintf("before round %d of %s, which was due at %d", round, given["beacon"].(map[string]any)["chain_hash"], at)
		r.add(Closing, wrong, fmt.Sprintf("all commitments and seals are a leaf under the checkpoint of size %d in %s", signed.Size, signed.Origin))
	} else {
		r.add(Closing, wrong, "")
	}
	if r.seen.closed = of; !demands {
		return
	}
	if wrong != "" {
		r.add(ClosingWitnesses, "not checked, because the check closing failed", "")
		return
	}
	cosigned, err := policy.CosignedBefore(note, at)
	if err != nil {
		r.add(ClosingWitnesses, fmt.Sprintf("no quorum cosigned the commitments %s: %v. Whoever runs the service could read the seals first", words, err), "")
		return
	}
	of.detail = fmt.Sprintf("all commitments were in the log %s (cosigned by %s)", words, strings.Join(cosigned, ", "))
	mark := timelock.Mark(c.DealID)
	r.add(ClosingWitnesses, "", fmt.Sprintf("cosigned by %s %s; fairpactctl log audit --deal shows any other leaf that begins with %x", strings.Join(cosigned, ", "), words, mark))
}

// mustClose reports whether an honest service has logged the closing of the deal.
func mustClose(p certificate.Payload, declaration map[string]any) bool {
	all := !slices.ContainsFunc(p.Parties, func(party certificate.Party) bool { return party.Commitment == nil })
	return certificate.OpenedBySeal(p.Properties) || all && declaration["seals"] != nil
}

// closingLeaf is the leaf of a closing, under the checkpoint `note`. `at` is when the round of the seals is due.
type closingLeaf struct {
	note             []byte
	at, round, index int64
	entry            [32]byte
}

// ClosingLeaf returns the leaf of the closing in a bundle whose certificate is verified. found is false if
// the bundle has none that fits its certificate and its declaration.
func ClosingLeaf(bundle any) (index int64, entry [32]byte, found bool) {
	if bundleShape(bundle) != "" {
		return 0, entry, false
	}
	members := bundle.(map[string]any)
	given, closes := members["closing"].(map[string]any)
	declaration, declares := members["declaration"].(map[string]any)
	p, err := certificate.Parse(canon.Encode(members["certificate"]))
	if r := new(Report); !closes || !declares || err != nil || !r.declared(declaration, given, p) {
		return 0, entry, false
	}
	leaf, wrong := closingLeafOf(given, p, declaration, &closed{})
	return leaf.index, leaf.entry, wrong == ""
}

// closingLeafOf checks everything about the closing except who signed its checkpoint.
func closingLeafOf(given map[string]any, p certificate.Payload, declaration map[string]any, of *closed) (leaf closingLeaf, wrong string) {
	deadline, ok := declaration["commit_deadline"].(int64)
	if !ok {
		return leaf, "not checked, because the round of the seals follows from the declaration, which is missing or wrong"
	}
	beacon := given["beacon"].(map[string]any)
	chain, err := drand.ParseChain(beacon["chain_hash"].(string), beacon["public_key"].(string), beacon["period"].(int64), beacon["genesis_time"].(int64))
	if err != nil {
		return leaf, "the beacon of the closing is malformed: " + err.Error()
	}
	if quicknet := drand.Quicknet(); chain.Hash == quicknet.Hash {
		if of.known = chain.Genesis == quicknet.Genesis && chain.Period == quicknet.Period && slices.Equal(chain.PublicKey, quicknet.PublicKey); !of.known {
			return leaf, "the closing names drand quicknet, but with another key or other times"
		}
	}
	if named := declaration["beacon_chain"]; named != nil && named != chain.Hash {
		return leaf, fmt.Sprintf("the closing is for beacon chain %s, but the deal declares another one", chain.Hash)
	}
	round := timelock.RoundOf(chain, deadline)
	for _, property := range p.Properties {
		if by, opened := strings.CutPrefix(property, certificate.OpenedByTimelock); opened && by != fmt.Sprint(round) {
			return leaf, fmt.Sprintf("the declaration leads to round %d, but the certificate says %s", round, property)
		}
	}
	seals := given["seal_hashes"].([]any)
	if len(seals) != len(p.Parties) {
		return leaf, fmt.Sprintf("the closing has %d seals for %d parties", len(seals), len(p.Parties))
	}
	digest, _ := certificate.DeclarationIn(p.Properties)
	closing := timelock.Closing{DealID: p.DealID, Declaration: digest, Chain: chain.Hash, Round: round}
	for i, party := range p.Parties {
		if party.Commitment == nil {
			return leaf, fmt.Sprintf("the bundle has a closing, but party %d never committed", i)
		}
		seal, sealed := seals[i].(string)
		if !sealed {
			of.unsealed = append(of.unsealed, i)
		}
		closing.Commitments = append(closing.Commitments, timelock.ClosedCommitment{Commitment: *party.Commitment, SealHash: seal})
	}
	proof, err := checkpoint.ParseProof([]byte(given["log_proof"].(string)))
	var signed checkpoint.Checkpoint
	if err == nil {
		signed, err = checkpoint.ParseNote(string(proof.Note))
	}
	if err != nil {
		return leaf, "its log_proof is malformed: " + err.Error()
	}
	leaf = closingLeaf{proof.Note, chain.RoundTime(round), round, proof.Index, closing.Entry()}
	if proof.VerifyInclusion(leaf.entry[:], signed) != nil {
		return leaf, fmt.Sprintf("the commitments of the certificate and the seals of the closing are not leaf %d under its checkpoint: a commitment or a seal was changed afterwards", proof.Index)
	}
	return leaf, ""
}

// fixed returns the status of the claim Fixed, of which no check failed.
func (r *Report) fixed(c *certificate.Certificate) (Status, string) {
	of := r.seen.closed
	switch {
	case of == nil:
		return NotProven, "the times are the operator's word"
	case r.seen.policy == nil:
		return NotProven, "the commitments are in the log, but only witnesses show since when; give a policy with --policy"
	case !r.seen.policy.Demands():
		return NotProven, "the commitments are in the log, but only witnesses show since when, and the policy requires no cosignatures"
	case !of.known:
		return NotProven, "the beacon's chain is not drand quicknet, and its times are only in this file; compare them with those that you know"
	case !certificate.OpenedBySeal(c.Properties):
		return NotProven, "no input came from a seal, and when each party revealed is the operator's word"
	case len(of.unsealed) > 0:
		return NotProven, of.detail + ", but when the parties without a seal revealed is the operator's word: " + problem.List(of.unsealed, "%d", ", ")
	}
	return Proven, of.detail + "; an input that its party revealed by hand before is not covered"
}
