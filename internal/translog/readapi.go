package translog

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/fairpact/fairpact/internal/problem"
)

const readMethods = "GET, HEAD, OPTIONS"

// ReadHandler serves the public read port: heads and proofs, checkpoints and
// tiles, without authentication, to any origin.
func (l *Log) ReadHandler() http.Handler {
	paths := routes{
		"/v1/log/tree-head":   {readMethods, l.serveTreeHead},
		"/v1/log/proof":       {readMethods, l.serveProof},
		"/v1/log/tlog-proof":  {readMethods, l.serveTLogProof},
		"/v1/log/consistency": {readMethods, l.serveConsistency},
		"/v1/log/status":      {readMethods, l.serveStatus},
		"/v1/log/checkpoint":  {readMethods, l.serveCheckpointOf},
		"/v1/log/policy":      {readMethods, l.servePolicy},
		"/checkpoint":         {readMethods, l.serveCheckpoint},
		"/tile/":              {readMethods, l.serveTile},
	}.handler(l.checks.logger, true)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", readMethods)
			w.Header().Set("Access-Control-Allow-Headers", "*")
		}
		paths.ServeHTTP(w, r)
	})
}

// SPEC 4: GET /v1/log/tree-head, 200, tree head (2.7).
func (l *Log) serveTreeHead(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	size, err := q.integer("tree_size")
	switch {
	case err != nil:
		return nil, err
	case size != nil:
		return l.TreeHeadAt(r.Context(), *size)
	}
	return l.TreeHead(r.Context())
}

func (l *Log) serveProof(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	leaf, err := q.leaf()
	if err != nil {
		return nil, err
	}
	if leaf.TreeSize, err = q.integer("tree_size"); err != nil {
		return nil, err
	}
	return l.Inclusion(r.Context(), leaf)
}

func (l *Log) serveConsistency(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	first, err := q.integer("first")
	if err != nil {
		return nil, err
	}
	second, err := q.integer("second")
	switch {
	case err != nil:
		return nil, err
	case first == nil:
		return nil, problem.New(problem.InvalidRequest, "add ?first= with the tree_size of the older head; second is the newest head where it is left out")
	case second != nil && *first > *second:
		return nil, problem.New(problem.InvalidRequest, "first is %d and second %d: swap them, first is the size of the older head", *first, *second)
	}
	return l.Consistency(r.Context(), *first, second)
}

// query is a request's parameters. One that is not asked for is ignored.
type query url.Values

func readQuery(r *http.Request) (query, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "the query string cannot be read: percent-encode its values")
	}
	return query(values), nil
}

func (q query) one(name string) (string, bool, error) {
	switch values := q[name]; len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	default:
		return "", false, problem.New(problem.InvalidRequest, "%s is given %d times: give it once", name, len(values))
	}
}

// integer reads a decimal integer of 0 to 2^53-1, nil if absent.
func (q query) integer(name string) (*int64, error) {
	text, given, err := q.one(name)
	if err != nil || !given {
		return nil, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxSize || strconv.FormatInt(n, 10) != text {
		return nil, problem.New(problem.InvalidRequest, "%s is %.40q: send an integer of 0 to 2^53-1 in plain decimal digits", name, text)
	}
	return &n, nil
}

// hash reads 64 lower-case hex digits, nil if absent.
func (q query) hash(name string) (*[32]byte, error) {
	text, given, err := q.one(name)
	if err != nil || !given {
		return nil, err
	}
	hash, err := parseHash(text)
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "%s has %v: send the 64 lower-case hex digits of a SHA-256 digest", name, err)
	}
	return &hash, nil
}
