package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agent talks to /mcp as an agent does: the official client for whole deals,
// and raw messages where bytes matter.
type agent struct {
	t       testing.TB
	rest    *client
	session *mcp.ClientSession
}

func newAgent(t testing.TB, c *client) *agent {
	t.Helper()
	transport := &mcp.StreamableClientTransport{Endpoint: c.base + "/mcp", HTTPClient: c.http, DisableStandaloneSSE: true}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return &agent{t, c, session}
}

// called is a tool's result as it came over the wire.
type called struct {
	Structured json.RawMessage `json:"structuredContent"`
	Content    []struct{ Type, Text string }
	IsError    bool `json:"isError"`
	Meta       struct {
		Next struct {
			Tool      string
			Arguments map[string]any
			Why       string
		} `json:"fairpact/next"`
		Error struct {
			Code       string
			Status     int
			RetryAfter *int64 `json:"retry_after"`
		} `json:"fairpact/error"`
	} `json:"_meta"`
}

// post sends one JSON-RPC message.
func (c *client) post(message string, header ...string) answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), "POST", "/mcp", "", message, append(header, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// raw calls a tool with the arguments as they are written.
func (c *client) raw(tool, arguments string) called {
	c.t.Helper()
	a := c.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
	var r struct {
		ID     int
		Result *called
	}
	a.into(c.t, &r)
	if a.status != 200 || r.ID != 7 || r.Result == nil {
		c.t.Fatalf("%s: %d %.400s", tool, a.status, a.body)
	}
	return *r.Result
}

// tool calls a tool that must succeed and holds its answer to what every answer
// has: the data twice, and the next step twice.
func (c *client) tool(name string, arguments body) called {
	c.t.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.raw(name, string(text))
	if r.IsError {
		c.t.Fatalf("%s: %+v", name, r.Content)
	}
	var data, structured bytes.Buffer
	if len(r.Content) != 2 || json.Compact(&structured, r.Structured) != nil || json.Compact(&data, []byte(r.Content[0].Text)) != nil {
		c.t.Fatalf("%s: two text blocks and structuredContent: %+v", name, r)
	}
	same(c.t, name+": structuredContent and the first text block", structured.Bytes(), data.Bytes())
	if next := r.Content[1].Text; !strings.HasPrefix(next, "NEXT: "+r.Meta.Next.Why) || r.Meta.Next.Tool != "" && !strings.Contains(next, "\nCall "+r.Meta.Next.Tool+" with {") {
		c.t.Errorf("%s: next step %q, _meta %+v", name, next, r.Meta.Next)
	}
	return r
}

// fails calls a tool that must be refused with a code, in words of this surface.
func (c *client) fails(code, name, arguments string) called {
	c.t.Helper()
	r := c.raw(name, arguments)
	if !r.IsError || len(r.Content) != 1 || r.Structured != nil || !strings.HasPrefix(r.Content[0].Text, code+": ") || r.Meta.Error.Code != code {
		c.t.Fatalf("%s %s: want %s, got %+v", name, arguments, code, r)
	}
	if inREST.MatchString(r.Content[0].Text) {
		c.t.Errorf("%s: a fix over MCP names a REST call: %s", name, r.Content[0].Text)
	}
	return r
}

// sha256Of is a commitment to bytes.
func sha256Of(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// inREST finds what has a tool of its own.
var inREST = regexp.MustCompile(`/v1/(keys|deals|algorithms|verify)|Idempotency-Key|Bearer`)

// do calls a tool through the official client, which holds the result to the
// tool's output schema.
func (a *agent) do(name string, arguments body) called {
	a.t.Helper()
	result, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	if result.IsError {
		a.t.Fatalf("%s: %s", name, result.Content[0].(*mcp.TextContent).Text)
	}
	structured, err := json.Marshal(result.StructuredContent)
	if err != nil {
		a.t.Fatal(err)
	}
	return called{Structured: structured}
}

func (r called) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Structured, v); err != nil {
		t.Fatalf("%v in %.300s", err, r.Structured)
	}
}

// same requires equal JSON values, number for number as they are written and
// string for string.
func same(t testing.TB, what string, a, b []byte) {
	t.Helper()
	if x, y := exact(t, a), exact(t, b); x != y {
		t.Errorf("%s differ:\n%s\n%s", what, x, y)
	}
}

// exact writes a JSON value with its members sorted and its numbers as they were.
func exact(t testing.TB, text []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %.300s", err, text)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// from sends a ping to /mcp under a Host and with the given Origins.
func (c *client) from(host string, origins ...string) answer {
	c.t.Helper()
	req, err := c.request(c.t.Context(), http.MethodPost, "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if err != nil {
		c.t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	for _, origin := range origins {
		req.Header.Add("Origin", origin)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		c.t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: text.Bytes()}
}
