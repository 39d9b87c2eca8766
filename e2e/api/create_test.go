package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

func labels(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("party %d", i)
	}
	return all
}

func items(n int) e2e.Body {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("item %d", i)
	}
	return e2e.Body{"items": all}
}

// A creation returns a new deal_id, and one invite token for each party (SPEC 2.3). The view has the
// default values, and omits unknown members of the request.
func TestCreated(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	ids := map[string]bool{}
	for _, b := range []e2e.Body{
		split(), shapley(), random(50, farRound(t)),
		changed(split(), "party_labels", []string{"same", "same"}, "colour", "red", "initiator", 1, "state", "VOID", "deal_id", "d_mine"),
		changed(split(), "party_labels", []string{"é", "é <&>\u2028 \"quoted\" \\ 🦆"}, "mode", nil, "retention", nil, "title", nil, "message", nil),
		changed(split(), "title", strings.Repeat("🦆", 80), "message", "<script>alert(1)</script>\n\n\"quoted\" \\ é e\u0301"),
	} {
		var r struct {
			DealID  string `json:"deal_id"`
			State   string
			Invites []struct {
				Party *int
				Label string
				Token string
			} `json:"invite_tokens"`
		}
		c.Want(201, "POST", "/v1/deals", key, b).Into(t, &r)
		labels := b["party_labels"].([]string)
		if r.State != "OPEN" || len(r.Invites) != len(labels) || r.DealID == "d_mine" || ids[r.DealID] {
			t.Fatalf("creation: %+v, want a new deal_id, state OPEN and %d tokens", r, len(labels))
		}
		ids[r.DealID] = true
		for i, invite := range r.Invites {
			if invite.Party == nil || *invite.Party != i || invite.Label != labels[i] || ids[invite.Token] {
				t.Errorf("invite %d: %+v, want party %d, label %q and a new token", i, invite, i, labels[i])
			}
			ids[invite.Token] = true
		}
		var v e2e.View
		view := c.Want(200, "GET", "/v1/deals/"+r.DealID, key, nil)
		view.Into(t, &v)
		if v.Mode != "sealed" || v.Retention != "standard" || !strings.Contains(string(view.Body), `"initiator":0`) || v.State != "OPEN" || strings.Contains(string(view.Body), `"red"`) {
			t.Errorf("view %s, want sealed, standard, initiator 0, OPEN and no member colour", view.Body)
		}
		// Title and message are members of view and declaration only if they are given.
		declared, _ := e2e.AsBody(t, string(c.Want(200, "GET", "/v1/deals/"+r.DealID+"/declaration", key, nil).Body))["declaration"].(e2e.Body)
		for _, name := range []string{"title", "message"} {
			for what, shown := range map[string]e2e.Body{"view": e2e.AsBody(t, string(view.Body)), "declaration": declared} {
				if got, there := shown[name]; got != b[name] || there != (b[name] != nil) {
					t.Errorf("the %s of the %s is %v (there: %t), want %v", name, what, got, there, b[name])
				}
			}
		}
		for i, p := range v.Parties {
			if p.Label != labels[i] || p.Index != i || p.Committed || p.Commitment != nil || p.Revealed {
				t.Errorf("party %d: %+v, want label %q and no commitment or reveal", i, p, labels[i])
			}
		}
	}
}

