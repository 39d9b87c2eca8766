package rest

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(published(t))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func published(t *testing.T) []byte {
	t.Helper()
	text, err := openAPI()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDocumentIsValid(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaPatternValidation(),
		openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableMultiError()); err != nil {
		t.Error(err)
	}
	// SPEC 9.2, 4.1
	if doc.Info.Version != "0.1.0" || !strings.HasPrefix(doc.OpenAPI, "3.0.") {
		t.Errorf("interface version %s, OpenAPI %s, want 0.1.0 and 3.0.x", doc.Info.Version, doc.OpenAPI)
	}
	if _, err := gorillamux.NewRouter(doc); err != nil {
		t.Error(err)
	}
}

// kin-openapi keeps only the members that OpenAPI 3.0 defines, so a misspelt member is
// lost when the document is decoded and encoded again.
func TestDocumentHasNoUnknownMembers(t *testing.T) {
	doc := document(t)
	text, err := doc.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var given, understood any
	if err := json.Unmarshal(published(t), &given); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &understood); err != nil {
		t.Fatal(err)
	}
	compare(t, "#", given, understood)
}

func compare(t *testing.T, at string, given, understood any) {
	t.Helper()
	switch given := given.(type) {
	case map[string]any:
		other, _ := understood.(map[string]any)
		for name, value := range given {
			if _, there := other[name]; !there && value != nil && !reflect.DeepEqual(value, []any{}) && value != false {
				t.Errorf("%s/%s is not a member of OpenAPI 3.0", at, name)
				continue
			}
			compare(t, at+"/"+name, value, other[name])
		}
	case []any:
		other, _ := understood.([]any)
		for i, value := range given {
			if i < len(other) {
				compare(t, at+"/"+strconv.Itoa(i), value, other[i])
			}
		}
	}
}

func TestRoutesAreThePathsOfTheDocument(t *testing.T) {
	var served, documented []string
	for path, route := range (&API{}).routes(nil) {
		served = append(served, route.Verb()+" "+strings.Replace(path, "...}", "}", 1)) // OpenAPI has no parameter of several path segments
	}
	for path, item := range document(t).Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("served:\n%v\nwant, as in the document:\n%v", served, documented)
	}
}

// A generator of clients stops at these faults, although the document is valid without these rules.
func TestSchemasSuitGenerators(t *testing.T) {
	var document object
	if err := json.Unmarshal(published(t), &document); err != nil {
		t.Fatal(err)
	}
	var walk func(t *testing.T, at string, value any)
	walk = func(t *testing.T, at string, value any) {
		switch value := value.(type) {
		case object:
			// OpenAPI 3.0.3: nullable has no effect without a type beside it. Ajv refuses the whole schema.
			if value["nullable"] == true && value["type"] == nil {
				t.Errorf("%s is nullable and has no type", at)
			}
			// openapi-typescript makes a member with a default required.
			if _, has := value["default"]; has {
				t.Errorf("%s has a default; say in its description what leaving it out means", at)
			}
			for name, member := range value {
				walk(t, at+"/"+name, member)
			}
		case []any:
			for i, member := range value {
				walk(t, at+"/"+strconv.Itoa(i), member)
			}
		}
	}
	for name, schema := range document["components"].(object)["schemas"].(object) {
		t.Run(name, func(t *testing.T) { walk(t, "#", schema) })
	}
}

func TestAnswerSchemasAreClosed(t *testing.T) {
	var optional []string
	var walk func(at string, ref *openapi3.SchemaRef)
	walk = func(at string, ref *openapi3.SchemaRef) {
		if ref == nil || ref.Value == nil || ref.Ref != "" {
			return
		}
		s := ref.Value
		if closed := s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has; len(s.Properties) > 0 && !closed {
			t.Errorf("%s has no additionalProperties: false", at)
		}
		for name, member := range s.Properties {
			if !slices.Contains(s.Required, name) {
				optional = append(optional, at+"."+name)
			}
			walk(at+"."+name, member)
		}
		walk(at, s.Items)
		for _, one := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
			walk(at, one)
		}
	}
	for name, schema := range document(t).Components.Schemas {
		if !regexp.MustCompile("(Request|Params|Input)$").MatchString(name) {
			walk(name, schema)
		}
	}
	slices.Sort(optional)
	want := []string{"BeaconChain.beacon_id", "BeaconChain.genesis_seed", "Bundle.beacon", "Bundle.closing", "Bundle.declaration", "Bundle.log_proof", "Bundle.openings", "Bundle.own_input", "Bundle.own_input.input_path", "CommitAnswer.opens_at", "CommitAnswer.receipt", "DealCreated.warning", "DealDeclaration.seals", "DealView.acted_by", "DealView.audience", "DealView.contents_deleted", "DealView.message", "DealView.title", "Declaration.acted_by", "Declaration.audience", "Declaration.message", "Declaration.seals", "Declaration.title", "KeySet.keys.retired_at", "KeySet.keys.tree_size"}
	if !slices.Equal(optional, want) {
		t.Errorf("optional members are %v, want %v", optional, want)
	}
}

