package e2e

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// ToolResult is the result of a tool call.
type ToolResult struct {
	Structured json.RawMessage `json:"structuredContent"`
	Content    []struct{ Type, Text string }
	IsError    bool `json:"isError"`
	Meta       struct {
		Next struct {
			Tool      string
			Arguments map[string]any
			Why       string
		} `json:"fairpact/next"`
		LookAt int64 `json:"fairpact/look_at"`
		Error  struct {
			Code       string
			Status     int
			RetryAfter *int64 `json:"retry_after"`
		} `json:"fairpact/error"`
	} `json:"_meta"`
}

// Post sends one JSON-RPC message to /mcp.
func (c *Client) Post(message string, header ...string) Answer {
	c.T.Helper()
	a, err := c.Try(c.T.Context(), "POST", "/mcp", "", message, append(header, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")...)
	if err != nil {
		c.T.Fatal(err)
	}
	return a
}

// Raw calls a tool with the given arguments, which are the JSON text of an object.
func (c *Client) Raw(tool, arguments string) ToolResult {
	c.T.Helper()
	a := c.Post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
	var r struct {
		ID     int
		Result *ToolResult
	}
	a.Into(c.T, &r)
	if a.Status != 200 || r.ID != 7 || r.Result == nil {
		c.T.Fatalf("tools/call %s: %d %.400s, want 200 with a result", tool, a.Status, a.Body)
	}
	return *r.Result
}

// Tool calls a tool that must succeed, and checks the form of the result. structuredContent and the
// first text block have the same data. _meta and the second text block have the same next step.
// For up to 64 parties, the result of create_deal also has a text block for each counterparty's
// invitation.
func (c *Client) Tool(name string, arguments Body) ToolResult {
	c.T.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		c.T.Fatal(err)
	}
	r := c.Raw(name, string(text))
	if r.IsError {
		c.T.Fatalf("%s failed: %+v", name, r.Content)
	}
	var data, structured bytes.Buffer
	blocks := 2
	if name == "create_deal" {
		var made struct {
			Tokens []struct{} `json:"invite_tokens"`
		}
		r.Into(c.T, &made)
		if n := len(made.Tokens); n <= 64 {
			blocks += n - 1
		}
	}
	if len(r.Content) != blocks || json.Compact(&structured, r.Structured) != nil || json.Compact(&data, []byte(r.Content[0].Text)) != nil {
		c.T.Fatalf("%s: got %+v, want structuredContent and %d text blocks", name, r, blocks)
	}
	Same(c.T, name+": structuredContent and the first text block", structured.Bytes(), data.Bytes())
	if next := r.Content[1].Text; !strings.HasPrefix(next, "NEXT: "+r.Meta.Next.Why) || r.Meta.Next.Tool != "" && !strings.Contains(next, "\nCall "+r.Meta.Next.Tool+" with {") {
		c.T.Errorf("%s: the second text block %q does not match the next step in _meta, %+v", name, next, r.Meta.Next)
	}
	return r
}

// Fails makes a tool call that must be refused with an error code. The error text must not name a
// REST call.
func (c *Client) Fails(code, name, arguments string) ToolResult {
	c.T.Helper()
	r := c.Raw(name, arguments)
	if !r.IsError || len(r.Content) != 1 || r.Structured != nil || !strings.HasPrefix(r.Content[0].Text, code+": ") || r.Meta.Error.Code != code {
		c.T.Fatalf("%s %s: want %s, got %+v", name, arguments, code, r)
	}
	if inREST.MatchString(r.Content[0].Text) {
		c.T.Errorf("%s: the error text names a REST call: %s", name, r.Content[0].Text)
	}
	return r
}

// inREST matches REST calls and headers that have an equivalent in MCP.
var inREST = regexp.MustCompile(`/v1/(keys|deals|algorithms|verify)|Idempotency-Key|Bearer`)

// Into decodes structuredContent into v.
func (r ToolResult) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Structured, v); err != nil {
		t.Fatalf("decode structuredContent %.300s: %v", r.Structured, err)
	}
}

// Same requires equal JSON values. Numbers must have the same digits, so 1 and 1.0 differ.
func Same(t testing.TB, what string, a, b []byte) {
	t.Helper()
	if x, y := exact(t, a), exact(t, b); x != y {
		t.Errorf("%s must be equal:\n%s\n%s", what, x, y)
	}
}

// exact returns a JSON value with its members sorted and its numbers unchanged.
func exact(t testing.TB, text []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode %.300s: %v", text, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// From sends a ping to /mcp with this Host header and these Origin headers. An empty host
// leaves the Host header unchanged.
func (c *Client) From(host string, origins ...string) Answer {
	c.T.Helper()
	var header []string
	if host != "" {
		header = append(header, "Host", host)
	}
	for _, origin := range origins {
		header = append(header, "Origin", origin)
	}
	return c.Post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, header...)
}
