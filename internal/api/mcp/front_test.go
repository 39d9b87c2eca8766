package mcp

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// oneSentence matches `CODE: what is wrong; what to send instead`.
var oneSentence = regexp.MustCompile(`^[A-Z_]+: [^;]+; [^;]+$`)

// No refusal of a JSON-RPC message shows the text of the SDK. The SDK's texts name Go types
// and quote what the caller sent, secrets included.
func TestProtocolErrorsSayWhatToSend(t *testing.T) {
	handler := handlerOf(t)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	ping, listed := call("ping", "{}"), call("tools/list", "{"+meta+"}")
	for what, row := range map[string]struct {
		message string
		headers string // names and values, separated by blanks
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
		"no method":                 {`{"jsonrpc":"2.0","id":1,"params":{"x":"fp_planted"}}`, "", 400, -32600, "a method"},
		"names in capitals":         {`{"jsonrpc":"2.0","ID":1,"Method":"ping"}`, "", 400, -32600, "a method"},
		"no id":                     {`{"jsonrpc":"2.0","method":"ping"}`, "", 400, -32600, "an id"},
		"a call without an id":      {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"list_algorithms"}}`, "", 400, -32600, "an id"},
		"the same, unknown tool":    {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"fp_planted"}}`, "", 400, -32600, "an id"},
		"an id of another type":     {`{"jsonrpc":"2.0","id":{"x":"fp_planted"},"method":"ping"}`, "", 400, -32600, "an id"},
		"an unknown method":         {call("resources/list", "{}"), "", 200, -32601, "tools/call"},
		"discovery, too early":      {call("server/discover", "{}"), "", 200, -32601, "one of initialize, ping, tools/list, tools/call"},
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
			"send at most 8192 in a call of this tool"},
		"the largest certificate": {call("tools/call", `{"name":"verify_certificate","arguments":{"certificate":["`+strings.Repeat("x", 8_090_000)+`"]}}`), "Last-Event-Id fp_planted", 400, -32600,
			"Last-Event-ID"},
		"a large call with params under the bound of others": {call("tools/call", `{"name":"verify_certificate","arguments":{"certificate":["`+strings.Repeat("x", maxPlain-80)+`"]}}`), "Last-Event-Id fp_planted", 400, -32600,
			"Last-Event-ID"},
		"an unknown tool":             {call("tools/call", `{"name":"fp_planted"}`), "", 200, -32602, "verify_certificate"},
		"initialize without params":   {`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, "", 400, -32600, "protocolVersion"},
		"initialize, another type":    {call("initialize", `{"protocolVersion":"2025-06-18","capabilities":[],"clientInfo":"fp_planted"}`), "", 200, -32602, "protocolVersion"},
		"an unknown protocol version": {ping, "Mcp-Protocol-Version 1999-01-01", 400, -32022, "2025-06-18"},
		"a version that is no date":   {ping, "Mcp-Protocol-Version bogus", 400, -32022, "2025-06-18"},
		"a future protocol version": {strings.ReplaceAll(listed, "2026-07-28", "2999-01-01"), "Mcp-Protocol-Version 2999-01-01 Mcp-Method tools/list", 400, -32022,
			"2025-06-18"},
		"no _meta":                 {ping, "Mcp-Protocol-Version 2026-07-28", 400, -32602, "params._meta"},
		"half a _meta":             {strings.Replace(listed, `{"name":"x","version":"1"}`, `"fp_planted"`, 1), "Mcp-Protocol-Version 2026-07-28 Mcp-Method tools/list", 400, -32602, "params._meta"},
		"a header too few":         {listed, "Mcp-Protocol-Version 2026-07-28", 400, -32020, "Mcp-Method"},
		"a header of another call": {listed, "Mcp-Protocol-Version 2026-07-28 Mcp-Method fp_planted", 400, -32020, "Mcp-Method"},
		"another version in _meta": {listed, "Mcp-Protocol-Version 2025-06-18", 400, -32020, "Mcp-Protocol-Version"},
		"a stream to go on with":   {ping, "Last-Event-Id fp_planted", 400, -32600, "Last-Event-ID"},
	} {
		t.Run(what, func(t *testing.T) {
			w := post(handler, row.message, strings.Fields(row.headers)...)
			var answered struct {
				ID    json.RawMessage
				Error struct {
					Code    int
					Message string
					Data    struct{ Supported []string }
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answered); err != nil {
				t.Fatalf("the answer %d %s is not a JSON-RPC error: %v", w.Code, w.Body, err)
			}
			e := answered.Error
			if w.Code != row.status || e.Code != row.code || !oneSentence.MatchString(e.Message) || !strings.Contains(e.Message, row.says) {
				t.Errorf("got %d %s, want status %d, code %d and `CODE: wrong; fix` with %q", w.Code, w.Body, row.status, row.code, row.says)
			}
			if has := len(e.Data.Supported) > 0; has != (e.Code == -32022) {
				t.Errorf("code %d with data.supported %v, want versions for code -32022 only", e.Code, e.Data.Supported)
			}
			for _, leak := range []string{"json:", "unmarshal", "Go ", "mcp.", "interface", "planted"} {
				if strings.Contains(w.Body.String(), leak) {
					t.Errorf("the answer shows %q, which must not leave the server: %s", leak, w.Body)
				}
			}
			if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("got headers %v, want Content-Type application/json and Cache-Control no-store", h)
			}
		})
	}
	if w := post(handler, `{"jsonrpc":"2.0","id":1,"result":{}}`); w.Code != 202 {
		t.Errorf("a JSON-RPC response is answered %d %s, want 202", w.Code, w.Body)
	}
	for _, method := range []string{"initialized", "cancelled", "message", "tasks/status", "fp_unknown"} {
		if w := post(handler, `{"jsonrpc":"2.0","method":"notifications/`+method+`","params":{}}`); w.Code != 202 || w.Body.Len() > 0 {
			t.Errorf("notifications/%s is answered %d %s, want 202 and no body", method, w.Code, w.Body)
		}
	}
}

// JSON-RPC: the id of the answer is the id of the request. A client compares it with what it sent.
func TestAnswersKeepTheBytesOfTheID(t *testing.T) {
	handler := handlerOf(t)
	for _, id := range []string{`1`, `0`, `-7`, `1.5`, `1e2`, `1e400`, `9007199254740993`, `123456789012345678901234567890`, `""`, `"a"`, `"\u00e9\/"`, `"1"`} {
		for _, what := range []string{`"method":"ping"`, `"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}`, `"method":"fp_unknown"`} {
			for _, message := range []string{`{"jsonrpc":"2.0","id":` + id + `,` + what + `}`, `{` + what + `,"id": ` + id + ` ,"jsonrpc":"2.0"}`} {
				w := post(handler, message)
				var answered struct{ ID, Result json.RawMessage }
				if err := json.Unmarshal(w.Body.Bytes(), &answered); err != nil || string(answered.ID) != id || (answered.Result == nil) != strings.Contains(what, "unknown") {
					t.Errorf("%s is answered %d %.200s, want the id %s", message, w.Code, w.Body, id)
				}
			}
		}
	}
}

