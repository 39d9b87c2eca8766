package mcpapi

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/wire"
)

// Members of a result's _meta.
const (
	metaNext   = "fairpact/next"    // the next call: {tool, arguments, why}
	metaLookAt = "fairpact/look_at" // unix seconds: by when to look at the deal again, however little has happened
	metaError  = "fairpact/error"   // {code, status, retry_after}: status as in REST, retry_after in seconds
)

// success carries a REST body three ways: as structuredContent and as text for
// the reader of either, and beside it what to do next.
func success(r result) *mcp.CallToolResult {
	meta, text := mcp.Meta{metaNext: r.next}, r.next.text()
	if r.lookAt > 0 {
		meta[metaLookAt] = r.lookAt
	}
	if _, waits := r.next.Arguments["wait_seconds"]; waits && r.lookAt > 0 {
		text += "\nSomething happens" + left(r.lookAt) + " at the latest, by itself: until then wait with this call, or sleep outside the model."
	}
	answered := &mcp.CallToolResult{
		Meta:              meta,
		Content:           []mcp.Content{&mcp.TextContent{Text: string(r.body)}, &mcp.TextContent{Text: text}},
		StructuredContent: json.RawMessage(r.body),
	}
	for _, text := range r.invitations {
		answered.Content = append(answered.Content, &mcp.TextContent{Text: text})
	}
	if r.bundle != nil {
		answered.Content = append(answered.Content, &mcp.TextContent{Text: string(r.bundle)})
	}
	return answered
}

// refusal is a tool error. SPEC 4.1: it names the error code and the next action.
func refusal(p *problem.Error) *mcp.CallToolResult {
	answer.Count(p)
	meta := map[string]any{"code": p.Code, "status": p.Status()}
	if p.RetryAfter > 0 {
		meta["retry_after"] = p.RetryAfter
	}
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{metaError: meta},
		Content: []mcp.Content{&mcp.TextContent{Text: p.In(words)}},
		IsError: true,
	}
}

// words names a call by its tool.
func words(c problem.Call) string {
	switch c.Op {
	case problem.CreateKey:
		return "create_key"
	case problem.ListAlgorithms:
		return "list_algorithms"
	case problem.CreateDeal:
		return "create_deal"
	case problem.ReadDeal:
		return "get_deal"
	case problem.ReadDeclaration: // that answers the bytes to sign
		return "compute_commitment_tool"
	case problem.Commit:
		return "commit_input"
	case problem.Reveal:
		return "reveal_input"
	case problem.Draw, problem.ReadCertificate: // get_certificate draws
		return "get_certificate"
	case problem.Verify:
		return "verify_certificate"
	case problem.IdempotencyKey:
		return "idempotency_key"
	}
	return c.String()
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
	arguments, err := wire.Encode(n.Arguments)
	if err != nil {
		arguments = []byte("{}")
	}
	return "NEXT: " + n.Why + "\nCall " + n.Tool + " with " + string(arguments)
}
