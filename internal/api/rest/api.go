// Package rest serves the REST surface (SPEC 4): the operations of package ops by their methods
// and paths, the documents that stay the same, and the reads that log-server answers.
// ops.Endpoint.Run says in which order a call is checked.
package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Config holds the dependencies of the REST API.
type Config struct {
	ops.Services
	Status     func() wire.Status // called for each GET /v1/status, because a key rotation changes the status
	KeySet     func() []byte
	LogReadURL string // URL of log-server's read port
	Pages      map[string]http.Handler
	MCP        http.Handler
	Budget     *budget.Process
	Logger     *slog.Logger
}

// API is shared by the handlers.
type API struct {
	Config
	catalogue []byte
	openAPI   []byte
	failures  *telemetry.Repeats
}

// New returns the handler of all paths, including c.Pages and /mcp. It fails if
// c.LogReadURL is not a URL.
func New(c Config) (http.Handler, error) {
	a := &API{Config: c, failures: telemetry.NewRepeats(c.Logger)}
	var err error
	if a.catalogue, err = wire.Catalogue(wire.REST, true); err != nil {
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
		if path == "/" { // every path that no other route serves, with any method
			routes[path] = web.Route{Whole: page}
		}
	}
	if c.MCP != nil {
		routes["/mcp"] = web.Route{Whole: c.MCP}
	}
	return a.observed(web.Router(routes, "the paths are in GET /openapi.json")), nil
}

// routes returns the route of each path of the OpenAPI document.
func (a *API) routes(log http.HandlerFunc) map[string]web.Route {
	const shared = web.CachePublic
	routes := map[string]web.Route{
		problem.ReadStatus.Path:     {Serve: a.status, Public: true},
		problem.ReadKeys.Path:       {Serve: fixed(a.KeySet), Public: true, Cache: shared},
		problem.ListAlgorithms.Path: {Serve: fixed(func() []byte { return a.catalogue }), Public: true, Cache: shared},
		problem.ReadOpenAPI.Path:    {Serve: fixed(func() []byte { return a.openAPI }), Public: true, Cache: shared},
		"/v1/log/tree-head":         {Serve: log, Public: true, Cache: shared},
		"/v1/log/proof":             {Serve: log, Public: true},
		"/v1/log/tlog-proof":        {Serve: log, Public: true},
		"/v1/log/consistency":       {Serve: log, Public: true},
		"/v1/log/checkpoint":        {Serve: log, Public: true},
		"/v1/log/status":            {Serve: log, Public: true, Cache: shared},
		"/v1/log/policy":            {Serve: log, Public: true, Cache: shared},
		"/checkpoint":               {Serve: log, Public: true},
		"/tile/{level}/{index...}":  {Serve: log, Public: true},
	}
	for _, operation := range ops.Table {
		served := operation.Served()
		route := web.Route{Method: served.Method, Serve: a.serve(operation), Public: served.Public, Cache: served.Cache}
		if operation.ServesHead() {
			route.Head = a.head(operation)
		}
		routes[served.Path] = route
	}
	return routes
}

const (
	maxQuery  = 4 << 10 // bytes: log-server allows a shorter request line than deal-api
	mostToLog = 64      // connections to log-server for forwarded reads; further reads wait for one

	maxFromLog = budget.MaxSmall / 2 // bytes of an answer; a tile has 8 KiB
)

// logProxy forwards reads of the log to log-server, so that one base URL serves all paths.
func (a *API) logProxy(readURL string) (http.HandlerFunc, error) {
	target, err := url.Parse(readURL)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Body, r.Out.ContentLength = nil, 0                   // a GET needs no body
			r.Out.URL.RawQuery = r.In.URL.RawQuery                     // ReverseProxy would drop a malformed parameter; log-server answers 400 to it
			r.Out.Header = http.Header{"Accept": {"application/json"}} // no credential leaves deal-api
			telemetry.Propagate(r.In.Context(), r.Out.Header)
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, set := range []string{telemetry.RequestIDHeader, "Access-Control-Allow-Origin"} { // deal-api sets these headers itself
				resp.Header.Del(set)
			}
			// Whole, so that a client that takes it slowly keeps no connection to log-server.
			body, err := io.ReadAll(io.LimitReader(resp.Body, maxFromLog+1))
			_ = resp.Body.Close()
			if len(body) > maxFromLog {
				err = errors.New("log-server's answer is too large")
			}
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return err
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: mostToLog, MaxConnsPerHost: mostToLog, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 10 * time.Second},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			a.fail(w, r, problem.New(problem.LogUnavailable, "the transparency log is out of reach; call again in a few seconds").WithRetryAfter(2).WithCause(err))
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > maxQuery {
			web.Error(w, problem.New(problem.InvalidRequest, "the query has %d bytes; send at most %d", len(r.URL.RawQuery), maxQuery))
			return
		}
		if err := budget.From(r.Context()).Hold(r.Context(), budget.MaxSmall); err != nil { // the answer
			web.Error(w, err)
			return
		}
		budget.From(r.Context()).Rest()
		proxy.ServeHTTP(w, r)
	}, nil
}

// observed adds limits and a deadline to every call, so that it ends even if the database hangs.
func (a *API) observed(next http.Handler) http.Handler {
	return web.Observed(a.Logger, a.failures, true, func(w *web.Recorder, r *http.Request) {
		wait := waitOf(r)
		if wait > 0 {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timelimits.Write + wait)) // fails only in tests, where the ResponseWriter has no connection
		}
		ctx, cancel := context.WithTimeout(r.Context(), timelimits.Call+wait)
		defer cancel()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		ctx, call := a.Budget.Begin(ctx, caller.Network(a.Callers.Address(r)))
		limited := r.WithContext(ctx)
		defer web.Serves(limited, call)()
		if a.Escrow.KnowsToken(bearer(r)) {
			call.Party()
		}
		if err := call.Turn(ctx); err != nil {
			web.Error(w, err)
			return
		}
		defer func() { r.Pattern = limited.Pattern }()
		next.ServeHTTP(w, limited)
	})
}
