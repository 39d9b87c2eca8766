package verification

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// Names of the checks of the parties' signatures and of the declaration, in report order.
const (
	// PartySignatures: every attested_by is well-formed, every signature in it is valid, and all name
	// one origin: a signature for another deployment with a deal of the same id proves nothing here. Checked
	// only if an attested_by has a seat key or is malformed.
	PartySignatures = "party_signatures"
	PartyKeys       = "party_keys"  // each party in Known.Parties signed with the key given there
	Declaration     = "declaration" // the declaration in a bundle is the one that the certificate names, and agrees with the certificate
)

// seats adds the checks PartySignatures and PartyKeys.
func (r *Report) seats(p certificate.Payload, parties map[int]string, verify func(certificate.Attestation, certificate.Seat) error) {
	if verify == nil {
		verify = certificate.Attestation.Verify
	}
	digest, err := certificate.DeclarationIn(p.Properties)
	signers := make([]certificate.Attestation, len(p.Parties)) // by party index; the zero value for a party without a valid signature
	var wrong, mismatched []string
	keyed := false
	for i, party := range p.Parties {
		by, formed := certificate.ParseAttestation(party.AttestedBy)
		keyed = keyed || by.Key != "" || formed != nil
		fault := formed
		switch {
		case formed != nil, by.Signature == "":
		case party.Commitment == nil:
			fault = errors.New("attested_by has a signature, but the party has no commitment")
		case digest == "":
			fault = errors.Join(errors.New("the certificate names no declaration, but a seat signature must cover one"), err)
		default:
			seat := certificate.Seat{DealID: p.DealID, Party: i, Commitment: *party.Commitment, Declaration: digest}
			if fault = verify(by, seat); fault == nil && r.seen.origin != "" && by.Origin != r.seen.origin {
				fault = fmt.Errorf("signed for %s, and not for %s as a party before it", by.Origin, r.seen.origin)
			}
			if fault == nil {
				signers[i], r.seen.origin = by, by.Origin
			}
		}
		if fault != nil {
			wrong = append(wrong, fmt.Sprintf("party %d: %v", i, fault))
		}
		named, given := parties[i]
		switch {
		case given && signers[i].Key == "":
			mismatched = append(mismatched, fmt.Sprintf("party %d has no valid signature by a seat key", i))
		case given && signers[i].Key != named:
			mismatched = append(mismatched, fmt.Sprintf("party %d signed with %s, not with the key that you named", i, signers[i].Key))
		}
		r.seen.parties = append(r.seen.parties, agreement(i, party, fault, signers[i].Key, named))
	}
	for _, i := range slices.Sorted(maps.Keys(parties)) {
		if i < 0 || i >= len(p.Parties) {
			mismatched = append(mismatched, fmt.Sprintf("there is no party %d in the certificate", i))
		}
	}
	if keyed {
		r.add(PartySignatures, problem.List(wrong, "%s", "; "), "each seat signature is valid for its party and commitment in this deal")
	}
	if len(parties) > 0 {
		r.add(PartyKeys, problem.List(mismatched, "%s", "; "), fmt.Sprintf("parties that signed with the key that you named: %d", len(parties)))
	}
}

// agreement returns what is proven of a party's agreement. signer is the key of its valid seat
// signature, known the one that the reader named; either may be "".
func agreement(i int, party certificate.Party, fault error, signer, known string) PartyClaim {
	claim := PartyClaim{Party: i, Status: NotProven}
	switch {
	case fault != nil:
		claim.Status, claim.Detail = False, fault.Error()
	case known != "" && signer != known:
		claim.Status, claim.Detail = False, fmt.Sprintf("signed with %q, not with the key that you named", signer)
	case party.Commitment == nil:
		claim.Detail = "committed nothing, as the service says"
	case signer == "":
		claim.Detail = "no seat key signed, and the initiator held every invite token"
	case known == "":
		claim.Detail = fmt.Sprintf("signed with %s, which the initiator may have named or brought; compare it with the key that you know: --seat-key %d=KEY", signer, i)
	default:
		claim.Status, claim.Detail = Proven, "signed with the seat key that you named"
	}
	return claim
}

