package mcp

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const example = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// message holds the members of a JSON-RPC message that the HTTP handler [front] reads.
type message struct {
	Version jsontext.Value `json:"jsonrpc"`
	ID      identifier     `json:"id"`
	Method  string         `json:"method"`
	Params  params         `json:"params"`
	Result  jsontext.Value `json:"result"` // set only in a response; this server ignores responses
	Error   jsontext.Value `json:"error"`
}

func (m message) id() jsontext.Value {
	if kind := m.ID.Kind(); kind == '"' || kind == '0' {
		return m.ID.Value
	}
	return jsontext.Value("null")
}

func (m message) notification() bool {
	return len(m.ID.Value) == 0 && string(m.Version) == `"2.0"` && strings.HasPrefix(m.Method, "notifications/")
}

// identifier is an id as the client wrote it, and where.
type identifier struct {
	jsontext.Value
	at span
}

func (i *identifier) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	i.Value, i.at.to = bytes.ToValidUTF8(value, []byte("\uFFFD")), int(d.InputOffset())
	i.at.from = i.at.to - len(value)
	return err
}

// params are the params of a tool call. As in the SDK, the last of two members with one name counts.
type params struct {
	Name      jsontext.Value `json:"name"`
	Arguments span           `json:"arguments"`
	isObject  bool
}

// UnmarshalJSONFrom accepts any value, because the SDK reports params of the wrong type.
func (p *params) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	type members params
	*p = params{isObject: d.PeekKind() == '{'}
	if !p.isObject {
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, (*members)(p))
}

// tool returns the name of the called tool, and whether params can be those of a call.
func (p *params) tool() (name string, ok bool) {
	text, _ := jsontext.AppendUnquote(nil, p.Name) // a name that is not valid UTF-8 is not a tool
	return string(text), p.isObject && (p.Name == nil || p.Name.Kind() == '"')
}

// span is where the message has a value, in bytes.
type span struct{ from, to int }

func (s span) replaced(body []byte, value string) []byte {
	return slices.Concat(body[:s.from], []byte(value), body[s.to:])
}

func (s *span) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	s.to = int(d.InputOffset())
	s.from = s.to - len(value)
	return err
}

func limitOf(name string) (limit int, known bool) {
	i := slices.IndexFunc(tools, func(t tool) bool { return t.name() == name })
	if i < 0 {
		return 0, false
	}
	return tools[i].limit, true
}

// wrong returns the error for a refused message, from the SDK's JSON-RPC code and HTTP status (0: 200).
// The text of the SDK names Go types and quotes arguments, so the error has its own.
func (m message) wrong(code int64, status int) *problem.Error {
	invalid := func(format string, args ...any) *problem.Error {
		return problem.New(problem.InvalidRequest, format, args...)
	}
	// MCP requires an id in each request. Streamable HTTP: a server that cannot accept a message without
	// one MUST answer with an HTTP error, and may add a JSON-RPC error. An accepted call would lose its answer.
	switch {
	case string(m.Version) != `"2.0"` || m.Method == "" || string(m.id()) == "null":
		return invalid(`the message lacks jsonrpc "2.0", a method, or an id that is a string or a number; send a message such as %s`, example)
	case code == mcp.CodeHeaderMismatch || code == jsonrpc.CodeInvalidParams && status == http.StatusBadRequest:
		return invalid(`params._meta or an Mcp- header is missing, or they differ; set Mcp-Protocol-Version and "io.modelcontextprotocol/protocolVersion" in params._meta to the same version, "io.modelcontextprotocol/clientInfo" to an object with name and version, "io.modelcontextprotocol/clientCapabilities" to an object, Mcp-Method to the value of method, and for tools/call Mcp-Name to params.name`)
	case code == jsonrpc.CodeInternalError:
		return problem.From(nil)
	case m.Method == "tools/call":
		return invalid(`params is missing or of the wrong type; send params such as {"name":"list_algorithms","arguments":{}}`)
	case m.Method == "initialize":
		return invalid(`params is missing or of the wrong type; send params such as {"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"…","version":"…"}}`)
	case code == jsonrpc.CodeInvalidParams:
		return invalid("params is of the wrong type or has a cursor; send an object without a cursor, or leave params out")
	}
	return invalid("the server does not accept this message; send a message such as %s", example)
}

func toolNames() string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.name()
	}
	return strings.Join(names, ", ")
}

// wireError is a JSON-RPC error. Data comes from the SDK unchanged.
type wireError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

// fault answers the message with the JSON-RPC error e, whose message becomes the text of p
// (`CODE: fix`). Status 0 keeps the HTTP status that the MCP SDK set.
func (m message) fault(w http.ResponseWriter, status int, e wireError, p *problem.Error) {
	web.Count(p)
	e.Message = p.In(problem.Call.MCP)
	body, _ := json.Marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Error   wireError      `json:"error"`
	}{"2.0", m.id(), e}, jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	w.Header().Set("Content-Type", "application/json")
	if status != 0 {
		w.WriteHeader(status)
	}
	_, _ = w.Write(body)
}

// The SDK gets every request with the id sdkID, and begins each answer with sdkAnswer. Its own ids
// are int64 or float64, so that 1.5 and 2^53+1 would come back as other numbers.
const (
	sdkID     = "1"
	sdkAnswer = `{"jsonrpc":"2.0","id":`
)

// answerWriter puts the id of the client into the answer of the MCP SDK, and replaces the text of each
// refusal of the SDK, which is plain text or a JSON-RPC error. The SDK must write the whole answer in a
// single Write.
type answerWriter struct {
	http.ResponseWriter
	message message
	status  int // the error status that the SDK set; Write sends it with the body; 0: none
}

func (x *answerWriter) WriteHeader(status int) {
	x.Header().Set("Cache-Control", "no-store")
	if status >= 400 {
		x.status = status
		return
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *answerWriter) Write(b []byte) (int, error) {
	x.Header().Set("Cache-Control", "no-store")
	e := x.refused(b)
	if rest, ok := bytes.CutPrefix(b, []byte(sdkAnswer+sdkID)); ok && e == nil {
		if _, err := x.ResponseWriter.Write([]byte(sdkAnswer + string(x.message.id()))); err != nil { // not joined, because an answer may have megabytes
			return 0, err
		}
		b = rest
	}
	if e == nil {
		return x.ResponseWriter.Write(b)
	}
	p := x.message.wrong(e.Code, x.status)
	x.message.fault(x.ResponseWriter, x.status, *e, p)
	return len(b), nil
}

// refused returns the error, as plain text or JSON-RPC, in an answer of the SDK, or nil if there is none.
func (x *answerWriter) refused(b []byte) *wireError {
	if x.status != 0 && strings.HasPrefix(x.Header().Get("Content-Type"), "text/plain") {
		return &wireError{Code: jsonrpc.CodeInvalidRequest, Message: string(b)}
	}
	if start := b[:min(len(b), 64)]; !bytes.Contains(start, []byte(`"error":`)) {
		return nil
	}
	var answer struct {
		Error *wireError `json:"error"`
	}
	if json.Unmarshal(b, &answer, jsontext.AllowInvalidUTF8(true)) != nil || answer.Error == nil {
		return nil
	}
	if answer.Error.Code == 0 { // the SDK sends 0 in refusals of initialize, but JSON-RPC has no such code
		answer.Error.Code = jsonrpc.CodeInvalidParams
	}
	return answer.Error
}

func (x *answerWriter) Unwrap() http.ResponseWriter { return x.ResponseWriter }
