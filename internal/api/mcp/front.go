package mcp

import (
	"bytes"
	"context"
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
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Bounds of a message in bytes.
const (
	maxMessage = 64 << 10 // any message; the arguments of a tool with a limit do not count
	maxPlain   = 8 << 10  // a call of any other tool; small, because the message may stay in memory while the call waits
)

// maxValues is the most values of a message, not counting a tool's arguments.
const maxValues = 256

// maxBody bounds any message: the largest limit of a tool plus maxMessage.
const maxBody = 8<<20 + maxMessage

// MCP protocol versions. They are dates, so their order as strings is their order in time.
const (
	withStructured = "2025-06-18" // the first version in which clients read structuredContent
	newProtocol    = "2026-07-28" // the first version in which an unknown method is an HTTP 404
)

// methodsOf returns the methods of requests that front accepts in a protocol version. The SDK's others
// would return empty lists or keep a stream open.
func methodsOf(version string) []string {
	methods := []string{"initialize", "ping", "tools/list", "tools/call"}
	if version >= newProtocol {
		methods = append(methods, "server/discover")
	}
	return methods
}

// front checks the host, origin, HTTP method and size of each request before the SDK sees it, and
// replaces the SDK's error texts with texts that say what to do.
type front struct {
	hosts   hosts
	address func(*http.Request) string
	sdk     http.Handler
}

// requestInfo describes the HTTP request that carries a tool call. It is not the Origin header.
type requestInfo struct {
	address    string
	arguments  []byte          // of the tool call; the SDK gets none
	structured bool            // the client reads structuredContent in the result of a tool
	ctx        context.Context // the request's context; the SDK's own context for a tool outlives the request
}

type requestInfoKey struct{}

func requestInfoOf(ctx context.Context) requestInfo { return ctx.Value(requestInfoKey{}).(requestInfo) }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Origin")
	// A DNS rebinding attack sends a foreign Host. A page of another site sends a foreign
	// Origin. Only browsers send an Origin.
	if !f.hosts.allow(r.Host) {
		web.Error(w, problem.New(problem.Forbidden, "/mcp is not served under this Host; use the public name of the service, or localhost (the operator lists the public names in FAIRPACT_PUBLIC_HOSTS)"))
		return
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		if len(origins) > 1 || !f.hosts.allowOrigin(origins[0]) {
			web.Error(w, problem.New(problem.Forbidden, "/mcp does not answer pages of this Origin; call /mcp from a client that is not a web page, or from a page of the service itself"))
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
	default: // the server is stateless: there is no stream to GET and no session to DELETE
		h.Set("Allow", "OPTIONS, POST")
		web.Error(w, problem.New(problem.MethodNotAllowed, "/mcp is stateless MCP over Streamable HTTP: POST one JSON-RPC message in each request, and begin with initialize"))
	}
}

func (f *front) post(w http.ResponseWriter, r *http.Request) {
	body, err := web.ReadAll(w, r, maxBody)
	if err == nil {
		err = budget.From(r.Context()).Turn(r.Context())
	}
	if err != nil {
		web.Error(w, err)
		return
	}
	var m message
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '[' {
		message{}.fault(w, http.StatusBadRequest, wireError{Code: jsonrpc.CodeInvalidRequest}, problem.New(problem.InvalidRequest, "a batch is not served; send one JSON-RPC message in each request"))
		return
	}
	// Duplicate names and invalid UTF-8 are allowed here, because parseArguments reports them.
	if err := json.Unmarshal(body, &m, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		message{}.fault(w, http.StatusBadRequest, wireError{Code: jsonrpc.CodeParseError}, problem.New(problem.InvalidJSON, "the body is not one JSON-RPC message; send a message such as %s", example))
		return
	}
	refuse := func(status int, code int64, p *problem.Error) { m.fault(w, status, wireError{Code: code}, p) }
	if m.Method == "" && len(m.Result) == 0 && len(m.Error) == 0 { // the SDK would treat this message as a response and send an empty body
		refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, m.wrong(jsonrpc.CodeInvalidRequest, 0))
		return
	}
	name, isCall := m.Params.tool()
	limit, known := limitOf(name)
	at := m.Params.Arguments
	arguments := at.to - at.from
	if m.Method != "tools/call" {
		limit, isCall, arguments = 0, false, 0
	}
	switch {
	case m.Method == "tools/call" && len(body) > maxPlain && limit == 0:
		refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, problem.New(problem.BodyTooLarge, "the message has %d bytes; send at most %d in a call of this tool", len(body), maxPlain))
		return
	case len(body) > maxMessage && (arguments > limit || len(body)-arguments > maxMessage):
		refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, problem.New(problem.BodyTooLarge,
			"the message has %d bytes; send at most %d bytes, not counting a tool's arguments. The arguments may have at most 4 MiB in create_deal and reveal_input, 1 MiB in commit_input and compute_commitment_tool, and 8 MiB in verify_certificate", len(body), maxMessage))
		return
	case isCall && !known && len(m.ID.Value) > 0:
		refuse(http.StatusOK, jsonrpc.CodeInvalidParams, problem.New(problem.InvalidRequest, "params.name is not a tool of this server; send one of %s", toolNames()))
		return
	case r.Header.Get("Last-Event-ID") != "":
		refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, problem.New(problem.InvalidRequest, "the header Last-Event-ID resumes a stream, but this server has no streams; send the message without that header"))
		return
	}
	version := r.Header.Get("Mcp-Protocol-Version")
	if versions := mcp.SupportedProtocolVersions(); version != "" && !slices.Contains(versions, version) {
		data, _ := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: versions, Requested: version}, jsontext.AllowInvalidUTF8(true))
		m.fault(w, http.StatusBadRequest, wireError{Code: mcp.CodeUnsupportedProtocolVersion, Data: data}, problem.New(problem.InvalidRequest,
			"the version in the header Mcp-Protocol-Version is not served; send one of %s, or leave that header out", strings.Join(versions, ", ")))
		return
	}
	if m.notification() { // nothing here depends on a notification, and JSON-RPC answers none
		w.WriteHeader(http.StatusAccepted)
		return
	}
	methods := methodsOf(version)
	if m.Method != "" && len(m.ID.Value) > 0 && !slices.Contains(methods, m.Method) {
		status := http.StatusOK
		if version >= newProtocol {
			status = http.StatusNotFound
		}
		refuse(status, jsonrpc.CodeMethodNotFound, problem.New(problem.NotFound, "this server has no method %.40q; call one of %s", m.Method, strings.Join(methods, ", ")))
		return
	}
	info := requestInfo{address: f.address(r), structured: version >= withStructured, ctx: r.Context()}
	if arguments == 0 {
		at.from, at.to = len(body), len(body)
	}
	if _, _, err := ops.TreeBytes(slices.Concat(body[:at.from], body[at.to:]), maxValues); err != nil { // the SDK builds a tree
		refuse(http.StatusOK, jsonrpc.CodeInvalidRequest, problem.From(err))
		return
	}
	if arguments > 0 { // parseArguments reads the arguments, so the SDK need not
		info.arguments = body[at.from:at.to]
		body = at.replaced(body, "{}")
	}
	if id := m.ID.at; string(m.id()) != "null" {
		if arguments > 0 && id.from > at.from {
			id = span{id.from - arguments + len("{}"), id.to - arguments + len("{}")}
		}
		body = id.replaced(body, sdkID)
	}
	r = r.Clone(context.WithValue(r.Context(), requestInfoKey{}, info))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	// As in REST, these two headers do not matter. The SDK would refuse other values.
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	f.sdk.ServeHTTP(&answerWriter{ResponseWriter: w, message: m}, r)
}

// hosts holds the host names under which clients may reach the tool server. Loopback is
// always allowed.
type hosts map[string]bool

func newHosts(names []string) (hosts, error) {
	allowed := hosts{}
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if strings.ContainsAny(name, "*/ ") {
			return nil, fmt.Errorf("FAIRPACT_PUBLIC_HOSTS: %q is not a host name; list each name, without scheme, path or wildcard", name)
		}
		allowed[hostName(name)] = true
	}
	return allowed, nil
}

func (h hosts) allow(host string) bool {
	name := hostName(host)
	if name == "localhost" || h[name] {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

// allowOrigin reports whether an Origin header (RFC 6454 6.2) is allowed.
func (h hosts) allowOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.User == nil && u.Path == "" && u.RawQuery == "" && u.Fragment == "" && h.allow(u.Host)
}

func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