// A client that reads structuredContent gets no second copy of a large answer as text.
func TestVectorsAreSentOnceAndOnlyIfAskedFor(t *testing.T) {
	handler := handlerOf(t)
	for _, row := range []struct {
		arguments, version string
		vectors, copied    bool
	}{
		{`{}`, "2025-06-18", false, true},
		{`{"vectors":false}`, "2025-11-25", false, true},
		{`{"vectors":true}`, "2025-06-18", true, false},
		{`{"vectors":true}`, "2025-11-25", true, false},
		{`{"vectors":true}`, "2025-03-26", true, true},
		{`{"vectors":true}`, "", true, true},
	} {
		var headers []string
		if row.version != "" {
			headers = []string{"Mcp-Protocol-Version", row.version}
		}
		w := post(handler, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":`+row.arguments+`}}`, headers...)
		var answered struct {
			Result struct {
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
			}
		}
		var catalogue struct {
			Algorithms []struct {
				Vectors []any `json:"test_vectors"`
			}
		}
		if err := errors.Join(json.Unmarshal(w.Body.Bytes(), &answered), json.Unmarshal(answered.Result.StructuredContent, &catalogue)); err != nil {
			t.Fatalf("%+v: the answer %d %.300s is not a catalogue: %v", row, w.Code, w.Body, err)
		}
		if a := catalogue.Algorithms; len(a) != len(algorithm.All()) || a[0].Vectors == nil || (len(a[0].Vectors) > 0) != row.vectors {
			t.Errorf("%+v: got %.300s, want all algorithms with the vectors of the row", row, answered.Result.StructuredContent)
		}
		if text := answered.Result.Content[0].Text; (text == string(answered.Result.StructuredContent)) != row.copied || !row.copied && len(text) > 100 {
			t.Errorf("%+v: the text has %d bytes and structuredContent %d, want a copy or at most 100 bytes of text", row, len(text), len(answered.Result.StructuredContent))
		}
	}
	if w := post(handler, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{"vectors":"yes"}}}`); !strings.Contains(w.Body.String(), "INVALID_REQUEST: vectors is a string: give true or false") {
		t.Errorf("vectors \"yes\": got %s, want INVALID_REQUEST", w.Body)
	}
}

// Tokens are shown only once, and many clients show their model only text. An answer with tokens
// is therefore sent both as text and as structuredContent, even if it is large.
func TestTokensAreInBothForms(t *testing.T) {
	body := []byte(`"` + strings.Repeat("x", maxTextCopy) + `"`)
	for _, once := range []bool{true, false} {
		text := success(result{body: body, shownOnce: once}, true).Content[0].(*mcp.TextContent).Text
		if (text == string(body)) != once {
			t.Errorf("shownOnce %t: the text is %.80s, want the whole body: %t", once, text, once)
		}
	}
}

func TestWrongParamsOfTheListOfTools(t *testing.T) {
	handler := handlerOf(t)
	for _, params := range []string{`{"cursor":"x"}`, `7`, `[]`} {
		if a := post(handler, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`); !strings.Contains(a.Body.String(), `"error":`) {
			t.Errorf("a list with the params %s: %.200s, want an error", params, a.Body)
		}
	}
}

