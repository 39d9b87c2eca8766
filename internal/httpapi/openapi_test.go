package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/wire"
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
		t.Errorf("interface version %s, OpenAPI %s", doc.Info.Version, doc.OpenAPI)
	}
	if _, err := gorillamux.NewRouter(doc); err != nil {
		t.Error(err)
	}
}

// A decoder that knows the 3.0 objects by name leaves nothing over: no member is
// misspelt into an extension that nobody reads.
func TestDocumentHasNoStrayMembers(t *testing.T) {
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
				t.Errorf("%s/%s is not read", at, name)
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

// The routes and the document's paths are the same, both ways.
func TestRoutesAreThePaths(t *testing.T) {
	doc := document(t)
	routes := map[string]route{}
	for path, methods := range (&API{}).routes(nil) {
		routes[strings.Replace(path, "...}", "}", 1)] = methods // OpenAPI has no name for a path of several parts
	}
	for path, methods := range routes {
		item := doc.Paths.Value(path)
		for method := range methods {
			if item == nil || item.GetOperation(method) == nil {
				t.Errorf("%s %s is served and not in the document", method, path)
			}
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if _, served := routes[path][method]; !served {
				t.Errorf("%s %s is in the document and not served", method, path)
			}
		}
	}
}

// What the contract's table of endpoints declares is declared (SPEC 4).
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
		// SPEC 5: no credential where the contract wants none.
		if public := strings.Contains("/v1/status /v1/algorithms /v1/keys /v1/verify/{cert_id} /v1/log/tree-head", row.path); public != (op.Security == nil) {
			t.Errorf("%s %s: security %v", row.method, row.path, op.Security)
		}
	}
}

// The document's codes are the error table's.
func TestErrorCodesAreTheTable(t *testing.T) {
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
		t.Errorf("x-error-codes is not problem.Table:\n%v\n%v", rows, problem.Table)
	}
	if len(schema.Enum) != len(problem.Table) {
		t.Fatalf("%d codes in the enum, %d in the table", len(schema.Enum), len(problem.Table))
	}
	for i, row := range problem.Table {
		if schema.Enum[i] != string(row.Code) {
			t.Errorf("enum[%d] is %v, the table has %s", i, schema.Enum[i], row.Code)
		}
	}
}

var listedCodes = regexp.MustCompile(`Error codes: ([A-Z_, ]+)\.`)

// The codes that an operation names and the statuses that it declares belong
// together, and every code is named by one, or is answered before there is an
// operation, or on the private append port alone.
func TestOperationsNameTheirCodes(t *testing.T) {
	named := map[problem.Code]bool{problem.NotFound: true, problem.MethodNotAllowed: true, problem.HeadersTooLarge: true, problem.TagTaken: true}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			want := map[int]bool{}
			if list := listedCodes.FindStringSubmatch(op.Description); list != nil {
				for code := range strings.SplitSeq(list[1], ", ") {
					row, ok := problem.Lookup(problem.Code(code))
					if !ok {
						t.Errorf("%s %s names %q, which is no code", method, path, code)
					}
					named[row.Code], want[row.Status] = true, true
				}
			}
			for status := range op.Responses.Map() {
				code, err := strconv.Atoi(status)
				if err != nil || code >= 400 && !want[code] {
					t.Errorf("%s %s declares %s without a code of that status", method, path, status)
				}
				delete(want, code)
			}
			if len(want) > 0 {
				t.Errorf("%s %s names codes of statuses that it does not declare: %v", method, path, want)
			}
		}
	}
	for _, row := range problem.Table {
		if !named[row.Code] {
			t.Errorf("no operation names %s", row.Code)
		}
	}
}

// The examples of params, inputs and results are those of one deal each.
func TestExamplesCompute(t *testing.T) {
	doc := document(t)
	for id, name := range map[string]string{algorithm.Split: "Split", algorithm.Shapley: "Shapley"} {
		a, _ := algorithm.Lookup(id)
		var params map[string]any
		exampleInto(t, doc, name+"Params", &params)
		inputs := map[string][]map[string]any{
			algorithm.Split:   {{"valuations": map[string]any{"car": int64(70), "boat": int64(30)}}, {"valuations": map[string]any{"car": int64(40), "boat": int64(60)}}},
			algorithm.Shapley: {{"accept": true}, {"accept": true}},
		}[id]
		got, err := a.Compute([]string{"ann", "bob"}, integers(params).(map[string]any), inputs, nil)
		if err != nil {
			t.Fatal(err)
		}
		var computed, shown any
		if err := json.Unmarshal(got, &computed); err != nil {
			t.Fatal(err)
		}
		exampleInto(t, doc, name+"Result", &shown)
		if !reflect.DeepEqual(computed, shown) {
			t.Errorf("%s: the example is %v, computed %v", id, shown, computed)
		}
	}
}

func exampleInto(t *testing.T, doc *openapi3.T, schema string, v any) {
	t.Helper()
	text, err := json.Marshal(doc.Components.Schemas[schema].Value.Example)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// integers makes the floats of a decoded example the integers that they are.
func integers(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case map[string]any:
		for name := range v {
			v[name] = integers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	}
	return v
}

// The document matches what the catalogue really answers.
func TestCatalogueMatchesItsSchema(t *testing.T) {
	text, err := wire.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	var body any
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	op := document(t).Paths.Value("/v1/algorithms").GetOperation(http.MethodGet)
	if err := op.Responses.Status(200).Value.Content.Get("application/json").Schema.Value.VisitJSON(body, openapi3.VisitAsResponse()); err != nil {
		t.Error(err)
	}
}
