package mcpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
)

// What a message may have in bytes; a call of a tool that takes little, since it
// may wait with its arguments in memory; and a call of one that takes much, of which
// only what is in its arguments may be so large.
const (
	maxMessage = 64 << 10
	maxPlain   = 8 << 10
)

var maxCall = map[string]int{"create_deal": 4 << 20, "reveal_input": 4 << 20, "compute_commitment_tool": 1 << 20, "verify_certificate": 8 << 20}

// maxBody is the most that is read.
const maxBody = 8<<20 + maxMessage

// newProtocol is the version from which an unknown method is an HTTP 404.
const newProtocol = "2026-07-28"

// methods are the calls that this server has. The SDK would answer some more,
// with empty lists or a stream that stays open.
var methods = []string{"initialize", "ping", "server/discover", "tools/list", "tools/call"}

// front is what stands before the SDK: hosts, origins, HTTP methods, the bound
// of a body, and JSON-RPC errors that say what to do.
type front struct {
	hosts   hosts
	address func(*http.Request) string
	sdk     http.Handler
}

// origin is what a tool knows of its HTTP request. The SDK runs tools on a context
// that does not end with the request's.
type origin struct {
	address string // the network address that the call came from
	ctx     context.Context
}

type originKey struct{}

func originOf(ctx context.Context) origin {
	from, ok := ctx.Value(originKey{}).(origin)
	if !ok {
		return origin{ctx: ctx}
	}
	return from
}

// callerAddress is the network address that a call came from.
func callerAddress(ctx context.Context) string { return originOf(ctx).address }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Origin")
	// A page that made its own name point here (DNS rebinding) has a foreign
	// Host; a page of another site has a foreign Origin. Clients that are no
	// browsers send none.
	if !f.hosts.allow(r.Host) {
		answer.Error(w, problem.New(problem.Forbidden, "/mcp is not served under this Host; use the public name of the service, or localhost (the operator lists names in FAIRPACT_PUBLIC_HOSTS)"))
		return
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		if len(origins) > 1 || !f.hosts.allowOrigin(origins[0]) {
			answer.Error(w, problem.New(problem.Forbidden, "/mcp does not answer pages of this Origin; call it from a client that is no web page, or from a page of the service itself"))
			return
		}
		h.Set("Access-Control-Allow-Origin", origins[0])
	}
	switch r.Method {
	case http.MethodPost:
		f.post(w, r)
	case http.MethodOptions:
		h.Set("Allow", "OPTIONS, POST")
		h.Set("Access-Control-Allow-Methods", "POST")
		h.Set("Access-Control-Allow-Headers", "Accept, Content-Type, Mcp-Method, Mcp-Name, Mcp-Protocol-Version")
		w.WriteHeader(http.StatusNoContent)
	default: // stateless: no stream to GET, no session to DELETE
		h.Set("Allow", "OPTIONS, POST")
		answer.Error(w, problem.New(problem.MethodNotAllowed, "/mcp is stateless MCP over Streamable HTTP: POST one JSON-RPC message, beginning with initialize"))
	}
}

func (f *front) post(w http.ResponseWriter, r *http.Request) {
	body, err := limits.ReadAll(w, r, maxBody)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		answer.Error(w, problem.New(problem.BodyTooLarge, "the body is over %d bytes; send a smaller one", maxBody))
		return
	}
	if refused, ok := errors.AsType[*problem.Error](err); ok { // package limits
		answer.Error(w, refused)
		return
	}
	if err != nil {
		answer.Error(w, problem.New(problem.InvalidJSON, "the body ended before it was complete; send it again"))
		return
	}
	var m message
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '[' {
		message{}.fault(w, http.StatusBadRequest, wireError{Code: jsonrpc.CodeInvalidRequest}, problem.New(problem.InvalidRequest, "a batch is not served; send one JSON-RPC message a request"))
		return
	}
	// What is wrong inside the arguments is the tool's to say.
	if err := json.Unmarshal(body, &m, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		message{}.fault(w, http.StatusBadRequest, wireError{Code: jsonrpc.CodeParseError}, problem.New(problem.InvalidJSON, "the body is not one JSON-RPC message; send %s or the like", example))
		return
	}
	if m.Method == "" && len(m.Result) == 0 && len(m.Error) == 0 { // the SDK would take it for a response, and answer nothing
		m.fault(w, http.StatusBadRequest, wireError{Code: jsonrpc.CodeInvalidRequest}, m.wrong(jsonrpc.CodeInvalidRequest, ""))
		return
	}
	tool, arguments := m.call()
	if m.Method == "tools/call" && len(body) > maxPlain && maxCall[tool] == 0 {
		m.fault(w, http.StatusRequestEntityTooLarge, wireError{Code: jsonrpc.CodeInvalidRequest}, problem.New(problem.BodyTooLarge,
			"the message has %d bytes; a call of this tool has at most %d", len(body), maxPlain))
		return
	}
	if len(body) > maxMessage && (arguments > maxCall[tool] || len(body)-arguments > maxMessage) {
		m.fault(w, http.StatusRequestEntityTooLarge, wireError{Code: jsonrpc.CodeInvalidRequest}, problem.New(problem.BodyTooLarge,
			"the message has %d bytes; send at most %d, and more only in the arguments of create_deal, reveal_input, compute_commitment_tool and verify_certificate", len(body), maxMessage))
		return
	}
	version := r.Header.Get("Mcp-Protocol-Version")
	if m.Method != "" && len(m.ID) > 0 && !slices.Contains(methods, m.Method) {
		status := http.StatusOK
		if version >= newProtocol {
			status = http.StatusNotFound
		}
		m.fault(w, status, wireError{Code: jsonrpc.CodeMethodNotFound}, problem.New(problem.NotFound, "this server has no such method; it has %s", strings.Join(methods, ", ")))
		return
	}
	r = r.Clone(context.WithValue(r.Context(), originKey{}, origin{f.address(r), r.Context()}))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	// As in REST a body is read as JSON whatever it is called, and there are
	// only JSON answers to accept.
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	f.sdk.ServeHTTP(&explained{ResponseWriter: w, message: m}, r)
}

// hosts are the names under which clients may reach the tool server, beside
// loopback.
type hosts map[string]bool

func newHosts(names []string) (hosts, error) {
	allowed := hosts{}
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if strings.ContainsAny(name, "*/ ") {
			return nil, fmt.Errorf("FAIRPACT_PUBLIC_HOSTS: %q is no host name; list each name, without scheme, path or wildcard", name)
		}
		allowed[hostName(name)] = true
	}
	return allowed, nil
}

// allow takes a Host header: a name with or without a port.
func (h hosts) allow(host string) bool {
	name := hostName(host)
	if name == "localhost" || h[name] {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

// allowOrigin takes an Origin header: scheme, name and port (RFC 6454 6.2).
func (h hosts) allowOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.User == nil && u.Path == "" && u.RawQuery == "" && u.Fragment == "" && h.allow(u.Host)
}

// hostName is the name without port and brackets, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
