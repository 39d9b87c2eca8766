package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// apiDocument is the published OpenAPI document. Client.Do checks requests and responses against it.
type apiDocument struct {
	doc    *openapi3.T
	router routers.Router
	codes  map[string][]string // the error codes in the description of each operation, by operationId
	status map[string]int      // the HTTP status of each error code, from x-error-codes
}

var theAPIDocument struct {
	mu sync.Mutex
	s  *apiDocument
}

// Published returns the OpenAPI document that the service publishes. The first call reads the document
// with the client c. All later calls return this document, because nearly all stacks run the
// binaries of this release. A test that also runs another release must first call Published with a
// client of this release.
func Published(t testing.TB, c *Client) *apiDocument {
	t.Helper()
	theAPIDocument.mu.Lock()
	defer theAPIDocument.mu.Unlock()
	if theAPIDocument.s != nil {
		return theAPIDocument.s
	}
	a, err := c.Try(t.Context(), http.MethodGet, "/openapi.json", "", nil)
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("GET /openapi.json: status %d, error %v, want 200", a.Status, err)
	}
	s, err := readSurface(t.Context(), a.Body)
	if err != nil {
		t.Fatal(err)
	}
	theAPIDocument.s = s
	return s
}

var namedCodes = regexp.MustCompile(`Error codes: ([A-Z_, ]+)\.`)

func readSurface(ctx context.Context, text []byte) (*apiDocument, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(ctx, openapi3.EnableExamplesValidation()); err != nil {
		return nil, err
	}
	s := &apiDocument{doc: doc, codes: map[string][]string{}, status: map[string]int{}}
	rows, _ := doc.Components.Schemas["ErrorCode"].Value.Extensions["x-error-codes"].([]any)
	for _, row := range rows {
		row := row.(map[string]any)
		s.status[row["code"].(string)] = int(row["status"].(float64))
	}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if list := namedCodes.FindStringSubmatch(op.Description); list != nil {
				s.codes[op.OperationID] = strings.Split(list[1], ", ")
			}
		}
	}
	s.router, err = gorillamux.NewRouter(doc)
	return s, err
}

// Describes returns an error if the document does not allow the response to this request. It also
// returns an error if the service accepted a request that the document does not allow.
func (s *apiDocument) Describes(r *http.Request, a Answer) error {
	route, params, err := s.find(r)
	switch {
	case errors.Is(err, routers.ErrPathNotFound) && !strings.HasPrefix(r.URL.Path, "/v1"):
		return nil // MCP and the HTML pages are not in the document
	case errors.Is(err, routers.ErrPathNotFound):
		if a.Status != http.StatusNotFound || r.Method != http.MethodHead && a.Code() != string(problem.NotFound) {
			return fmt.Errorf("an unknown path answers %d %s, want 404 NOT_FOUND", a.Status, a.Code())
		}
		return nil
	case r.Method == http.MethodOptions:
		if a.Status != http.StatusNoContent || a.Header.Get("Allow") == "" || len(a.Body) > 0 {
			return fmt.Errorf("OPTIONS answers %d, Allow %q, %d bytes; want 204, an Allow header and no body", a.Status, a.Header.Get("Allow"), len(a.Body))
		}
		return nil
	case errors.Is(err, routers.ErrMethodNotAllowed):
		if a.Status != http.StatusMethodNotAllowed || r.Method != http.MethodHead && a.Code() != string(problem.MethodNotAllowed) || a.Header.Get("Allow") == "" {
			return fmt.Errorf("an unknown method answers %d %s, Allow %q; want 405 METHOD_NOT_ALLOWED and an Allow header", a.Status, a.Code(), a.Header.Get("Allow"))
		}
		return nil
	case err != nil:
		return err
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: authenticated, SkipSettingDefaults: true, IncludeResponseStatus: true}}
	if a.Status < 400 {
		// The service reads a body as JSON whatever its Content-Type is.
		if r.Header = r.Header.Clone(); r.Body != nil && r.Body != http.NoBody {
			r.Header.Set("Content-Type", "application/json")
		}
		if route.Operation.RequestBody == nil {
			r.Body = http.NoBody // the service ignores a body here
		}
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			return fmt.Errorf("the service accepted an invalid request: %w", err)
		}
	}
	if r.Method == http.MethodHead {
		if route.Operation.Responses.Status(a.Status) == nil || len(a.Body) > 0 {
			return fmt.Errorf("HEAD answers %d with %d bytes, want a documented status of GET and no body", a.Status, len(a.Body))
		}
		return nil
	}
	if a.Status >= 400 && !slices.Contains(s.codes[route.Operation.OperationID], a.Code()) {
		return fmt.Errorf("%d %s: the description of the operation %s does not name this error code", a.Status, a.Code(), route.Operation.OperationID)
	}
	if a.Code() != "" && s.status[a.Code()] != a.Status {
		return fmt.Errorf("%s came with status %d, want %d as in the published table of codes", a.Code(), a.Status, s.status[a.Code()])
	}
	response := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: a.Status, Header: a.Header, Options: input.Options}
	response.SetBodyBytes(a.Body)
	return openapi3filter.ValidateResponse(r.Context(), response)
}

// Path is a path of the document, with its parameters in braces.
type Path struct {
	Path    string
	Methods []string
	Public  bool // no operation of the path takes a credential
}

// Paths returns all paths of the document.
func (s *apiDocument) Paths() (all []Path) {
	for path, item := range s.doc.Paths.Map() {
		p := Path{Path: path, Public: true}
		for method, op := range item.Operations() {
			p.Methods = append(p.Methods, method)
			p.Public = p.Public && op.Security == nil
		}
		all = append(all, p)
	}
	return all
}

func (s *apiDocument) find(r *http.Request) (*routers.Route, map[string]string, error) {
	if r.URL.Path != path.Clean(r.URL.Path) {
		return nil, nil, routers.ErrPathNotFound
	}
	if r.Method != http.MethodHead {
		return s.router.FindRoute(r)
	}
	get := r.Clone(r.Context())
	get.Method = http.MethodGet
	return s.router.FindRoute(get)
}

func authenticated(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	scheme, token, _ := strings.Cut(in.RequestValidationInput.Request.Header.Get("Authorization"), " ")
	kind := strings.TrimSuffix(in.SecurityScheme.BearerFormat, "…")
	if !strings.EqualFold(scheme, in.SecurityScheme.Scheme) || !strings.HasPrefix(strings.TrimSpace(token), kind) {
		return fmt.Errorf("a call succeeded without a credential of the kind %s", in.SecuritySchemeName)
	}
	return nil
}