func handlerOf(t *testing.T) http.Handler {
	t.Helper()
	handler, err := New(Config{Services: ops.Services{Callers: &caller.Policy{}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func post(handler http.Handler, message string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(message))
	r.Host = "localhost"
	for ; len(headers) > 0; headers = headers[2:] {
		r.Header.Set(headers[0], headers[1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestToolErrorsSayWhatToPass(t *testing.T) {
	handler := handlerOf(t)
	for call, says := range map[string]string{
		`"verify_certificate","arguments":{"certificate":"{}"}`: "pass certificate as a JSON object, not",
		`"compute_commitment_tool","arguments":{"input":"{}"}`:  "pass input as a JSON object, not",
		`"compute_commitment_tool","arguments":{}`:              "input is missing: give your input, a JSON object",
	} {
		if w := post(handler, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":`+call+`}}`); !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s is answered %s, want %q", call, w.Body, says)
		}
	}
	c := call{args: arguments{"since": "FOO"}}
	if _, err := c.Wait(); err == nil || !strings.Contains(err.Error(), "one of OPEN, COMMITTING, REVEALING, ") {
		t.Errorf("since FOO: %v, want the states with commas", err)
	}
}

// The tool refuses an input that reveal_input would refuse.
func TestADeepInputIsRefusedBeforeItsCommitment(t *testing.T) {
	handler := handlerOf(t)
	for _, depth := range []int{canon.MaxInputDepth, canon.MaxInputDepth + 1} {
		w := post(handler, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compute_commitment_tool","arguments":{"input":`+strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)+`}}}`)
		if refused := strings.Contains(w.Body.String(), "INVALID_JSON"); refused != (depth > canon.MaxInputDepth) {
			t.Errorf("an input %d deep is answered %s", depth, w.Body)
		}
	}
}
