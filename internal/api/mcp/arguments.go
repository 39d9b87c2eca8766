package mcp

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// arguments are a tool call's arguments, parsed by package canon. As in REST bodies, an
// optional argument that is null counts as left out.
type arguments map[string]any

// String returns only the number of arguments, because arguments hold secrets.
func (a arguments) String() string { return fmt.Sprintf("%d arguments", len(a)) }

// smallTree is the largest tree of arguments that its connection counts, in bytes.
const smallTree = 12 << 10

// parseArguments first takes what the tree of the arguments needs. Small arguments need nothing, because
// the caller is not known yet: a party's call must not wait behind those of strangers.
func parseArguments(ctx context.Context, raw []byte, t tool) (arguments, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return arguments{}, nil
	}
	bytes, values, err := ops.TreeBytes(raw, cmp.Or(t.values, ops.SmallValues))
	if err == nil && t.answer != nil {
		err = budget.From(ctx).Hold(ctx, int64(len(raw)+copies*t.answer(len(raw), values)))
	}
	if err == nil && (len(raw) > budget.SmallBody || bytes > smallTree) {
		err = budget.From(ctx).Parse(ctx, len(raw)+budget.MaxSmall-budget.SmallCall, bytes)
	}
	if err != nil {
		return nil, err
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

// known refuses unknown arguments. Otherwise a misspelt argument would be ignored.
func (a arguments) known(t tool) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(t.arguments, name) {
			return problem.New(problem.InvalidRequest, "%s has no argument %.64q; valid arguments are %s", t.name(), name, strings.Join(t.arguments, ", "))
		}
	}
	return nil
}

// quoted adds a hint to an INVALID_REQUEST error if the agent passed an object or array as a
// string that holds JSON, which agents often do.
func (a arguments) quoted(err error) error {
	if !problem.Is(err, problem.InvalidRequest) {
		return err
	}
	for name, kind := range map[string]string{"input": "object", "algorithm_params": "object", "certificate": "object", "party_labels": "array", "party_keys": "array"} {
		if text, ok := a[name].(string); ok && strings.ContainsAny(text, "{[") {
			return problem.From(err).WithHint("; pass %s as a JSON %s, not as a string that holds JSON", name, kind)
		}
	}
	return err
}

func (a arguments) text(name, want string) (string, error) {
	m := canon.MembersOf(a, "")
	return m.Text(name, want), ops.Refused(m)
}

// id is text that MUST NOT be empty.
func (a arguments) id(name, want string) (string, error) {
	m := canon.MembersOf(a, "")
	text := m.Text(name, want)
	if text == "" {
		m.Fail("%s is empty: give %s", name, want)
	}
	return text, ops.Refused(m)
}

func (a arguments) flag(name string) (bool, error) {
	m := canon.MembersOf(a, "")
	return m.Has(name) && m.Flag(name, "true or false"), ops.Refused(m)
}

func (a arguments) waitSeconds() (time.Duration, error) {
	seconds, longest := int64(0), int64(waiting.Longest/time.Second)
	m := canon.MembersOf(a, "")
	if m.Has("wait_seconds") {
		seconds = m.Integer("wait_seconds", "a whole number of seconds")
	}
	if seconds < 0 || seconds > longest {
		m.Fail("wait_seconds must be a whole number of seconds from 0 to %d; to get the answer at once, pass 0 or leave wait_seconds out", longest)
	}
	if m.Err() != nil {
		seconds = 0 // a refused call must not change its time limit
	}
	return time.Duration(seconds) * time.Second, ops.Refused(m)
}

// call is a call of a tool, and the ops.Parts of its message.
type call struct {
	*server
	tool    tool
	args    arguments
	address string
}

// message scopes the idempotency key by tool and caller.
func (c *call) message() *ops.Message {
	return &ops.Message{Parts: c, Surface: wire.MCP, Method: "MCP", Path: c.tool.name(), Copies: copies}
}

func (c *call) Address() string { return c.address }