// declared adds the check Declaration, and reports whether the declaration is the one of the certificate.
// `closing` is that of the bundle, or nil.
func (r *Report) declared(members, closing map[string]any, p certificate.Payload) bool {
	digest, err := certificate.DeclarationIn(p.Properties)
	if digest == "" || err != nil {
		r.add(Declaration, "the certificate names no declaration", "")
		return false
	}
	if text := canon.Encode(members); certificate.DeclarationDigest(text) != digest {
		r.add(Declaration, "the declaration is not the one that the certificate names", "")
		return false
	}
	labels, keys := members["party_labels"].([]any), members["party_keys"].([]any)
	wrong := ""
	switch {
	case members["algorithm"] != p.Algorithm || members["mode"] != p.Mode || members["retention"] != p.Retention,
		len(labels) != len(p.Parties) || len(keys) != len(p.Parties):
		wrong = "the declaration is of another deal: algorithm, mode, retention or the number of parties differ"
	case (members["acted_by"] != nil) != slices.Contains(p.Properties, certificate.ActedByInitiator):
		wrong = "declaration and certificate disagree on whether the initiator acted for all parties"
	default:
		for i, party := range p.Parties {
			by, _ := certificate.ParseAttestation(party.AttestedBy)
			named, _ := keys[i].(string)
			if labels[i] != party.Label || by.Declared != (named != "") || by.Declared && by.Key != named {
				wrong = fmt.Sprintf("party %d has another label or another declared key in the declaration than in the certificate", i)
				break
			}
		}
	}
	if wrong == "" {
		wrong = otherDraw(members, p)
	}
	if chain, known := sealTimes(members, closing); wrong == "" && known {
		r.seen.early = tooEarly(members, chain)
		if r.seen.early != "" && members["acted_by"] != nil {
			wrong = "the initiator acted for all parties, but " + r.seen.early
		}
	}
	if wrong == "" {
		wrong = untimely(members, closing, p)
		r.seen.late = wrong
	}
	r.add(Declaration, wrong, digest)
	return wrong == ""
}

// tooEarly returns how the declared round could be out before the last reveal, or "".
func tooEarly(declaration map[string]any, chain drand.Chain) string {
	round, _ := declaration["algorithm_params"].(map[string]any)["beacon_round"].(int64)
	if by := declaration["reveal_deadline"].(int64); round < 1 || chain.RoundTime(round) <= by {
		return fmt.Sprintf("beacon round %d is not published after reveal_deadline %d", round, by)
	}
	return ""
}

func otherDraw(declaration map[string]any, p certificate.Payload) string {
	a, _ := algorithm.Lookup(p.Algorithm)
	drawn := shownBeacon(p.Result)
	round := declaration["algorithm_params"].(map[string]any)["beacon_round"]
	switch {
	case drawn.ChainHash == "" || !a.Redraws():
		return ""
	case declaration["beacon_chain"] != drawn.ChainHash:
		return "the result was not drawn from the declared beacon chain"
	case round != drawn.Round:
		return fmt.Sprintf("the declaration names beacon round %v, but the result was drawn from round %d", round, drawn.Round)
	}
	return ""
}

// untimely returns which phase closed at or after its declared deadline, or "". Reveals from seals may come
// later, because their beacon round may be late, but not before the round is due.
func untimely(declaration, closing map[string]any, p certificate.Payload) string {
	t, bySeal := p.Timing, certificate.OpenedBySeal(p.Properties)
	if by := declaration["commit_deadline"].(int64); t.CommitsClosedAt != nil && *t.CommitsClosedAt >= by {
		return fmt.Sprintf("commits must close before the declared commit_deadline %d, but they closed at %d", by, *t.CommitsClosedAt)
	}
	if by := declaration["reveal_deadline"].(int64); !bySeal && t.RevealsClosedAt != nil && *t.RevealsClosedAt >= by {
		return fmt.Sprintf("reveals must close before the declared reveal_deadline %d, but they closed at %d", by, *t.RevealsClosedAt)
	}
	if chain, known := sealTimes(declaration, closing); known && bySeal && t.RevealsClosedAt != nil {
		round := timelock.RoundOf(chain, declaration["commit_deadline"].(int64))
		if due := chain.RoundTime(round); *t.RevealsClosedAt < due {
			return fmt.Sprintf("inputs came from seals, which beacon round %d opens from %d on, but reveals closed at %d", round, due, *t.RevealsClosedAt)
		}
	}
	return ""
}

// sealTimes returns genesis and period of the beacon chain of the deal: those of drand quicknet if the
// deal declares it, else those of the chain in the closing.
func sealTimes(declaration, closing map[string]any) (chain drand.Chain, known bool) {
	beacon, closed := closing["beacon"].(map[string]any)
	switch quicknet := drand.Quicknet(); {
	case declaration["beacon_chain"] == quicknet.Hash, beacon["chain_hash"] == quicknet.Hash:
		return quicknet, true
	case closed:
		chain.Genesis, chain.Period = beacon["genesis_time"].(int64), beacon["period"].(int64)
	}
	return chain, chain.Genesis >= 0 && chain.Period >= 1 && chain.Period < 1<<32
}

// shownBeacon returns the beacon round in a result. A member that is missing or of another type is left zero.
func shownBeacon(result json.RawMessage) (b algorithm.Beacon) {
	tree, _ := canon.ParseObject(result) // not json.Unmarshal, which takes names in any case
	shown, _ := tree["beacon"].(map[string]any)
	b.ChainHash, _ = shown["chain_hash"].(string)
	b.Round, _ = shown["round"].(int64)
	b.Randomness, _ = shown["randomness"].(string)
	b.Signature, _ = shown["signature"].(string)
	return b
}
