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

	"github.com/fairpact/fairpact/internal/problem"
)

// surface is the published OpenAPI document, to which the whole suite is held.
type surface struct {
	doc    *openapi3.T
	router routers.Router
	codes  map[string][]string // by operationId, from its description
}

var theSurface struct {
	mu sync.Mutex
	s  *surface
}

// Published is the document as a running service gives it. All stacks run the
// same binaries, so one is asked once.
func Published(t testing.TB, c *Client) *surface {
	t.Helper()
	theSurface.mu.Lock()
	defer theSurface.mu.Unlock()
	if theSurface.s != nil {
		return theSurface.s
	}
	a, err := c.Try(t.Context(), http.MethodGet, "/openapi.json", "", nil)
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("GET /openapi.json: %d, %v", a.Status, err)
	}
	s, err := readSurface(t.Context(), a.Body)
	if err != nil {
		t.Fatal(err)
	}
	theSurface.s = s
	return s
}

var namedCodes = regexp.MustCompile(`Error codes: ([A-Z_, ]+)\.`)

func readSurface(ctx context.Context, text []byte) (*surface, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(ctx, openapi3.EnableExamplesValidation()); err != nil {
		return nil, err
	}
	s := &surface{doc: doc, codes: map[string][]string{}}
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

// Describes reports whether the document allows the answer to this request, and
// the request itself where the service took it.
func (s *surface) Describes(r *http.Request, a Answer) error {
	route, params, err := s.find(r)
	switch {
	case errors.Is(err, routers.ErrPathNotFound) && !strings.HasPrefix(r.URL.Path, "/v1"):
		return nil // MCP and the pages for people are not REST
	case errors.Is(err, routers.ErrPathNotFound):
		return s.outside(r, a, http.StatusNotFound, problem.NotFound)
	case r.Method == http.MethodOptions:
		if a.Status != http.StatusNoContent || a.Header.Get("Allow") == "" || len(a.Body) > 0 {
			return fmt.Errorf("OPTIONS answers %d, Allow %q, %d bytes", a.Status, a.Header.Get("Allow"), len(a.Body))
		}
		return nil
	case errors.Is(err, routers.ErrMethodNotAllowed):
		if a.Header.Get("Allow") == "" {
			return errors.New("405 without Allow")
		}
		return s.outside(r, a, http.StatusMethodNotAllowed, problem.MethodNotAllowed)
	case err != nil:
		return err
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: authenticated, SkipSettingDefaults: true, IncludeResponseStatus: true}}
	if a.Status < 400 {
		// Bodies are JSON whatever the Content-Type says; the document has one name for it.
		if r.Header = r.Header.Clone(); r.Body != nil && r.Body != http.NoBody {
			r.Header.Set("Content-Type", "application/json")
		}
		if route.Operation.RequestBody == nil {
			r.Body = http.NoBody // ignored
		}
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			return fmt.Errorf("accepted request: %w", err)
		}
	}
	if r.Method == http.MethodHead {
		if route.Operation.Responses.Status(a.Status) == nil || len(a.Body) > 0 {
			return fmt.Errorf("HEAD answers %d with %d bytes", a.Status, len(a.Body))
		}
		return nil
	}
	if a.Status >= 400 && !slices.Contains(s.codes[route.Operation.OperationID], a.Code()) {
		return fmt.Errorf("the operation does not name the code %s", a.Code())
	}
	if err := s.ofTable(a); err != nil {
		return err
	}
	response := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: a.Status, Header: a.Header, Options: input.Options}
	response.SetBodyBytes(a.Body)
	return openapi3filter.ValidateResponse(r.Context(), response)
}

// find finds the operation of a request; HEAD is that of GET, and OPTIONS is of
// any path that there is.
func (s *surface) find(r *http.Request) (*routers.Route, map[string]string, error) {
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

// outside is an answer to what the document does not have.
func (s *surface) outside(r *http.Request, a Answer, status int, code problem.Code) error {
	if a.Status != status || r.Method != http.MethodHead && a.Code() != string(code) {
		return fmt.Errorf("%d %s where the document has nothing, want %d %s", a.Status, a.Code(), status, code)
	}
	return nil
}

// ofTable holds an error's status to the published table of codes.
func (s *surface) ofTable(a Answer) error {
	rows, _ := s.doc.Components.Schemas["ErrorCode"].Value.Extensions["x-error-codes"].([]any)
	for _, row := range rows {
		if row, ok := row.(map[string]any); ok && row["code"] == a.Code() {
			if row["status"] != float64(a.Status) {
				return fmt.Errorf("%s came with %d, the table says %v", a.Code(), a.Status, row["status"])
			}
			return nil
		}
	}
	if a.Status >= 400 {
		return fmt.Errorf("%q is not in the published table of codes", a.Code())
	}
	return nil
}

// authenticated holds an accepted call to the kind of credential that the
// document wants for it.
func authenticated(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	scheme, token, _ := strings.Cut(in.RequestValidationInput.Request.Header.Get("Authorization"), " ")
	kind := strings.TrimSuffix(in.SecurityScheme.BearerFormat, "…")
	if !strings.EqualFold(scheme, in.SecurityScheme.Scheme) || !strings.HasPrefix(strings.TrimSpace(token), kind) {
		return fmt.Errorf("the credential is no %s", in.SecuritySchemeName)
	}
	return nil
}
