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

func integer(v any) string {
	if n, ok := v.(int64); ok && n >= 0 {
		return ""
	}
	return "is not a non-negative integer"
}

func text(v any) string {
	if s, ok := v.(string); ok && s != "" {
		return ""
	}
	return "is not a non-empty string"
}

func anyText(v any) string {
	if _, ok := v.(string); ok {
		return ""
	}
	return "is not a string"
}

func object(v any) string {
	if _, ok := v.(map[string]any); ok {
		return ""
	}
	return "is not an object"
}

func null(v any) string {
	if v == nil {
		return ""
	}
	return "is not null"
}

func matches(form *regexp.Regexp, what string) rule {
	return func(v any) string {
		if s, ok := v.(string); ok && form.MatchString(s) {
			return ""
		}
		return "is not " + what
	}
}

func oneOf(allowed ...string) rule {
	return func(v any) string {
		if s, ok := v.(string); ok && slices.Contains(allowed, s) {
			return ""
		}
		return "is not one of " + strings.Join(allowed, ", ")
	}
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
		for _, name := range slices.Sorted(maps.Keys(members)) {
			r := members[name]
			name, optional := strings.CutSuffix(name, "?")
			known[name] = true
			value, there := given[name]
			if !there {
				if optional {
					continue
				}
				return fmt.Sprintf("lacks `%s`", name)
			}
			if problem := r(value); problem != "" {
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

	// certificateShape is the rule for a certificate (SPEC 2.5).
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

	// treeHeadShape is the rule for a tree head (SPEC 2.7).
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