// The OpenAPI document declares at least the statuses of SPEC 4.
func TestContractStatuses(t *testing.T) {
	doc := document(t)
	for _, row := range []struct{ method, path, statuses string }{
		{"GET", "/v1/status", "200"},
		{"GET", "/v1/algorithms", "200"},
		{"POST", "/v1/keys", "201"},
		{"POST", "/v1/deals", "201 400 401 409"},
		{"GET", "/v1/deals/{id}", "200 401 403 404"},
		{"POST", "/v1/deals/{id}/commit", "200 400 401 403 409"},
		{"POST", "/v1/deals/{id}/reveal", "200 400 401 403 409"},
		{"POST", "/v1/deals/{id}/entropy", "200 400 401 403 409 502"},
		{"POST", "/v1/deals/{id}/cancel", "200 401 403 409"},
		{"GET", "/v1/deals/{id}/certificate", "200 401 403 409"},
		{"GET", "/v1/verify/{cert_id}", "200 404"},
		{"GET", "/v1/log/tree-head", "200"},
	} {
		op := doc.Paths.Value(row.path).GetOperation(row.method)
		for status := range strings.FieldsSeq(row.statuses) {
			if op.Responses.Value(status) == nil {
				t.Errorf("%s %s does not declare %s", row.method, row.path, status)
			}
		}
		// SPEC 5.4: public operations declare no security requirement.
		if public := strings.Contains("/v1/status /v1/algorithms /v1/keys /v1/verify/{cert_id} /v1/log/tree-head", row.path); public != (op.Security == nil) {
			t.Errorf("%s %s: security is %v, public is %t", row.method, row.path, op.Security, public)
		}
	}
}

func TestErrorCodesOfTheDocumentAreTheTable(t *testing.T) {
	schema := document(t).Components.Schemas["ErrorCode"].Value
	text, err := json.Marshal(schema.Extensions["x-error-codes"])
	if err != nil {
		t.Fatal(err)
	}
	var rows []problem.Entry
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows, problem.Table) {
		t.Errorf("x-error-codes is\n%v\nwant problem.Table\n%v", rows, problem.Table)
	}
	var codes []any
	for _, row := range problem.Table {
		codes = append(codes, string(row.Code))
	}
	if !slices.Equal(schema.Enum, codes) {
		t.Errorf("the enum of ErrorCode is %v, want the codes of problem.Table %v", schema.Enum, codes)
	}
}

var listedCodes = regexp.MustCompile(`Error codes: ([A-Z_, ]+)\.`)

// An operation declares exactly the error statuses of the codes in its description. Every
// code is in some description, except the four codes below. TAG_TAKEN occurs only on the
// private append port. The other three answer requests that reach no operation.
func TestOperationsNameTheirCodes(t *testing.T) {
	named := map[problem.Code]bool{problem.NotFound: true, problem.MethodNotAllowed: true, problem.HeadersTooLarge: true, problem.TagTaken: true}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			want := map[int]bool{}
			if list := listedCodes.FindStringSubmatch(op.Description); list != nil {
				for code := range strings.SplitSeq(list[1], ", ") {
					row, ok := problem.Lookup(problem.Code(code))
					if !ok {
						t.Errorf("%s %s names %q, which is not in problem.Table", method, path, code)
					}
					named[row.Code], want[row.Status] = true, true
				}
			}
			for status := range op.Responses.Map() {
				code, err := strconv.Atoi(status)
				if err != nil || code >= 400 && !want[code] {
					t.Errorf("%s %s declares status %s, but its description names no code of that status", method, path, status)
				}
				delete(want, code)
			}
			if len(want) > 0 {
				t.Errorf("%s %s does not declare these statuses of the codes in its description: %v", method, path, want)
			}
		}
	}
	for _, row := range problem.Table {
		if !named[row.Code] {
			t.Errorf("no operation of the document names the code %s", row.Code)
		}
	}
}

func TestExamplesCompute(t *testing.T) {
	doc := document(t)
	for id, row := range map[string]struct {
		name   string
		inputs []map[string]any
	}{
		algorithm.Split:   {"Split", []map[string]any{{"valuations": map[string]any{"car": int64(70), "boat": int64(30)}}, {"valuations": map[string]any{"car": int64(40), "boat": int64(60)}}}},
		algorithm.Shapley: {"Shapley", []map[string]any{{"accept": true}, {"accept": true}}},
	} {
		example := func(part string) map[string]any {
			text, err := json.Marshal(doc.Components.Schemas[row.name+part].Value.Example)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := canon.ParseObject(text)
			if err != nil {
				t.Fatal(err)
			}
			return tree
		}
		a, _ := algorithm.Lookup(id)
		got, err := a.Compute([]string{"ann", "bob"}, example("Params"), row.inputs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := canon.Encode(example("Result")); string(got) != string(want) {
			t.Errorf("%s: the example inputs compute to %s, want the example result %s", id, got, want)
		}
	}
}

func TestErrorsNameOperationsOfTheDocument(t *testing.T) {
	doc := document(t)
	for _, op := range problem.Ops {
		if item := doc.Paths.Value(op.Path); item == nil || item.GetOperation(op.Method) == nil {
			t.Errorf("operation %s: %s %s is not in the document", op.Name, op.Method, op.Path)
		}
	}
}