// Package internal/rules/algorithm has more tests of the rules for labels and params.
func TestRefusedCreations(t *testing.T) {
	c := newClient(t)
	key, now := c.Key(), time.Now().Unix()
	draw := random(2, farRound(t))
	coalitions := func(name string, worth any) e2e.Body {
		return e2e.Body{"coalition_values": e2e.Body{name: worth}}
	}
	for _, row := range []struct {
		code  string
		sent  any
		names string // a part of the error
	}{
		{"INVALID_REQUEST", "[]", "an array"},
		{"INVALID_REQUEST", changed(split(), "algorithm", "-"), "algorithm"},
		{"INVALID_REQUEST", changed(split(), "algorithm", 1), "algorithm"},
		{"INVALID_REQUEST", changed(split(), "algorithm", "split.v2"), `"split.v2"`},
		{"INVALID_REQUEST", changed(split(), "algorithm", "Split.v1"), "split.v1"},
		{"INVALID_REQUEST", changed(split(), "mode", "closed"), `"closed"`},
		{"INVALID_REQUEST", changed(split(), "mode", 1), "mode"},
		{"INVALID_REQUEST", changed(split(), "retention", ""), "retention"},
		{"INVALID_REQUEST", changed(split(), "retention", true), "retention"},
		{"INVALID_REQUEST", changed(split(), "party_labels", "-"), "party_labels"},
		{"INVALID_REQUEST", changed(split(), "party_labels", e2e.Body{}), "party_labels"},
		{"INVALID_REQUEST", changed(split(), "party_labels", []any{"ann", nil}), "party_labels[1]"},
		{"INVALID_REQUEST", changed(split(), "algorithm_params", []int{1}), "algorithm_params"},
		{"INVALID_REQUEST", changed(split(), "commit_deadline", nil), "commit_deadline"},
		{"INVALID_REQUEST", changed(split(), "reveal_deadline", "-"), "reveal_deadline"},
		{"INVALID_REQUEST", changed(split(), "commit_deadline", "1900000000"), "commit_deadline"},
		{"INVALID_REQUEST", changed(split(), "commit_deadline", now), "commit_deadline"},
		{"INVALID_REQUEST", changed(split(), "commit_deadline", -1), "commit_deadline"},
		{"INVALID_REQUEST", changed(split(), "reveal_deadline", split()["commit_deadline"]), "reveal_deadline"},
		{"INVALID_REQUEST", changed(split(), "reveal_deadline", now+10), "reveal_deadline"},
		{"INVALID_REQUEST", changed(split(), "title", 1), "title"},
		{"INVALID_REQUEST", changed(split(), "title", ""), "title is empty"},
		{"INVALID_REQUEST", changed(split(), "title", strings.Repeat("a", 81)), "at most 80"},
		{"INVALID_REQUEST", changed(split(), "title", "a\u202eb"), "title has the character U+202E at position 2"},
		{"INVALID_REQUEST", changed(split(), "message", []string{"a"}), "message"},
		{"INVALID_REQUEST", changed(split(), "message", strings.Repeat("ü", 1001)), "at most 1000"},
		{"INVALID_REQUEST", changed(split(), "message", "a\x00b"), "message has the character U+0000"},
		{"INVALID_PARAMS", changed(split(), "algorithm_params", "-"), "items"},
		{"INVALID_PARAMS", changed(split(), "party_labels", labels(17)), "2 to 16"},
		{"INVALID_PARAMS", changed(draw, "party_labels", labels(10001)), "2 to 10000"},
		{"INVALID_PARAMS", changed(split(), "party_labels", []string{"ann", "b\x00b"}), "party_labels[1]"},
		{"INVALID_PARAMS", changed(split(), "algorithm_params", e2e.Body{"items": []any{"car", 7}}), "items[1]"},
		{"INVALID_PARAMS", changed(draw, "algorithm_params", e2e.Body{"beacon_round": 0}), "beacon_round"},
		{"INVALID_PARAMS", changed(draw, "algorithm_params", e2e.Body{}), fmt.Sprintf("give %d, the first round after reveal_deadline", e2e.BeaconChain(t).RoundAt(draw["reveal_deadline"].(int64))+1)},
		{"INVALID_PARAMS", changed(shapley(), "algorithm_params", coalitions("bob,ann", 1)), `must be "ann,bob"`},
	} {
		if a := c.Refused(400, row.code, "POST", "/v1/deals", key, row.sent); !strings.Contains(a.ErrorText(), row.names) {
			t.Errorf("the error does not contain %q: %s", row.names, a.ErrorText())
		}
	}
}

