package rest

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// SPEC 9.2: the interface version is 0.1.0.
//
//go:embed openapi.json
var openAPIText []byte

type object = map[string]any

func openAPI() ([]byte, error) {
	schemas, deals, reveals := object{}, object{}, object{}
	var params, inputs, results []any
	// openapi.json has a pattern for declaration-sha256:HASH, because the hash varies.
	properties := []string{"inputs-committed-before-reveal", "deterministic-recomputable", certificate.InputsPurged, "logged", certificate.MissedCommit, certificate.MissedReveal, certificate.Rejected, certificate.ActedByInitiator}
	for _, a := range algorithm.All() {
		name := schemaName(a.ID)
		add := func(to *[]any, part string, s algorithm.Schema) {
			schemas[name+part] = s.JSON
			*to = append(*to, object{"$ref": "#/components/schemas/" + name + part})
		}
		add(&params, "Params", a.Params)
		add(&inputs, "Input", a.Input)
		add(&results, "Result", a.Result)
		deal := object{"value": object{"algorithm": a.ID, "party_labels": []string{"ann", "bob"}, "commit_deadline": 1900000000, "reveal_deadline": 1900003600,
			"algorithm_params": a.Params.Example}}
		if note := a.Params.Description; note != "" {
			deal["summary"] = note
		}
		deals[a.ID] = deal
		properties = append(properties, a.Properties...)
		reveals[a.ID] = object{"value": object{"input": a.Input.Example, "salt": "6b1f0c2d9e8a47355d0e9f1c2b3a4958"}}
	}
	slices.Sort(properties)
	text, err := algorithm.FillJSON(openAPIText, object{
		"enum": algorithm.IDs(), "count": len(algorithm.All()), "properties": slices.Compact(properties), "deal examples": deals, "reveal examples": reveals,
		"params schemas": params, "input schemas": inputs, "result schemas": append(results, object{"$ref": "#/components/schemas/NoResult"}),
	})
	if err != nil {
		return nil, err
	}
	joined, err := json.Marshal(schemas)
	if err != nil {
		return nil, err
	}
	const first = `"schemas": {`
	return []byte(strings.Replace(string(text), first, first+string(joined[1:len(joined)-1])+",", 1)), nil
}

// schemaName returns Split for split.v1, and SplitV2 for split.v2.
func schemaName(id string) string {
	name, version, _ := strings.Cut(id, ".")
	name = strings.ToUpper(name[:1]) + name[1:]
	if version != "v1" {
		name += strings.ToUpper(version)
	}
	return name
}
