// Package mcp serves the agent tool server (SPEC 4.1): MCP over Streamable HTTP, stateless, with
// JSON responses. Its nine tools run the operations of package ops, as REST does.
//
// A tool's structuredContent equals the REST answer to the same call, so that a certificate
// verifies as received. The exceptions:
//   - compute_commitment_tool returns a commitment and the bytes that a seat key signs. A REST client
//     computes both itself, from its input and GET /v1/deals/{id}/declaration. That is why
//     problem.Ops has the tool in the row of ReadDeclaration.
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
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
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
		described, err := describe(t.name())
		if err != nil {
			return nil, fmt.Errorf("mcp: tool %s: %w", t.name(), err)
		}
		if t.arguments, err = argumentNames(described); err != nil {
			return nil, fmt.Errorf("mcp: tool %s: %w", t.name(), err)
		}
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
	args, err := parseArguments(info.arguments)
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
