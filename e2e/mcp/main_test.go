// Package mcp tests the MCP tools of a running deal-api.
package mcp

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

type agent struct {
	t       testing.TB
	rest    *e2e.Client
	session *mcp.ClientSession
}

func newAgent(t testing.TB, c *e2e.Client) *agent {
	t.Helper()
	transport := &mcp.StreamableClientTransport{Endpoint: c.Base + "/mcp", HTTPClient: c.Http, DisableStandaloneSSE: true}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return &agent{t, c, session}
}

func sha256Of(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

func (a *agent) do(name string, arguments e2e.Body) e2e.ToolResult {
	a.t.Helper()
	result, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		a.t.Fatalf("call of %s: %v", name, err)
	}
	if result.IsError {
		a.t.Fatalf("%s returned the error %s", name, result.Content[0].(*mcp.TextContent).Text)
	}
	structured, err := json.Marshal(result.StructuredContent)
	if err != nil {
		a.t.Fatal(err)
	}
	return e2e.ToolResult{Structured: structured}
}
