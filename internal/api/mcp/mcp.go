// Package mcp serves the agent tool server (SPEC 4.1): MCP over Streamable HTTP, stateless, with
// JSON responses. Its nine tools run the operations of package ops, as REST does.
//
// A tool's structuredContent equals the REST answer to the same call, so that a certificate
// verifies as received. The exceptions:
//   - compute_commitment_tool returns a commitment and the bytes that a seat key signs. A REST client
//     computes both itself, from its input and GET /v1/deals/{id}/declaration. That is why
//     problem.ReadDeclaration names the tool.
//   - The answers of create_deal and reveal_input have more members than in REST.
//   - `next` of commit_input and `protocol` of list_algorithms name tools instead of REST calls.
//   - list_algorithms returns test vectors only on request.
//
// The next step for the agent is in a second text block and in _meta. The step has
// placeholders for the caller's credentials, so that no step repeats a credential.
//
// Arguments and results stay JSON bytes inside the SDK, so no number becomes a float.
package mcp

import (
	"context"
	"embed"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Config holds the settings and dependencies of the tool server.
type Config struct {
	ops.Services
	docs.Deployment // without PublicURL, invitations have paths instead of links
	Version         string
	PublicHosts     []string // host names, in addition to loopback, under which clients may reach /mcp
	Logger          *slog.Logger
}

type server struct {
	Config
	catalogue []byte // the list of algorithms without test vectors
	vectors   []byte // the list of algorithms with test vectors
	failures  *telemetry.Repeats
}

var tracer = otel.Tracer("github.com/fairpact/fairpact/internal/api/mcp")

//go:embed instructions.md
var instructions string

// New returns the handler of /mcp. It fails if c.PublicHosts holds a text that is not a
// host name.
func New(c Config) (http.Handler, error) {
	hosts, err := newHosts(c.PublicHosts)
	if err != nil {
		return nil, err
	}
	s := &server{Config: c, failures: telemetry.NewRepeats(c.Logger)}
	if s.catalogue, err = wire.Catalogue(wire.MCP, false); err != nil {
		return nil, err
	}
	if s.vectors, err = wire.Catalogue(wire.MCP, true); err != nil {
		return nil, err
	}
	values := c.Chain.Words()
	if values["development"] = ""; c.Development {
		values["development"] = " This server signs with a development key: its certificates prove nothing."
	}
	// The SDK gets no logger, because the SDK would log messages, which hold secrets.
	m := mcp.NewServer(&mcp.Implementation{Name: "fairpact", Title: "Fairpact", Version: c.Version}, &mcp.ServerOptions{
		Instructions: algorithm.Fill(instructions, values),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	for _, t := range tools {
		described, arguments, err := describe(t.name())
		if err != nil {
			return nil, fmt.Errorf("mcp: tool %s: %w", t.name(), err)
		}
		t.arguments = arguments
		m.AddTool(described, s.handler(t))
	}
	return &front{
		hosts:   hosts,
		address: c.Callers.Address,
		sdk: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, DisableLocalhostProtection: true, // [front] checks the Host header
			MaxRequestBodyBytes: maxBody,
		}),
	}, nil
}

// handler returns failures as tool errors, because clients show these to the agent but may hide
// JSON-RPC errors.
func (s *server) handler(t tool) mcp.ToolHandler {
	zeroMetrics(t.name())
	return func(ctx context.Context, _ *mcp.CallToolRequest) (result *mcp.CallToolResult, _ error) {
		began := time.Now()
		ctx, span := tracer.Start(ctx, "tools/call "+t.name())
		defer span.End()
		code := problem.Code("")
		defer func() {
			if fault := recover(); fault != nil {
				// The SDK runs tools on its own goroutines, where a panic would end the process.
				s.Logger.ErrorContext(ctx, "panic", "tool", t.name(), "fault", fault)
				code = problem.Internal
				result = refusal(problem.From(fmt.Errorf("panic")))
			}
			countCall(t.name(), code, telemetry.Took(ctx, began))
			if code != "" {
				span.SetAttributes(attribute.String("error.type", string(code)))
			}
			s.Logger.DebugContext(ctx, "tool call", "tool", t.name(), "code", code, "ms", time.Since(began).Milliseconds())
		}()
		done, err := s.call(ctx, t)
		if err != nil {
			p := problem.From(err)
			code = p.Code
			if busy := p.Code == problem.RateLimited || p.Code == problem.Overloaded; (busy || p.Status() >= 500) && ctx.Err() == nil {
				level := slog.LevelError
				if busy {
					level = slog.LevelWarn
				}
				s.failures.Failure(ctx, level, "tool calls fail", p, "", "tool", t.name(), "code", p.Code)
			}
			return refusal(p), nil
		}
		return success(done, requestInfoOf(ctx).structured), nil
	}
}

func (s *server) call(ctx context.Context, t tool) (result, error) {
	info := requestInfoOf(ctx)
	args, err := parseArguments(ctx, info.arguments, t)
	if err != nil {
		return result{}, err
	}
	if err := args.known(t); err != nil {
		return result{}, err
	}
	wait, _ := args.waitSeconds() // t.run returns the error of a malformed wait_seconds
	ctx, cancel := context.WithTimeout(ctx, timelimits.Call+wait)
	defer cancel()
	defer context.AfterFunc(info.ctx, cancel)() // cancels the call when the client closes the connection
	done, err := t.run(&call{s, t, args, info.address}, ctx)
	return done, args.quoted(err)
}

//go:embed tools/*.json
var descriptions embed.FS

// describe returns the tool that tools/<name>.json describes, with its placeholders filled from
// tools/shared.json and the algorithms, and the sorted names of its arguments.
func describe(name string) (*mcp.Tool, []string, error) {
	text, missing := descriptions.ReadFile("tools/" + name + ".json")
	shared, absent := descriptions.ReadFile("tools/shared.json")
	if err := errors.Join(missing, absent); err != nil {
		return nil, nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(shared, &values); err != nil {
		return nil, nil, err
	}
	var params, inputs []json.RawMessage
	for _, a := range algorithm.All() {
		params, inputs = append(params, a.Params.Example), append(inputs, a.Input.Example)
	}
	values["enum"], values["example params"], values["example inputs"] = algorithm.IDs(), params, inputs
	text, err := algorithm.FillJSON(text, values)
	if err != nil {
		return nil, nil, err
	}
	var d struct {
		Title       string
		Description string
		Annotations *mcp.ToolAnnotations
		InputSchema json.RawMessage
	}
	var input struct{ Properties map[string]json.RawMessage }
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, nil, err
	}
	err = json.Unmarshal(d.InputSchema, &input)
	return &mcp.Tool{
		Name: name, Title: d.Title, Description: d.Description, Annotations: d.Annotations, InputSchema: d.InputSchema,
	}, slices.Sorted(maps.Keys(input.Properties)), err
}

// Members of _meta in a tool's result.
const (
	metaNext   = "fairpact/next"    // the next call: {tool, arguments, why}
	metaLookAt = "fairpact/look_at" // unix seconds by which the agent should read the deal again, such as the next deadline
	metaError  = "fairpact/error"   // {code, status, retry_after}: the HTTP status of REST; retry_after in seconds
)

// maxTextCopy is in bytes. A body up to this size is always sent as text too, because many
// clients show their model only text.
const maxTextCopy = 8 << 10

// success returns the result of a tool: the body as structuredContent and as text, and the next
// step as a second text block and in _meta. A client that reads structuredContent gets no text copy
// of a body above maxTextCopy: MCP 2025-06-18 (server/tools) only recommends the copy. A body with
// credentials is always copied, because they are shown only once.
func success(r result, structured bool) *mcp.CallToolResult {
	meta, nextStep := mcp.Meta{metaNext: r.next}, r.next.text()
	if r.lookAt > 0 {
		meta[metaLookAt] = r.lookAt
	}
	if _, waits := r.next.Arguments["wait_seconds"]; waits && r.lookAt > 0 {
		nextStep += "\nThe deal changes at its next deadline or beacon round" + left(r.lookAt) + " at the latest, even if nobody acts. Until then, let this call wait, or sleep outside the model."
	}
	body := string(r.body)
	if structured && !r.shownOnce && len(body) > maxTextCopy {
		body = fmt.Sprintf("The answer is in structuredContent, %d bytes of JSON.", len(body))
	}
	content := []mcp.Content{&mcp.TextContent{Text: body}, &mcp.TextContent{Text: nextStep}}
	for _, text := range r.blocks {
		content = append(content, &mcp.TextContent{Text: text})
	}
	return &mcp.CallToolResult{Meta: meta, Content: content, StructuredContent: json.RawMessage(r.body)}
}

// refusal converts p to an MCP tool error. SPEC 4.1: the text names the error code and the next action.
func refusal(p *problem.Error) *mcp.CallToolResult {
	web.Count(p)
	meta := map[string]any{"code": p.Code, "status": p.Status()}
	if p.RetryAfter > 0 {
		meta["retry_after"] = p.RetryAfter
	}
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{metaError: meta},
		Content: []mcp.Content{&mcp.TextContent{Text: p.In(problem.Call.MCP)}},
		IsError: true,
	}
}

var (
	toolCalls = telemetry.NewCounterVec("fairpact_mcp_tool_calls_total",
		"Tool calls by outcome: ok, refused (the caller can correct the call) or failed (a fault of the service).", "tool", "outcome")
	toolDurations = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairpact_mcp_tool_duration_seconds", Help: "Time to answer a tool call, not counting the time that the call waited for its deal to change.", Buckets: telemetry.Seconds,
	}, []string{"tool"})
)

// zeroMetrics creates the series of a tool, so that they are 0 before the first call.
func zeroMetrics(tool string) {
	for _, outcome := range []string{"ok", "refused", "failed"} {
		toolCalls.WithLabelValues(tool, outcome)
	}
	toolDurations.WithLabelValues(tool)
}

func countCall(tool string, code problem.Code, took time.Duration) {
	outcome := "refused"
	switch row, _ := problem.Lookup(code); {
	case code == "":
		outcome = "ok"
	case row.Status >= 500:
		outcome = "failed"
	}
	toolCalls.WithLabelValues(tool, outcome).Inc()
	toolDurations.WithLabelValues(tool).Observe(took.Seconds())
}
