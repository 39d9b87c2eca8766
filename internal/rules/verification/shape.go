package verification

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

type rule func(v any) string

// a returns the rule for a T that fits.
func a[T any](what string, fits func(T) bool) rule {
	return func(v any) string {
		if t, ok := v.(T); ok && fits(t) {
			return ""
		}
		return "is not " + what
	}
}

var (
	integer = a("a non-negative integer", func(n int64) bool { return n >= 0 })
	text    = a("a non-empty string", func(s string) bool { return s != "" })
	anyText = a("a string", func(string) bool { return true })
	object  = a("an object", func(map[string]any) bool { return true })
)

func null(v any) string {
	if v == nil {
		return ""
	}
	return "is not null"
}

func matches(form *regexp.Regexp, what string) rule { return a(what, form.MatchString) }

func oneOf(allowed ...string) rule {
	return a("one of "+strings.Join(allowed, ", "), func(s string) bool { return slices.Contains(allowed, s) })
}

func nullable(r rule) rule {
	return func(v any) string {
		if v == nil {
			return ""
		}
		return r(v)
	}
}

func array(r rule) rule { return arrayUpTo(math.MaxInt, r) }

func arrayUpTo(most int, r rule) rule {
	return func(v any) string {
		list, ok := v.([]any)
		if !ok {
			return "is not an array"
		}
		if len(list) > most {
			return fmt.Sprintf("has %d elements, but at most %d are allowed", len(list), most)
		}
		for i, element := range list {
			if wrong := r(element); wrong != "" {
				return fmt.Sprintf("[%d] %s", i, wrong)
			}
		}
		return ""
	}
}

// record returns the rule for an object with exactly these members. A name that ends in
// '?' means an optional member.
func record(members map[string]rule) rule {
	return func(v any) string {
		given, ok := v.(map[string]any)
		if !ok {
			return "is not an object"
		}
		known := map[string]bool{}
		for _, key := range slices.Sorted(maps.Keys(members)) {
			name, optional := strings.CutSuffix(key, "?")
			known[name] = true
			value, there := given[name]
			if !there && !optional {
				return fmt.Sprintf("lacks `%s`", name)
			}
			if wrong := members[key](value); there && wrong != "" {
				return fmt.Sprintf("`%s` %s", name, wrong)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if !known[name] {
				return fmt.Sprintf("has the unknown member `%s`", name)
			}
		}
		return ""
	}
}

var (
	signatureForm = regexp.MustCompile(`^(es256|ed25519):[0-9a-f]{128}$`)

	hash      = matches(regexp.MustCompile(`^[0-9a-f]{64}$`), "64 lower-case hex digits")
	sha256Hex = matches(regexp.MustCompile(`^sha256:[0-9a-f]{64}$`), "`sha256:` and 64 lower-case hex digits")
	signature = matches(signatureForm, "`es256:` or `ed25519:`, followed by 128 lower-case hex digits")

	// SPEC 2.5.
	certificateShape = record(map[string]rule{
		"cert_version": oneOf(certificate.Version),
		"cert_id":      text,
		"deal_id":      text,
		"outcome":      oneOf(certificate.Computed, certificate.Void),
		"algorithm":    oneOf(algorithm.IDs()...),
		"mode":         oneOf("sealed", "open"),
		"retention":    oneOf("standard", "purge"),
		"parties": array(record(map[string]rule{
			"index": integer, "label": text, "commitment": nullable(sha256Hex), "attested_by": text,
		})),
		"input_root":   nullable(text), // any text, because the check InputRootForm reports a malformed root
		"result":       nullable(object),
		"void_flakers": nullable(array(integer)),
		"properties":   array(text),
		"timing": record(map[string]rule{
			"created_at": integer, "commits_closed_at": nullable(integer),
			"reveals_closed_at": nullable(integer), "computed_at": nullable(integer),
		}),
		"log_proof":       record(map[string]rule{"tree_size": integer, "leaf_index": integer, "inclusion_path": array(hash)}),
		"tee_attestation": null,
		"signature":       signature,
	})

	declarationShape = record(map[string]rule{
		"algorithm": text, "algorithm_params": object, "beacon_chain": nullable(hash), "commit_deadline": integer, "mode": text,
		"party_keys": array(nullable(text)), "party_labels": array(text), "retention": text, "reveal_deadline": integer, "seals?": oneOf("required"),
		"audience?": oneOf("public"), "acted_by?": oneOf("initiator"), "title?": text, "message?": text,
	})

	// SPEC 2.7.
	treeHeadShape = record(map[string]rule{"tree_size": integer, "root_hash": hash, "signature": signature})

	inputsShape = array(nullable(record(map[string]rule{"input": object, "salt?": nullable(anyText)})))
)

func readHead(v any) (h certificate.TreeHead, wrong string) {
	if wrong := treeHeadShape(v); wrong != "" {
		return h, wrong
	}
	members := v.(map[string]any)
	return certificate.TreeHead{TreeSize: members["tree_size"].(int64), RootHash: members["root_hash"].(string), Signature: members["signature"].(string)}, ""
}

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
	claim(!slices.Contains(flags, certificate.InputsPurged) || p.Retention == "purge", "properties contains inputs-purged, but retention is not purge")
	claim(!slices.Contains(flags, "beacon-verified") || computed && a.NeedsBeacon, "properties contains beacon-verified, but the result was not drawn with a beacon")
	claim(!certificate.OpenedBySeal(flags) || slices.Contains(flags, "inputs-committed-before-reveal"), "properties contains opened-by-timelock, but no input was revealed")
	if _, err := certificate.DeclarationIn(flags); err != nil {
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
