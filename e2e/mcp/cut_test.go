package mcp

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/e2e"
)

// cut is shorter than what a client keeps that cuts the instructions at 2,048 characters.
const cut = 2000

var (
	stepForm    = regexp.MustCompile(`(?m)^(?:\d\. )?([a-z]+(?:_[a-z]+)+) (\{.*\})(?: until ([A-Z]+))?`)
	placeholder = regexp.MustCompile(`"?<([a-z_]+)>"?`)
	credentials = regexp.MustCompile(`\b(d|it)_[A-Za-z0-9_-]{20,}`)
)

// scripted is an agent that knows nothing but what the cut instructions say, and what the answers say.
type scripted struct {
	*agent
	knows  map[string]json.RawMessage
	blocks []string // the text blocks of the last answer
}

func newScripted(t *testing.T, c *e2e.Client, salt string) (scripted, [][]string) {
	t.Helper()
	a := scripted{newAgent(t, c), map[string]json.RawMessage{"input": json.RawMessage(`{"valuations":{"car":70,"boat":30}}`), "salt": json.RawMessage(`"` + salt + `"`)}, nil}
	text := []rune(a.session.InitializeResult().Instructions)
	if len(text) <= cut {
		t.Fatalf("the instructions have only %d characters, so nothing is cut", len(text))
	}
	return a, stepForm.FindAllStringSubmatch(string(text[:cut]), -1)
}

// follow makes the call of a step, with each placeholder filled from what the agent knows, until the
// deal has the state that the step names.
func (a *scripted) follow(step []string) {
	a.t.Helper()
	arguments := placeholder.ReplaceAllStringFunc(step[2], func(place string) string {
		name := placeholder.FindStringSubmatch(place)[1]
		if a.knows[name] == nil {
			a.t.Fatalf("the step %q needs <%s>, which no earlier step returned", step[0], name)
		}
		return string(a.knows[name])
	})
	for {
		result, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: step[1], Arguments: json.RawMessage(arguments)})
		if err != nil || result.IsError {
			a.t.Fatalf("the step %q fails: %v, %s", step[0], err, e2e.JsonText(a.t, result))
		}
		a.blocks = nil
		for _, c := range result.Content {
			a.blocks = append(a.blocks, c.(*mcp.TextContent).Text)
		}
		answer := map[string]json.RawMessage{}
		e2e.Must(a.t, json.Unmarshal([]byte(a.blocks[0]), &answer))
		if state := string(answer["state"]); step[3] != "" && state != `"`+step[3]+`"` {
			continue
		}
		maps.Copy(a.knows, answer)
		if step[1] == "get_certificate" {
			a.knows["certificate"] = json.RawMessage(a.blocks[0])
		}
		return
	}
}

// A client that cuts the instructions completes a deal with what is left: the steps name all calls in
// order, and each argument is a choice of the party or comes from an earlier answer.
func TestMCPPlaysFromCutInstructions(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	ann, steps := newScripted(t, c, strings.Repeat("0a", 16))
	bob, _ := newScripted(t, c, strings.Repeat("0b", 16))
	var order []string
	for _, step := range steps {
		order = append(order, step[1])
	}
	if want := []string{"create_key", "create_deal", "compute_commitment_tool", "commit_input", "get_deal", "reveal_input", "get_certificate", "verify_certificate"}; !slices.Equal(order, want) {
		t.Fatalf("the first %d characters of the instructions have the steps %v, want %v", cut, order, want)
	}
	ann.follow(steps[0])
	ann.follow(steps[1])
	var tokens []struct{ Token json.RawMessage }
	e2e.Must(t, json.Unmarshal(ann.knows["invite_tokens"], &tokens))
	ann.knows["invite_token"] = tokens[0].Token
	for _, found := range credentials.FindAllStringSubmatch(ann.blocks[2], -1) { // the invitation is all that bob gets
		bob.knows[map[string]string{"d": "deal_id", "it": "invite_token"}[found[1]]] = json.RawMessage(`"` + found[0] + `"`)
	}
	bob.follow([]string{"INVITED", "get_deal", `{"deal_id":"<deal_id>","invite_token":"<invite_token>"}`, ""})
	for _, turn := range [][2]int{{2, 4}, {4, 6}, {6, 8}} {
		for _, party := range []*scripted{&ann, &bob} {
			for _, step := range steps[turn[0]:turn[1]] {
				party.follow(step)
			}
		}
	}
	for _, party := range []scripted{ann, bob} {
		if string(party.knows["valid"]) != "true" || string(party.knows["outcome"]) != `"COMPUTED"` {
			t.Errorf("verify_certificate answers %v, want a valid certificate of a computed deal", party.blocks)
		}
	}
}
