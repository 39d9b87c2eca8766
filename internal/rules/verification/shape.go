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
			if problem := r(element); problem != "" {
				return fmt.Sprintf("[%d] %s", i, problem)
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
			if problem := members[key](value); there && problem != "" {
				return fmt.Sprintf("`%s` %s", name, problem)
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
		"party_keys": array(nullable(text)), "party_labels": array(text), "retention": text, "reveal_deadline": integer,
	})

	// SPEC 2.7.
	treeHeadShape = record(map[string]rule{"tree_size": integer, "root_hash": hash, "signature": signature})

	inputsShape = array(nullable(record(map[string]rule{"input": object, "salt?": nullable(anyText)})))
)

func readHead(v any) (h certificate.TreeHead, problem string) {
	if problem := treeHeadShape(v); problem != "" {
		return h, problem
	}
	members := v.(map[string]any)
	return certificate.TreeHead{TreeSize: members["tree_size"].(int64), RootHash: members["root_hash"].(string), Signature: members["signature"].(string)}, ""
}