// Credential returns the first argument that may hold the credential and is set. SPEC 4.1:
// secrets are passed as tool arguments.
func (c *call) Credential(who ops.Who, action escrow.Action) (string, error) {
	names := []string{"invite_token", "api_key"}
	switch {
	case who == ops.KeyHolder:
		names = names[1:]
	case action == escrow.AsParty:
		names = names[:1]
	}
	for _, name := range names {
		if c.args[name] != nil && c.args[name] != "" {
			text, err := c.args.text(name, "a string")
			return strings.TrimSpace(text), err
		}
	}
	return "", problem.New(problem.AuthRequired, "pass %s as a tool argument; %s", strings.Join(names, " or "), sources[names[0]])
}

var sources = map[string]string{
	"api_key":      "get one with create_key",
	"invite_token": "if you are the initiator, use a token from invite_tokens in the answer of create_deal; otherwise ask the initiator for your token",
}

func (c *call) DealID() (string, error) {
	return c.args.id("deal_id", "the deal_id that create_deal returned")
}

func (c *call) CertID() (string, error) {
	return c.args.id("cert_id", "the cert_id in a certificate or the certificate_id that get_deal returned. To check a whole certificate, pass the certificate itself as the argument certificate")
}

func (c *call) Wait() (escrow.Wait, error) {
	duration, err := c.args.waitSeconds()
	wait := escrow.Wait{For: duration}
	if err != nil || c.args["since"] == nil {
		return wait, err
	}
	since, _ := c.args["since"].(string)
	if wait.State = deal.State(since); !slices.Contains(deal.States, wait.State) {
		return wait, problem.New(problem.InvalidRequest, "the argument `since` must be the state that you saw last, one of %s", problem.List(deal.States, "%s", ", "))
	}
	return wait, nil
}

// Openings returns false: get_certificate has no argument for it, because a model cannot read so much.
func (c *call) Openings() (bool, error) { return false, nil }

// Body returns the arguments that are not in the headers of a REST call. [front] has bounded
// their size.
func (c *call) Body(*ops.Operation) (map[string]any, error) {
	body := maps.Clone(c.args)
	for _, name := range []string{"api_key", "invite_token", "idempotency_key"} {
		delete(body, name)
	}
	return body, nil
}

func (c *call) IdempotencyKey() (string, error) {
	if c.args["idempotency_key"] == nil {
		return "", nil
	}
	key, ok := c.args["idempotency_key"].(string)
	if !ok || !escrow.ValidKey(key) {
		return "", problem.New(problem.InvalidIdempotencyKey, "idempotency_key must be a string of 1 to 255 visible ASCII characters; a random UUID is a good one")
	}
	return key, nil
}

// declaration converts the arguments of create_deal to the REST body. A missing beacon_round
// becomes the first round after reveal_deadline.
func (s *server) declaration(args map[string]any) (map[string]any, error) {
	body := maps.Clone(args)
	delete(body, "commit_seconds")
	delete(body, "reveal_seconds")
	from := time.Now().Unix()
	for _, phase := range []struct{ seconds, deadline string }{{"commit_seconds", "commit_deadline"}, {"reveal_seconds", "reveal_deadline"}} {
		length, ok := args[phase.seconds].(int64)
		switch given := args[phase.seconds] != nil; {
		case given && body[phase.deadline] != nil:
			return nil, problem.New(problem.InvalidRequest, "pass %s or %s, not both", phase.seconds, phase.deadline)
		case given && (!ok || length < 1 || length > deal.Longest):
			return nil, problem.New(problem.InvalidRequest, "%s must be an integer of 1 to %d", phase.seconds, deal.Longest)
		case given:
			body[phase.deadline] = from + length
		case body[phase.deadline] == nil:
			return nil, problem.New(problem.InvalidRequest, "%s (length of the phase in seconds) and %s (end of the phase in unix seconds) are both missing; pass one of them", phase.seconds, phase.deadline)
		}
		if at, ok := body[phase.deadline].(int64); ok {
			from = at // reveal_seconds counts from commit_deadline, and beacon_round from reveal_deadline
		}
	}
	id, _ := body["algorithm"].(string)
	params, isObject := body["algorithm_params"].(map[string]any)
	alg, known := algorithm.Lookup(id)
	if known && alg.NeedsBeacon && (isObject || body["algorithm_params"] == nil) && params["beacon_round"] == nil {
		dated := map[string]any{}
		maps.Copy(dated, params) // may hold beacon_round: null
		dated["beacon_round"] = s.Chain.RoundAt(from) + 1
		body["algorithm_params"] = dated
	}
	return body, nil
}
