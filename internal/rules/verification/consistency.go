package verification

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/attestation"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// contradictions returns which members of a well-formed certificate contradict each other.
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
	claim(hasResult == (p.VoidFlakers == nil), "exactly one of result and void_flakers must be set")
	claim(hasResult == computed, "result must be set if and only if outcome is COMPUTED")
	claim((p.Timing.ComputedAt != nil) == computed, "computed_at must be set if and only if outcome is COMPUTED")
	claim((p.Timing.CommitsClosedAt != nil) == (len(missing) == 0), "commits_closed_at must be set if and only if every party has a commitment")
	claim((p.Timing.RevealsClosedAt != nil) == (p.InputRoot != nil), "reveals_closed_at must be set if and only if input_root is set")
	claim(p.InputRoot == nil || len(missing) == 0, "input_root is set although a party never committed")
	claim(len(slices.Compact(slices.Clone(flags))) == len(flags), "a property occurs twice")
	claim(!slices.Contains(flags, "inputs-purged") || p.Retention == "purge", "properties contains inputs-purged, but retention is not purge")
	claim(!slices.Contains(flags, "beacon-verified") || computed && a.NeedsBeacon, "properties contains beacon-verified, but the result was not drawn with a beacon")
	if _, err := attestation.DigestIn(flags); err != nil {
		claim(false, "%v", err)
	}
	if reasons := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return !strings.HasPrefix(f, "void:") }); len(reasons) > 0 {
		claim(len(reasons) == 1 && !computed, "properties contains more than one reason for a VOID, or contains one although outcome is COMPUTED")
		claim((reasons[0] == certificate.MissedCommit) == (len(missing) > 0), "the reason for the VOID must be void:missed-commit if and only if a party never committed")
		claim(reasons[0] != certificate.MissedReveal || p.InputRoot == nil, "properties contains void:missed-reveal although all parties have revealed")
		claim(reasons[0] != certificate.Rejected || a.MayReject(), "properties contains void:rejected, but this algorithm has no rejection")
		claim(reasons[0] != certificate.MissedCommit || !slices.Contains(flags, "inputs-committed-before-reveal"), "properties contains void:missed-commit and inputs-committed-before-reveal, but nobody can reveal before all parties commit")
	}
	if p.VoidFlakers != nil {
		ascending := slices.Compact(slices.Sorted(slices.Values(p.VoidFlakers)))
		claim(len(ascending) > 0 && slices.Equal(p.VoidFlakers, ascending), "void_flakers is empty, unsorted or repeats a party")
		claim(!slices.ContainsFunc(ascending, func(i int) bool { return i >= n }), "void_flakers names a party that does not exist")
		claim(len(missing) == 0 || slices.Equal(p.VoidFlakers, missing), "void_flakers are not the parties that never committed")
		claim(p.InputRoot == nil || a.MayReject(), "void_flakers is set although all parties have revealed and this algorithm has no rejection")
	}
	return strings.Join(found, "; ")
}