func TestLargestCreations(t *testing.T) {
	c := newClient(t)
	for _, sent := range []e2e.Body{
		changed(split(), "party_labels", labels(16), "algorithm_params", items(256)),
		changed(split(), "algorithm_params", items(1000)),
		changed(random(2, 1), "party_labels", labels(10000)),
		changed(split(), "commit_deadline", e2e.After(365*24*time.Hour), "reveal_deadline", e2e.After(365*24*time.Hour)+1),
		changed(shapley(), "algorithm_params", e2e.Body{"coalition_values": e2e.Body{"0": 1, "0,1": int64(1<<53 - 1)}}),
	} {
		d := c.Create(sent)
		var v struct {
			Params json.RawMessage `json:"algorithm_params"`
		}
		c.Want(200, "GET", d.Path(""), d.Key, nil).Into(t, &v)
		e2e.Same(t, "algorithm_params as shown and as sent", v.Params, []byte(e2e.JsonText(t, sent["algorithm_params"])))
	}
}

// A commit_deadline in the next second is accepted, and one in the current second is refused.
func TestEarliestCommitDeadline(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	e2e.Eventually(t, "a deal created in the second before its commit_deadline", e2e.DefaultTimeout, func() bool {
		deadline := time.Now().Unix() + 1
		a := c.Do("POST", "/v1/deals", key, changed(e2e.SplitBody(0, time.Hour), "commit_deadline", deadline))
		if a.Status == 400 {
			return false // the deadline passed before the call: try again
		}
		var v struct {
			CreatedAt int64 `json:"created_at"`
		}
		c.Want(200, "GET", c.Created(key, a).Path(""), key, nil).Into(t, &v)
		if v.CreatedAt >= deadline {
			t.Fatalf("a deal was created at %d with the earlier or equal commit_deadline %d", v.CreatedAt, deadline)
		}
		return v.CreatedAt == deadline-1
	})
}

// A legal but odd declaration is accepted with a warning about the odd part only.
func TestWarnings(t *testing.T) {
	c := newClient(t)
	key := c.Key()
	chain := e2e.BeaconChain(t)
	reveal := time.Now().Add(2 * time.Hour).Unix()
	late := chain.RoundAt(reveal) + 1
	draw := func(round int64) e2e.Body { return e2e.Timed(e2e.RandomBody(2, round, 0, 0), reveal-3600, reveal) }
	use := fmt.Sprintf("use round %d", late)
	all := []string{"ignored", "count 0", "no inputs to fetch", "beacon_round"}
	for _, row := range []struct {
		name  string
		sent  e2e.Body
		wants []string
	}{
		{"split", split(), nil},
		{"a round after the reveals", draw(late), nil},
		{"the last round before the reveals close", draw(late - 1), []string{"beacon_round", use}},
		{"a round long ago", draw(1), []string{"beacon_round", use}},
		{"a coalition left out", changed(shapley(), "algorithm_params", e2e.Body{"coalition_values": e2e.Body{"ann": 1, "ann,bob": 2}}), []string{"count 0", `"bob"`}},
		{"open", changed(split(), "mode", "open"), nil},
		{"purge", changed(split(), "retention", "purge"), nil},
		{"open and purge", changed(split(), "mode", "open", "retention", "purge"), []string{"no inputs to fetch"}},
		{"unknown members", changed(split(), "colour", 1, "Mode", "open"), []string{"ignored", "colour", "Mode"}},
	} {
		d := c.CreateWith(key, row.sent)
		if row.wants == nil && d.Warning != "" {
			t.Errorf("%s: warning %q, want none", row.name, d.Warning)
		}
		for _, want := range row.wants {
			if !strings.Contains(d.Warning, want) {
				t.Errorf("%s: the warning does not contain %q: %s", row.name, want, d.Warning)
			}
		}
		for _, other := range all {
			if !slices.Contains(row.wants, other) && strings.Contains(d.Warning, other) {
				t.Errorf("%s: the warning contains %q, which is of another row: %s", row.name, other, d.Warning)
			}
		}
	}
}

// Tests on slow machines rely on the nil of e2e.Near: the deadline may pass before the call.
func TestPassedDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	now := time.Now().Unix()
	if x := e2e.Near(c, now-3600, now+3600); x != nil {
		t.Errorf("created a deal whose commit_deadline passed an hour ago: %s", x.Deal.ID)
	}
}
