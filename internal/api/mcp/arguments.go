package mcp

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/idempotency"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// arguments are a tool call's arguments, parsed by package canon. As in REST bodies, an
// optional argument that is null counts as left out.
type arguments map[string]any

// parseArguments parses arguments by the same strict rules as REST bodies.
func parseArguments(raw []byte) (arguments, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return arguments{}, nil
	}
	tree, err := canon.Parse(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the tool's arguments are %s; send one JSON object (I-JSON, integers only)", err)
	}
	object, ok := tree.(map[string]any)
	if !ok {
		return nil, problem.New(problem.InvalidRequest, "the tool's arguments must be one JSON object")
	}
	return object, nil
}

func (a arguments) wait() (time.Duration, error) {
	if a["wait_seconds"] == nil {
		return 0, nil
	}
	seconds, ok := a["wait_seconds"].(int64)
	if longest := int64(waiting.Longest / time.Second); !ok || seconds < 0 || seconds > longest {
		return 0, problem.New(problem.InvalidRequest, "wait_seconds must be a whole number of seconds from 0 to %d; to get the answer at once, pass 0 or leave wait_seconds out", longest)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (a arguments) waitSince(ctx context.Context) (escrow.Wait, error) {
	duration, err := a.wait()
	wait := escrow.Wait{For: duration, Network: limits.Network(requestInfoOf(ctx).address)}
	if err != nil || a["since"] == nil {
		return wait, err
	}
	since, _ := a["since"].(string)
	if wait.State = deal.State(since); !slices.Contains(deal.States, wait.State) {
		return wait, problem.New(problem.InvalidRequest, "the argument `since` must be the state that you saw last, one of %v", deal.States)
	}
	return wait, nil
}

// quoted adds a hint to an INVALID_REQUEST error if the agent passed an object or array as a
// string that holds JSON. Agents often make this mistake. Other errors pass unchanged.
func (a arguments) quoted(err error) error {
	if !problem.Is(err, problem.InvalidRequest) {
		return err
	}
	for _, name := range []string{"input", "algorithm_params", "party_labels", "party_keys", "certificate"} {
		if text, ok := a[name].(string); ok && strings.ContainsAny(text, "{[") {
			return problem.From(err).WithHint("; pass %s as a JSON object or array, not as a string that holds JSON", name)
		}
	}
	return err
}

// known refuses unknown arguments. Otherwise a misspelt argument would be ignored.
func (a arguments) known(t tool) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(t.arguments, name) {
			return problem.New(problem.InvalidRequest, "%s has no argument %.64q; valid arguments are %s", t.name, name, strings.Join(t.arguments, ", "))
		}
	}
	return nil
}

// credential returns the first of the named arguments that is set, or the error AUTH_REQUIRED
// if none of them is set. SPEC 4.1: secrets are passed as tool arguments.
func (a arguments) credential(names ...string) (string, error) {
	for _, name := range names {
		if a[name] == nil || a[name] == "" {
			continue
		}
		text, ok := a[name].(string)
		if !ok {
			return "", problem.New(problem.InvalidRequest, "%s must be a string", name)
		}
		return strings.TrimSpace(text), nil
	}
	return "", problem.New(problem.AuthRequired, "pass %s as a tool argument; %s", strings.Join(names, " or "), sources[names[0]])
}

var sources = map[string]string{
	"api_key":      "get one with create_key",
	"invite_token": "if you are the initiator, use a token from invite_tokens in the answer of create_deal; otherwise ask the initiator for your token",
}

func (a arguments) text(name, want string) (string, error) {
	text, ok := a[name].(string)
	if !ok || text == "" {
		return "", problem.New(problem.InvalidRequest, "%s is missing, empty or not a string; it must be %s", name, want)
	}
	return text, nil
}

func (a arguments) flag(name string) (bool, error) {
	value, ok := a[name].(bool)
	if a[name] != nil && !ok {
		return false, problem.New(problem.InvalidRequest, "%s must be true or false", name)
	}
	return value, nil
}

func (a arguments) body(without ...string) map[string]any {
	body := maps.Clone(a)
	for _, name := range append(without, "idempotency_key") {
		delete(body, name)
	}
	return body
}

// request scopes the idempotency key by tool and caller. The parameter `credentials` lists the
// arguments that are not part of the body.
func (a arguments) request(tool, caller string, credentials ...string) ops.Request {
	return ops.Request{
		Body: func() (map[string]any, error) { return a, nil },
		Once: func(map[string]any) (idempotency.Request, error) {
			key, err := a.idempotencyKey()
			return idempotency.Request{
				Key: key, Caller: caller, Method: "MCP", Path: tool, Status: http.StatusOK,
				Body: func() []byte { return canon.Encode(a.body(credentials...)) }, Lifetime: idempotency.Lifetime,
			}, err
		},
		Copies: copies,
		Next: func(d *escrow.Deal, c escrow.Committed) wire.Committed {
			return wire.CommittedOf(d, c, words, " with wait_seconds 45 and `since` COMMITTING")
		},
	}
}

func (a arguments) idempotencyKey() (string, error) {
	if a["idempotency_key"] == nil {
		return "", nil
	}
	key, ok := a["idempotency_key"].(string)
	if !ok || !idempotency.ValidKey(key) {
		return "", problem.New(problem.InvalidIdempotencyKey, "idempotency_key must be a string of 1 to 255 visible ASCII characters; a random UUID is a good one")
	}
	return key, nil
}

// String returns only the number of arguments, because arguments hold secrets.
func (a arguments) String() string { return fmt.Sprintf("%d arguments", len(a)) }
