// Package rest serves the REST surface (SPEC 4). A handler finds the caller and
// the deal, reads the body, calls one use case of package escrow and writes the
// response. The package holds no rules of the protocol.
//
// The checks of a call run in this order:
//
//  1. HTTP syntax: 400, 431 (see answer.Listener)
//  2. route: 404, 405
//  3. credential: 401
//  4. deal: 403, 404
//  5. size of the body: 413
//  6. JSON syntax and shape of the body: 400
//  7. idempotency: replay or 409
//  8. state of the deal: 409
//  9. checks of the use case: 400
package rest

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/httpcache"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/web"
)

// Config holds the dependencies of the REST API.
type Config struct {
	ops.Calls
	Status     func() wire.Status // called for each GET /v1/status, because a key rotation changes the status
	KeySet     func() []byte
	LogReadURL string // URL of log-server's read port
	Pages      map[string]http.Handler
	MCP        http.Handler
	Logger     *slog.Logger
}

// API holds what the REST handlers share.
type API struct {
	Config
	catalogue []byte
	openAPI   []byte
	limits    *limits.Process
	failures  *telemetry.Repeats
}

// Limits of request bodies in bytes.
const (
	maxCreation  = 4 << 20  // fits 10,000 party labels
	maxReveal    = 4 << 20  // fits an input of 512 KiB with every character escaped
	maxSubmitted = 8 << 20  // POST /v1/verify: fits a certificate of 10,000 parties with seat keys and long labels
	maxSmall     = 64 << 10 // the bodies of all other calls
)

// New returns the handler of all paths, including c.Pages and /mcp. It fails if
// c.LogReadURL is not a URL.
func New(c Config) (http.Handler, error) {
	a := &API{Config: c, limits: limits.New(), failures: telemetry.NewRepeats(c.Logger)}
	var err error
	if a.catalogue, err = wire.Catalogue(web.REST, true); err != nil {
		return nil, err
	}
	if a.openAPI, err = openAPI(); err != nil {
		return nil, err
	}
	log, err := a.logProxy(c.LogReadURL)
	if err != nil {
		return nil, err
	}
	routes := a.routes(log)
	for path, page := range c.Pages {
		routes[path] = web.Route{Serve: page.ServeHTTP}
	}
	if c.MCP != nil {
		routes["/mcp"] = web.Route{Whole: c.MCP}
	}
	return a.observed(web.Router(routes, "the paths are in GET /openapi.json")), nil
}

// routes returns the route of each path. A test compares the map with the OpenAPI
// document.
//
// If the answer of a route holds a credential or an input, the route's field Cache is empty. The
// answer is then no-store and never compressed. The size of a compressed answer could reveal the
// credential or input, if the answer also holds another party's text (BREACH).
func (a *API) routes(log http.HandlerFunc) map[string]web.Route {
	const shared, owned = httpcache.Public, httpcache.Private
	get := func(handle handler) http.HandlerFunc { return a.handlerFor(http.StatusOK, handle) }
	post := func(status int, handle handler) web.Route {
		return web.Route{Method: http.MethodPost, Serve: a.handlerFor(status, handle)}
	}
	return map[string]web.Route{
		"/v1/status":                 {Serve: get(a.status), Public: true},
		"/v1/pubkeys":                {Serve: func(w http.ResponseWriter, _ *http.Request) { web.JSON(w, http.StatusOK, a.KeySet()) }, Public: true, Cache: shared},
		"/v1/algorithms":             {Serve: fixed(a.catalogue), Public: true, Cache: shared},
		"/v1/beacon":                 {Serve: get(a.beacon), Public: true, Cache: shared},
		"/openapi.json":              {Serve: fixed(a.openAPI), Public: true, Cache: shared},
		"/v1/keys":                   post(http.StatusCreated, a.createKey),
		"/v1/deals":                  post(http.StatusCreated, a.createDeal),
		"/v1/deals/{id}":             {Serve: get(a.deal(escrow.Read, a.view)), Cache: owned},
		"/v1/deals/{id}/commit":      post(http.StatusOK, a.deal(escrow.AsParty, a.commit)),
		"/v1/deals/{id}/reveal":      post(http.StatusOK, a.deal(escrow.AsParty, a.reveal)),
		"/v1/deals/{id}/entropy":     post(http.StatusOK, a.deal(escrow.DrawEntropy, a.entropy)),
		"/v1/deals/{id}/cancel":      post(http.StatusOK, a.deal(escrow.CancelDeal, a.cancel)),
		"/v1/deals/{id}/certificate": {Serve: get(a.deal(escrow.AsParty, a.certificate)), Cache: owned},
		"/v1/deals/{id}/bundle":      {Serve: get(a.deal(escrow.AsParty, a.bundle)), Cache: owned},
		"/v1/deals/{id}/declaration": {Serve: get(a.deal(escrow.Read, a.declaration))},
		"/v1/deals/{id}/inputs":      {Serve: get(a.deal(escrow.AsParty, a.inputs))},
		"/v1/verify":                 post(http.StatusOK, a.verifySubmitted),
		"/v1/verify/{cert_id}":       {Serve: get(a.verify), Public: true},
		"/v1/log/tree-head":          {Serve: log, Public: true, Cache: shared},
		"/v1/log/proof":              {Serve: log, Public: true},
		"/v1/log/tlog-proof":         {Serve: log, Public: true},
		"/v1/log/consistency":        {Serve: log, Public: true},
		"/v1/log/checkpoint":         {Serve: log, Public: true},
		"/v1/log/status":             {Serve: log, Public: true, Cache: shared},
		"/v1/log/policy":             {Serve: log, Public: true, Cache: shared},
		"/checkpoint":                {Serve: log, Public: true},
		"/tile/{level}/{index...}":   {Serve: log, Public: true},
	}
}

const (
	readTimeout  = 30 * time.Second
	writeTimeout = timelimits.Write
)

// Server returns a server for h with timeouts and a header limit against slow or
// greedy clients.
func Server(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
