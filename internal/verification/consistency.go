package verification

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/certificate"
)

// contradictions returns which members of a well-formed certificate contradict each other,
// or "".
func contradictions(p certificate.Payload) string {
	var found []string
	claim := func(holds bool, format string, args ...any) {
		if !holds {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	a, _ := algorithm.Lookup(p.Algorithm)
	computed, n := p.Outcome == certificate.Computed, len(p.Parties)
	hasResult := len(p.Result) > 0 && string(p.Result) != "null"
	missing, inOrder := []int{}, true
	for i, party := range p.Parties {
		inOrder = inOrder && party.Index == i
		if party.Commitment == nil {
			missing = append(missing, i)
		}
	}
	flags := slices.Sorted(slices.Values(p.Properties))

	claim(a.MinParties <= n && n <= a.MaxParties, "%s takes %d to %d parties, not %d", a.ID, a.MinParties, a.MaxParties, n)
	claim(inOrder, "party indexes are not 0 to n-1 in order")
	claim(hasResult == (p.VoidFlakers == nil), "not exactly one of result and void_flakers is set")
	claim(hasResult == computed, "result is set without COMPUTED, or the reverse")
	claim((p.Timing.ComputedAt != nil) == computed, "computed_at is set without COMPUTED, or the reverse")
	claim((p.Timing.CommitsClosedAt != nil) == (len(missing) == 0), "commits_closed_at and the commitments disagree")
	claim((p.Timing.RevealsClosedAt != nil) == (p.InputRoot != nil), "reveals_closed_at and input_root disagree")
	claim(p.InputRoot == nil || len(missing) == 0, "input_root is set although a party never committed")
	claim(len(slices.Compact(slices.Clone(flags))) == len(flags), "a property occurs twice")
	claim(!slices.Contains(flags, "inputs-purged") || p.Retention == "purge", "inputs-purged without purge")
	claim(!slices.Contains(flags, "beacon-verified") || computed && a.NeedsBeacon, "beacon-verified without a draw")
	if _, err := attestation.DigestIn(flags); err != nil {
		claim(false, "%v", err)
	}
	if reasons := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return !strings.HasPrefix(f, "void:") }); len(reasons) > 0 {
		claim(len(reasons) == 1 && !computed, "more than one reason for a VOID, or one without a VOID")
		claim((reasons[0] == certificate.MissedCommit) == (len(missing) > 0), "the reason of the VOID and the commitments disagree")
		claim(reasons[0] != certificate.MissedReveal || p.InputRoot == nil, "void:missed-reveal although all have revealed")
		claim(reasons[0] != certificate.Rejected || a.MayReject(), "void:rejected without an algorithm that takes a rejection")
		claim(reasons[0] != certificate.MissedCommit || !slices.Contains(flags, "inputs-committed-before-reveal"), "inputs-committed-before-reveal although nobody could reveal")
	}
	if p.VoidFlakers != nil {
		ascending := slices.Compact(slices.Sorted(slices.Values(p.VoidFlakers)))
		claim(len(ascending) > 0 && slices.Equal(p.VoidFlakers, ascending), "void_flakers is empty, unsorted or repeats a party")
		claim(!slices.ContainsFunc(ascending, func(i int) bool { return i >= n }), "void_flakers names a party that does not exist")
		claim(len(missing) == 0 || slices.Equal(p.VoidFlakers, missing), "void_flakers are not the parties that never committed")
		claim(p.InputRoot == nil || a.MayReject(), "VOID although all have revealed")
	}
	return strings.Join(found, "; ")
}
