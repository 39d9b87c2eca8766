package mcpapi

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
)

// Members of a result's _meta.
const (
	metaNext  = "fairpact/next"  // the next call: {tool, arguments, why}
	metaError = "fairpact/error" // {code, status, retry_after}: status as in REST, retry_after in seconds
)

// success carries a REST body three ways: as structuredContent and as text for
// the reader of either, and beside it what to do next.
func success(body json.RawMessage, n next) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Meta:              mcp.Meta{metaNext: n},
		Content:           []mcp.Content{&mcp.TextContent{Text: string(body)}, &mcp.TextContent{Text: n.text()}},
		StructuredContent: body,
	}
}

// refusal is a tool error. SPEC 4.1: it names the error code and the next action.
func refusal(p *problem.Error) *mcp.CallToolResult {
	p.Count()
	meta := map[string]any{"code": p.Code, "status": p.Status()}
	if p.RetryAfter > 0 {
		meta["retry_after"] = int64((p.RetryAfter + time.Second - 1) / time.Second)
	}
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{metaError: meta},
		Content: []mcp.Content{&mcp.TextContent{Text: string(p.Code) + ": " + inTools(p.Fix)}},
		IsError: true,
	}
}

// calls are the REST calls that a fix may name, and the tools that do the same.
var calls = []struct {
	rest *regexp.Regexp
	tool string
}{
	{regexp.MustCompile(`POST /v1/deals/[\w{}-]+/commit\b`), "commit_input"},
	{regexp.MustCompile(`POST /v1/deals/[\w{}-]+/reveal\b`), "reveal_input"},
	{regexp.MustCompile(`(GET /v1/deals/[\w{}-]+/certificate|POST /v1/deals/[\w{}-]+/entropy)\b`), "get_certificate"},
	{regexp.MustCompile(`GET /v1/deals/[\w{}-]+`), "get_deal"},
	{regexp.MustCompile(`POST /v1/deals\b`), "create_deal"},
	{regexp.MustCompile(`POST /v1/keys\b`), "create_key"},
	{regexp.MustCompile(`GET /v1/algorithms\b`), "list_algorithms"},
	{regexp.MustCompile(`GET /v1/verify/[\w{}-]+`), "verify_certificate"},
	{regexp.MustCompile(`\bIdempotency-Key\b`), "idempotency_key"},
}

// inTools puts a fix into the words of this surface.
func inTools(fix string) string {
	for _, c := range calls {
		fix = c.rest.ReplaceAllString(fix, c.tool)
	}
	return fix
}

// next is what an agent should do after a result. Arguments in angle brackets
// are for the agent to fill in. An empty Tool: there is nothing left to call.
type next struct {
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
	Why       string         `json:"why"`
}

func (n next) text() string {
	if n.Tool == "" {
		return "NEXT: " + n.Why
	}
	arguments, err := escrow.Encode(n.Arguments)
	if err != nil {
		arguments = []byte("{}")
	}
	return "NEXT: " + n.Why + "\nCall " + n.Tool + " with " + string(arguments)
}
