package translog

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// ReadHandler serves the public read port, without authentication and for any origin (CORS).
func (l *Log) ReadHandler() http.Handler {
	routes := map[string]web.Route{}
	for path, serve := range map[string]func(*http.Request) (any, error){
		"/v1/log/tree-head":   l.serveTreeHead,
		"/v1/log/proof":       l.serveProof,
		"/v1/log/tlog-proof":  l.serveTLogProof,
		"/v1/log/consistency": l.serveConsistency,
		"/v1/log/status":      l.serveStatus,
		"/v1/log/checkpoint":  l.serveCheckpointOf,
		"/v1/log/policy":      l.servePolicy,
		"/checkpoint":         l.serveCheckpoint,
		"/tile/{path...}":     l.serveTile,
	} {
		routes[path] = web.Route{Serve: l.handle(serve), Public: true}
	}
	memory := budget.NewLog()
	router := web.Router(routes, "this port serves "+strings.Join(slices.Sorted(maps.Keys(routes)), ", "))
	return web.Observed(l.checks.logger, telemetry.NewRepeats(l.checks.logger), true, func(w *web.Recorder, r *http.Request) {
		web.AllowAnyOrigin(w)                         // also for an unknown path
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // net/http sets it to an address with a port
		ctx, call := memory.Begin(r.Context(), caller.Network(host))
		limited := r.WithContext(ctx)
		defer web.Serves(limited, call)()
		if err := call.Turn(ctx); err != nil {
			web.Error(w, err)
			return
		}
		defer func() { r.Pattern = limited.Pattern }()
		router.ServeHTTP(w, limited)
	})
}

func (l *Log) serveTreeHead(r *http.Request) (any, error) {
	q := readQuery(r)
	size := q.integer("tree_size")
	switch {
	case q.err != nil:
		return nil, q.err
	case size != nil:
		return l.TreeHeadAt(r.Context(), *size)
	}
	return l.TreeHead(r.Context())
}

func (l *Log) serveProof(r *http.Request) (any, error) {
	q := readQuery(r)
	leaf := q.leaf()
	leaf.TreeSize = q.integer("tree_size")
	if q.err != nil {
		return nil, q.err
	}
	return l.Inclusion(r.Context(), leaf)
}

func (l *Log) serveConsistency(r *http.Request) (any, error) {
	q := readQuery(r)
	first, second := q.integer("first"), q.integer("second")
	switch {
	case first == nil:
		q.refuse("?first= is missing: add it with the tree_size of the older head, and optionally &second= with the tree_size of the newer head (default: the newest head)")
	case second != nil && *first > *second:
		q.refuse("first=%d is larger than second=%d: swap the two values, so that first is the tree_size of the older head", *first, *second)
	}
	if q.err != nil {
		return nil, q.err
	}
	return l.Consistency(r.Context(), *first, second)
}

// query reads the parameters of a request. err is the first error.
type query struct {
	values url.Values
	err    error
}

func readQuery(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.refuse("the query string cannot be read: percent-encode its values")
	}
	return q
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = problem.New(problem.InvalidRequest, format, args...)
	}
}

func (q *query) one(name string) (text string, given bool) {
	values := q.values[name]
	if len(values) > 1 {
		q.refuse("%s is given %d times: give it once", name, len(values))
	}
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

func (q *query) integer(name string) *int64 {
	text, given := q.one(name)
	if !given {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > canon.MaxInt || strconv.FormatInt(n, 10) != text {
		q.refuse("%s is %.40q: send an integer of 0 to 2^53-1 in plain decimal digits", name, text)
	}
	return &n
}

func (q *query) leaf() (leaf LeafQuery) {
	leaf.LeafIndex = q.integer("leaf_index")
	if text, given := q.one("entry"); given {
		entry, err := canon.ParseHash(text)
		if err != nil {
			q.refuse("entry has %v: send a SHA-256 digest in hex", err)
		}
		leaf.Entry = &entry
	}
	if leaf.LeafIndex == nil && leaf.Entry == nil {
		q.refuse("no leaf is named: add ?leaf_index= (an integer from 0) or ?entry= (64 lower-case hex digits)")
	}
	return leaf
}
