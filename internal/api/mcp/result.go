package mcp

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

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

// next is the step that an agent should take after a result. The agent replaces arguments
// such as <API_KEY> with its own values. An empty Tool means that nothing is left to call.
type next struct {
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
	Why       string         `json:"why"`
}

func (n next) text() string { return "NEXT: " + n.call() }

func (n next) call() string {
	if n.Tool == "" {
		return n.Why
	}
	arguments, err := web.Encode(n.Arguments)
	if err != nil {
		arguments = []byte("{}")
	}
	// The agent replaces the placeholder yourInput with a JSON object, so it must have no quotes.
	return n.Why + "\nCall " + n.Tool + " with " + strings.Replace(string(arguments), `"`+yourInput+`"`, yourInput, 1)
}
