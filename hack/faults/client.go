package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// client sends requests to its doors. A door is a process: one of the two deal-apis or, for tree
// heads only, one of the two log-servers.
type client struct {
	h     *history
	doors []*e2e.Client
	names []string
	final bool // all faults are over
}

func newClient(h *history, s *stack) *client {
	c := &client{h: h}
	for _, door := range doors {
		base := "http://" + s.links["client>"+door].address()
		c.doors = append(c.doors, &e2e.Client{Base: base, Http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}})
		c.names = append(c.names, door)
	}
	return c
}

type request struct {
	op, deal string
	party    int
	key      string // Idempotency-Key

	method, path, token string
	body                e2e.Body

	tool      string
	arguments e2e.Body
}

// timeouts are the time limits of attempts. The method try picks one at random for each attempt.
// Most requests end within 6 s. The shorter limits make the client give up before some answers.
var timeouts = []time.Duration{6 * time.Second, 6 * time.Second, 6 * time.Second, 1500 * time.Millisecond, 150 * time.Millisecond}

func (c *client) try(ctx context.Context, r request, door int) *Event {
	e := &Event{Op: r.op, Deal: r.deal, Party: r.party, Key: r.key, Via: "rest " + c.names[door], Final: c.final, Call: now()}
	ctx, cancel := context.WithTimeout(ctx, timeouts[rand.IntN(len(timeouts))])
	defer cancel()
	var a e2e.Answer
	var err error
	if r.tool != "" {
		e.Via = "mcp " + c.names[door]
		a, err = c.call(ctx, r, door)
	} else {
		var header []string
		if r.key != "" && r.method == http.MethodPost {
			header = []string{"Idempotency-Key", r.key}
		}
		var body any
		if r.body != nil {
			body = r.body
		}
		a, err = c.doors[door].Try(ctx, r.method, r.path, r.token, body, header...)
	}
	if err != nil {
		e.Note = err.Error()
	} else {
		e.Status, e.Code = a.Status, a.Code()
		// Return stays 0 if the client must send the request again. After a 5xx, the effect of the
		// attempt is unknown. An attempt with one of the two codes below had no effect.
		if a.Status < 500 && e.Code != "IDEMPOTENCY_IN_PROGRESS" && e.Code != "RATE_LIMITED" {
			e.Return = now()
		}
		if json.Valid(a.Body) {
			e.Body = a.Body
		}
	}
	return e
}

// call calls the MCP tool r.tool and converts the result to a REST answer.
func (c *client) call(ctx context.Context, r request, door int) (e2e.Answer, error) {
	arguments := e2e.Body{}
	for name, value := range r.arguments {
		arguments[name] = value
	}
	if r.key != "" {
		arguments["idempotency_key"] = r.key
	}
	message := e2e.Body{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": e2e.Body{"name": r.tool, "arguments": arguments}}
	a, err := c.doors[door].Try(ctx, http.MethodPost, "/mcp", "", message, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	if err != nil || a.Status != http.StatusOK {
		return a, err
	}
	var answer struct{ Result *e2e.ToolResult }
	if err := json.Unmarshal(a.Body, &answer); err != nil || answer.Result == nil {
		return a, fmt.Errorf("the tool %s returned no result: %.300s", r.tool, a.Body)
	}
	if !answer.Result.IsError {
		return e2e.Answer{Status: http.StatusOK, Body: answer.Result.Structured}, nil
	}
	failed := answer.Result.Meta.Error
	text, err := json.Marshal(e2e.Body{"error": answer.Result.Content[0].Text})
	return e2e.Answer{Status: failed.Status, Body: text}, err
}

// sendUntilAnswered sends r to the processes in c.doors in turn and stops after the first final answer (see
// Event.answered). It returns the attempt with that answer, or nil if ctx ends first. All attempts
// have the same Idempotency-Key. until adds every attempt to the history. If `edit` is not nil,
// until calls `edit` before it adds an attempt that succeeded.
func (c *client) sendUntilAnswered(ctx context.Context, r request, edit func(*Event)) *Event {
	for door := rand.IntN(len(c.doors)); ctx.Err() == nil; door++ {
		e := c.try(ctx, r, door%len(c.doors))
		if edit != nil && e.acknowledged() {
			edit(e)
		}
		c.h.add(e)
		if e.answered() {
			return e
		}
		e2e.Pause(ctx, 20*time.Millisecond+rand.N(100*time.Millisecond))
	}
	return nil
}

// A GET request changes a deal only if a step of the deal is due, such as its end after a missed
// deadline.
func get(op, deal, token, path string) request {
	return request{op: op, deal: deal, method: http.MethodGet, path: path, token: token}
}

func (r request) overMCP(tool string, arguments e2e.Body) request {
	if rand.IntN(2) == 0 {
		r.tool, r.arguments = tool, arguments
		for name, value := range r.body {
			r.arguments[name] = value
		}
	}
	return r
}

type state struct {
	DealID  string `json:"deal_id"`
	State   string
	Result  json.RawMessage
	Flakers []int `json:"void_flakers"`
	Parties []struct{ Committed, Revealed bool }
	CertID  *string                  `json:"certificate_id"`
	Closed  *int64                   `json:"commits_closed_at"`
	Tokens  []struct{ Token string } `json:"invite_tokens"`
}

func (e *Event) state() (s state) {
	_ = json.Unmarshal(e.Body, &s) // s stays empty if Body does not show a deal
	return s
}

func ended(state string) bool {
	return strings.Contains(" COMPUTED CERTIFIED VOID EXPIRED CANCELLED ", " "+state+" ")
}
