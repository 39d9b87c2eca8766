package mcpapi

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/caller"
)

// oneSentence is `CODE: what is wrong; what to send instead`.
var oneSentence = regexp.MustCompile(`^[A-Z_]+: [^;]+; [^;]+$`)

// What is no call of a tool is refused in words of ours: the SDK's would name
// types of Go and quote what the caller sent, secrets included.
func TestProtocolErrorsSayWhatToSend(t *testing.T) {
	handler, err := New(Config{Callers: &caller.Policy{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	ping, listed := call("ping", "{}"), call("tools/list", "{"+meta+"}")
	for what, row := range map[string]struct {
		message string
		headers string // name and value, by blanks
		status  int
		code    int
		says    string
	}{
		"no JSON":                   {"fp_planted", "", 400, -32700, "not one JSON-RPC message"},
		"a string":                  {`"fp_planted"`, "", 400, -32700, "not one JSON-RPC message"},
		"a method of another type":  {`{"jsonrpc":"2.0","id":1,"method":["fp_planted"]}`, "", 400, -32700, "not one JSON-RPC message"},
		"null":                      {`null`, "", 400, -32600, "jsonrpc"},
		"an empty object":           {`{}`, "", 400, -32600, "jsonrpc"},
		"no version":                {`{"id":1,"method":"ping"}`, "", 400, -32600, "jsonrpc"},
		"a version of another type": {`{"jsonrpc":2,"id":1,"method":"ping"}`, "", 400, -32600, "jsonrpc"},
		"no method":                 {`{"jsonrpc":"2.0","id":1,"params":{"x":"fp_planted"}}`, "", 400, -32600, "method is missing"},
		"names in capitals":         {`{"jsonrpc":"2.0","ID":1,"Method":"ping"}`, "", 400, -32600, "method is missing"},
		"no id":                     {`{"jsonrpc":"2.0","method":"ping"}`, "", 400, -32600, "id is missing"},
		"an id of another type":     {`{"jsonrpc":"2.0","id":{"x":"fp_planted"},"method":"ping"}`, "", 400, -32600, "id is missing or neither"},
		"an unknown method":         {call("resources/list", "{}"), "", 200, -32601, "tools/call"},
		"an unknown notification":   {`{"jsonrpc":"2.0","method":"notifications/fp_planted"}`, "", 400, -32600, "no message"},
		"params of another type":    {call("ping", `["fp_planted"]`), "", 200, -32602, "params"},
		"a cursor of another type":  {call("tools/list", `{"cursor":["fp_planted"]}`), "", 200, -32602, "cursor"},
		"a cursor":                  {call("tools/list", `{"cursor":"fp_planted"}`), "", 200, -32602, "cursor"},
		"a call without params":     {`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "", 400, -32600, "list_algorithms"},
		"a call with null":          {call("tools/call", `null`), "", 200, -32600, "list_algorithms"},
		"a call with an array":      {call("tools/call", `["fp_planted"]`), "", 200, -32602, "list_algorithms"},
		"a name of another type":    {call("tools/call", `{"name":7,"arguments":{"api_key":"fp_planted"}}`), "", 200, -32602, "list_algorithms"},
		"a _meta of another type":   {call("tools/call", `{"name":"create_deal","arguments":{"api_key":"fp_planted"},"_meta":[]}`), "", 200, -32602, "list_algorithms"},
		"no tool":                   {call("tools/call", `{}`), "", 200, -32602, "verify_certificate"},
		"a large call that may wait": {call("tools/call", `{"name":"get_deal","arguments":{"api_key":[`+strings.Repeat(`{"":0},`, 2000)+`0]}}`), "", 413, -32600,
			"a call of this tool has at most 8192"},
		"the largest certificate": {call("tools/call", `{"name":"verify_certificate","arguments":{"certificate":["`+strings.Repeat("x", 8_090_000)+`"]}}`), "Last-Event-Id fp_planted", 400, -32600,
			"Last-Event-ID"},
		"an unknown tool":             {call("tools/call", `{"name":"fp_planted"}`), "", 200, -32602, "verify_certificate"},
		"initialize without params":   {`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, "", 400, -32600, "protocolVersion"},
		"initialize, another type":    {call("initialize", `{"protocolVersion":"2025-06-18","capabilities":[],"clientInfo":"fp_planted"}`), "", 200, -32602, "protocolVersion"},
		"an unknown protocol version": {ping, "Mcp-Protocol-Version 1999-01-01", 400, -32600, "2025-06-18"},
		"a future protocol version": {strings.ReplaceAll(listed, "2026-07-28", "2999-01-01"), "Mcp-Protocol-Version 2999-01-01 Mcp-Method tools/list", 400, -32022,
			"data.supported"},
		"no _meta":                 {ping, "Mcp-Protocol-Version 2026-07-28", 400, -32602, "params._meta"},
		"half a _meta":             {strings.Replace(listed, `{"name":"x","version":"1"}`, `"fp_planted"`, 1), "Mcp-Protocol-Version 2026-07-28 Mcp-Method tools/list", 400, -32602, "params._meta"},
		"a header too few":         {listed, "Mcp-Protocol-Version 2026-07-28", 400, -32020, "Mcp-Method"},
		"a header of another call": {listed, "Mcp-Protocol-Version 2026-07-28 Mcp-Method fp_planted", 400, -32020, "Mcp-Method"},
		"another version in _meta": {listed, "Mcp-Protocol-Version 2025-06-18", 400, -32020, "Mcp-Protocol-Version"},
		"a stream to go on with":   {ping, "Last-Event-Id fp_planted", 400, -32600, "Last-Event-ID"},
	} {
		t.Run(what, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/mcp", strings.NewReader(row.message))
			r.Host = "localhost"
			for pair := strings.Fields(row.headers); len(pair) > 0; pair = pair[2:] {
				r.Header.Set(pair[0], pair[1])
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			var answered struct {
				ID    json.RawMessage
				Error struct {
					Code    int
					Message string
					Data    struct{ Supported []string }
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answered); err != nil {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
			e := answered.Error
			if w.Code != row.status || e.Code != row.code || !oneSentence.MatchString(e.Message) || !strings.Contains(e.Message, row.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if has := len(e.Data.Supported) > 0; has != (e.Code == -32022) {
				t.Errorf("the versions that are served: %s", w.Body)
			}
			for _, leak := range []string{"json:", "unmarshal", "Go ", "mcp.", "interface", "planted"} {
				if strings.Contains(w.Body.String(), leak) {
					t.Errorf("%q in %s", leak, w.Body)
				}
			}
			if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", h)
			}
		})
	}
	t.Run("a response is taken", func(t *testing.T) {
		r := httptest.NewRequest("POST", "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		r.Host = "localhost"
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != 202 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
