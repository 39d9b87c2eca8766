package mcpapi

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/caller"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/waiting"
)

// arguments are a call's arguments as package canon reads them. As in REST
// bodies an optional one that is null counts as left out.
type arguments map[string]any

// parseArguments reads what the client wrote, with the strictness of REST bodies.
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

// wait is how long the call may wait for a change; 0: not at all.
func (a arguments) wait() (time.Duration, error) {
	if a["wait_seconds"] == nil {
		return 0, nil
	}
	seconds, ok := a["wait_seconds"].(int64)
	if longest := int64(waiting.Longest / time.Second); !ok || seconds < 0 || seconds > longest {
		return 0, problem.New(problem.InvalidRequest, "wait_seconds must be a whole number of seconds, at most %d; left out or 0: do not wait", longest)
	}
	return time.Duration(seconds) * time.Second, nil
}

// waitSince is the wait and the state that it waits to see the end of.
func (a arguments) waitSince(ctx context.Context) (escrow.Wait, error) {
	long, err := a.wait()
	wait := escrow.Wait{For: long, Network: caller.Network(callerAddress(ctx))}
	if err != nil || a["since"] == nil {
		return wait, err
	}
	since, _ := a["since"].(string)
	if wait.State = deal.State(since); !slices.Contains(deal.States, wait.State) {
		return wait, problem.New(problem.InvalidRequest, "since must be the state that you saw last, one of %v", deal.States)
	}
	return wait, nil
}

// quoted adds to a refusal what agents often get wrong: an object or array sent
// as a string that holds its JSON.
func (a arguments) quoted(err error) error {
	if !problem.Is(err, problem.InvalidRequest) {
		return err
	}
	for _, name := range []string{"input", "algorithm_params", "party_labels", "party_keys", "certificate"} {
		if text, ok := a[name].(string); ok && strings.ContainsAny(text, "{[") {
			return problem.From(err).Also("; pass %s as JSON itself, not as a string that holds JSON", name)
		}
	}
	return err
}

// known refuses an argument that the tool does not have: a name that is spelled
// wrong would be taken for one left out.
func (a arguments) known(t tool) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(t.arguments, name) {
			return problem.New(problem.InvalidRequest, "%s has no argument %.64q; it has %s", t.name, name, strings.Join(t.arguments, ", "))
		}
	}
	return nil
}

// credential gives the first of the named arguments that is set.
// SPEC 4.1: secrets are passed as tool arguments.
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

// sources says where a credential comes from.
var sources = map[string]string{
	"api_key":      "get one with create_key",
	"invite_token": "create_deal answers one for each party (invite_tokens), and whoever created the deal hands you yours",
}

// text gives a required string argument.
func (a arguments) text(name, want string) (string, error) {
	text, ok := a[name].(string)
	if !ok || text == "" {
		return "", problem.New(problem.InvalidRequest, "%s is missing, empty or no string; it must be %s", name, want)
	}
	return text, nil
}

// body is what REST would get as the body: the arguments that are neither a
// credential nor part of the path or a header.
func (a arguments) body(but ...string) map[string]any {
	body := make(map[string]any, len(a))
	for name, value := range a {
		body[name] = value
	}
	for _, name := range append(but, "idempotency_key") {
		delete(body, name)
	}
	return body
}

// idempotencyKey gives the optional key; empty where there is none.
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

// String keeps arguments, which hold secrets, out of anything printed.
func (a arguments) String() string { return fmt.Sprintf("%d arguments", len(a)) }
