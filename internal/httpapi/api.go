// Package httpapi is the REST surface (SPEC 4). A handler finds who calls and
// which deal is meant, reads the body, calls one use case of package escrow and
// writes its answer. The rules are not here.
//
// Every call is checked in one order: well-formed HTTP (400, 431, by package
// answer below the router), route (404, 405), credential (401), deal
// (403, 404), size (413), syntax and shape (400), idempotency (replay or 409),
// state (409), and then what the use case finds (400).
package httpapi

import (
	"log/slog"
	"net/http"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/caller"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/telemetry"
	"github.com/fairpact/fairpact/internal/wire"
)

// Status is the service status (SPEC 2.8).
type Status struct {
	Status       string   `json:"status"`
	Service      string   `json:"service"`
	Version      string   `json:"version"`
	PublicKey    string   `json:"pubkey"`
	Custody      string   `json:"key_custody"`
	LegacyKeys   []string `json:"legacy_pubkeys"`
	DevEphemeral bool     `json:"dev_ephemeral_key"`
	Note         string   `json:"note"`
}

// Config is what the surface needs.
type Config struct {
	Escrow     *escrow.Service
	Guard      *idempotency.Guard
	Status     func() Status // now: it changes with a rotation
	KeySet     func() []byte // the published key set now (signing.KeySet.Published)
	LogReadURL string        // log-server's read port
	Callers    *caller.Policy
	Pages      map[string]http.Handler // by path, served beside the REST surface: MCP, the docs
	Logger     *slog.Logger
}

// API serves the REST surface.
type API struct {
	Config
	catalogue []byte
	openAPI   []byte
	limits    *limits.Process
	failures  *telemetry.Repeats
}

const (
	maxCreation = 4 << 20  // 10,000 labels fit
	maxReveal   = 4 << 20  // an input of 512 KiB, however it is escaped
	maxHanded   = 8 << 20  // a certificate of 10,000 parties with seat keys and long labels
	maxSmall    = 64 << 10 // all others
	maxHeader   = 32 << 10
)

// New gives the handler of the whole surface.
func New(c Config) (http.Handler, error) {
	a := &API{Config: c, limits: limits.New(), failures: telemetry.NewRepeats(c.Logger)}
	var err error
	if a.catalogue, err = wire.Catalogue(); err != nil {
		return nil, err
	}
	if a.openAPI, err = openAPI(); err != nil {
		return nil, err
	}
	log, err := logProxy(c.LogReadURL)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for path, methods := range a.routes(log) {
		mux.Handle(path, methods)
	}
	for path, page := range c.Pages {
		mux.Handle(path, page)
	}
	mux.HandleFunc("/", notFound)
	return a.observed(cleanPath(mux)), nil
}

// routes is the surface by path. The OpenAPI document has these paths with these
// methods and no others; a test holds the two together.
func (a *API) routes(log http.HandlerFunc) map[string]route {
	return map[string]route{
		"/v1/status":                 {http.MethodGet: public(a.status)},
		"/v1/pubkeys":                {http.MethodGet: shared(public(a.pubkeys))},
		"/v1/algorithms":             {http.MethodGet: shared(public(fixed(a.catalogue)))},
		"/openapi.json":              {http.MethodGet: shared(public(fixed(a.openAPI)))},
		"/v1/keys":                   {http.MethodPost: a.answers(http.StatusCreated, a.createKey)},
		"/v1/deals":                  {http.MethodPost: a.answers(http.StatusCreated, a.createDeal)},
		"/v1/deals/{id}":             {http.MethodGet: owned(a.answers(http.StatusOK, a.view))},
		"/v1/deals/{id}/commit":      {http.MethodPost: a.answers(http.StatusOK, a.commit)},
		"/v1/deals/{id}/reveal":      {http.MethodPost: a.answers(http.StatusOK, a.reveal)},
		"/v1/deals/{id}/entropy":     {http.MethodPost: a.answers(http.StatusOK, a.entropy)},
		"/v1/deals/{id}/cancel":      {http.MethodPost: a.answers(http.StatusOK, a.cancel)},
		"/v1/deals/{id}/certificate": {http.MethodGet: owned(a.answers(http.StatusOK, a.certificate))},
		"/v1/deals/{id}/bundle":      {http.MethodGet: owned(a.answers(http.StatusOK, a.bundle))},
		"/v1/deals/{id}/declaration": {http.MethodGet: a.answers(http.StatusOK, a.declaration)},
		"/v1/deals/{id}/inputs":      {http.MethodGet: a.answers(http.StatusOK, a.inputs)},
		"/v1/verify":                 {http.MethodPost: a.answers(http.StatusOK, a.verifyHanded)},
		"/v1/verify/{cert_id}":       {http.MethodGet: public(a.answers(http.StatusOK, a.verify))},
		"/v1/log/tree-head":          {http.MethodGet: shared(log)},
		"/v1/log/proof":              {http.MethodGet: log},
		"/v1/log/tlog-proof":         {http.MethodGet: log},
		"/v1/log/consistency":        {http.MethodGet: log},
		"/v1/log/checkpoint":         {http.MethodGet: log},
		"/v1/log/status":             {http.MethodGet: shared(log)},
		"/v1/log/policy":             {http.MethodGet: shared(log)},
		"/checkpoint":                {http.MethodGet: log},
		"/tile/{level}/{index...}":   {http.MethodGet: log},
	}
}

func (a *API) status(w http.ResponseWriter, _ *http.Request) {
	body, err := wire.Encode(a.Status())
	if err != nil {
		answer.Error(w, err)
		return
	}
	answer.JSON(w, http.StatusOK, body)
}

func (a *API) pubkeys(w http.ResponseWriter, _ *http.Request) {
	answer.JSON(w, http.StatusOK, a.KeySet())
}
