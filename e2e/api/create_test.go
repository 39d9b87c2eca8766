package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// changed is a valid creation body with members set, or taken out where the
// value is the string "-".
func changed(b e2e.Body, members ...any) e2e.Body {
	b = maps.Clone(b)
	for i := 0; i+1 < len(members); i += 2 {
		if name := members[i].(string); members[i+1] == "-" {
			delete(b, name)
		} else {
			b[name] = members[i+1]
		}
	}
	return b
}

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

func coalitions(pairs ...any) e2e.Body {
	values := e2e.Body{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[pairs[i].(string)] = pairs[i+1]
	}
	return e2e.Body{"coalition_values": values}
}

// SPEC 2.3
func TestCreated(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	ids := map[string]bool{}
	for _, b := range []e2e.Body{
		e2e.SplitBody(time.Hour, 2*time.Hour), e2e.ShapleyBody(time.Hour, 2*time.Hour), e2e.RandomBody(50, e2e.FarRound(t), time.Hour, 2*time.Hour),
		changed(e2e.SplitBody(time.Hour, 2*time.Hour), "party_labels", []string{"same", "same"}),
		changed(e2e.SplitBody(time.Hour, 2*time.Hour), "party_labels", []string{"é", "é <&>\u2028 \"quoted\" \\ 🦆"}, "mode", nil, "retention", nil),
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
		if r.State != "OPEN" || len(r.Invites) != len(labels) || ids[r.DealID] {
			t.Fatalf("%+v", r)
		}
		ids[r.DealID] = true
		for i, invite := range r.Invites {
			if invite.Party == nil || *invite.Party != i || invite.Label != labels[i] || ids[invite.Token] {
				t.Errorf("invite %d: %+v, the label is %q", i, invite, labels[i])
			}
			ids[invite.Token] = true
		}
		var v struct {
			e2e.View
			Mode, Retention string
			Initiator       *int
			Params          json.RawMessage `json:"algorithm_params"`
		}
		c.Want(200, "GET", "/v1/deals/"+r.DealID, key, nil).Into(t, &v)
		if v.Mode != "sealed" || v.Retention != "standard" || v.Initiator == nil || *v.Initiator != 0 || v.State != "OPEN" {
			t.Errorf("defaults: %+v", v)
		}
		for i, p := range v.Parties {
			if p.Label != labels[i] || p.Index != i || p.Committed || p.Commitment != nil || p.Revealed {
				t.Errorf("party %d: %+v", i, p)
			}
		}
	}
}

// What is declared is strict: each of these is refused, says which member is
// wrong, and makes nothing.
func TestRefusedCreations(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	split, shapley, random := e2e.SplitBody(time.Hour, 2*time.Hour), e2e.ShapleyBody(time.Hour, 2*time.Hour), e2e.RandomBody(2, e2e.FarRound(t), time.Hour, 2*time.Hour)
	now := time.Now().Unix()
	trio := changed(shapley, "party_labels", []string{"ann", "bob", "cy"})
	for _, row := range []struct {
		name, code string
		sent       any
		teaches    string // stands in the error
	}{
		{"no body", "INVALID_JSON", "", "object"},
		{"null", "INVALID_REQUEST", "null", "object"},
		{"an array", "INVALID_REQUEST", "[]", "an array"},
		{"a string", "INVALID_REQUEST", `"x"`, "a string"},
		{"nothing", "INVALID_REQUEST", "{}", "algorithm"},
		{"no algorithm", "INVALID_REQUEST", changed(split, "algorithm", "-"), "algorithm"},
		{"a null algorithm", "INVALID_REQUEST", changed(split, "algorithm", nil), "algorithm"},
		{"an unknown algorithm", "INVALID_REQUEST", changed(split, "algorithm", "split.v2"), `"split.v2"`},
		{"an algorithm in capitals", "INVALID_REQUEST", changed(split, "algorithm", "Split.v1"), "split.v1"},
		{"an unknown mode", "INVALID_REQUEST", changed(split, "mode", "public"), `"public"`},
		{"a mode of another type", "INVALID_REQUEST", changed(split, "mode", 1), "mode"},
		{"an unknown retention", "INVALID_REQUEST", changed(split, "retention", ""), "retention"},
		{"no labels", "INVALID_REQUEST", changed(split, "party_labels", "-"), "party_labels"},
		{"labels of another type", "INVALID_REQUEST", changed(split, "party_labels", "ann,bob"), "party_labels"},
		{"a null label", "INVALID_REQUEST", changed(split, "party_labels", []any{"ann", nil}), "party_labels[1]"},
		{"no commit deadline", "INVALID_REQUEST", changed(split, "commit_deadline", "-"), "commit_deadline"},
		{"a null commit deadline", "INVALID_REQUEST", changed(split, "commit_deadline", nil), "commit_deadline"},
		{"a commit deadline as text", "INVALID_REQUEST", changed(split, "commit_deadline", "1900000000"), "commit_deadline"},
		{"no reveal deadline", "INVALID_REQUEST", changed(split, "reveal_deadline", "-"), "reveal_deadline"},
		{"a commit deadline now", "INVALID_REQUEST", changed(split, "commit_deadline", now), "commit_deadline"},
		{"a commit deadline long ago", "INVALID_REQUEST", changed(split, "commit_deadline", 0), "commit_deadline"},
		{"a negative commit deadline", "INVALID_REQUEST", changed(split, "commit_deadline", -1), "commit_deadline"},
		{"both deadlines at once", "INVALID_REQUEST", changed(split, "reveal_deadline", split["commit_deadline"]), "reveal_deadline"},
		{"reveals before commits", "INVALID_REQUEST", changed(split, "reveal_deadline", now+10), "reveal_deadline"},
		{"params of another type", "INVALID_REQUEST", changed(split, "algorithm_params", []int{1}), "algorithm_params"},
		{"no params", "INVALID_PARAMS", changed(split, "algorithm_params", "-"), "items"},
		{"null params", "INVALID_PARAMS", changed(split, "algorithm_params", nil), "items"},

		{"one party", "INVALID_PARAMS", changed(split, "party_labels", labels(1)), "2 to 16"},
		{"no party", "INVALID_PARAMS", changed(split, "party_labels", []string{}), "2 to 16"},
		{"17 parties to split", "INVALID_PARAMS", changed(split, "party_labels", labels(17)), "2 to 16"},
		{"10001 parties to draw", "INVALID_PARAMS", changed(random, "party_labels", labels(10001)), "2 to 10000"},
		{"9 parties with shares", "INVALID_PARAMS", changed(shapley, "party_labels", labels(9)), "2 to 8"},
		{"an empty label", "INVALID_PARAMS", changed(split, "party_labels", []string{"ann", ""}), "party_labels[1]"},
		{"a label of 201 bytes", "INVALID_PARAMS", changed(split, "party_labels", []string{"ann", "x" + strings.Repeat("é", 100)}), "200"},
		{"U+0000 in a label", "INVALID_PARAMS", changed(split, "party_labels", []string{"ann", "b\x00b"}), "party_labels[1]"},
		{"U+0085 in a label", "INVALID_PARAMS", changed(split, "party_labels", []string{"ann", "b\u0085b"}), "party_labels[1]"},
		{"equal labels with shares", "INVALID_PARAMS", changed(shapley, "party_labels", []string{"ann", "ann"}), "party_labels[1]"},
		{"a comma in a label with shares", "INVALID_PARAMS", changed(shapley, "party_labels", []string{"ann", "bob,cy"}), "comma"},

		{"no items", "INVALID_PARAMS", changed(split, "algorithm_params", items(0)), "items"},
		{"1001 items", "INVALID_PARAMS", changed(split, "algorithm_params", items(1001)), "1000"},
		{"16 parties and 257 items", "INVALID_PARAMS", changed(split, "party_labels", labels(16), "algorithm_params", items(257)), "4096"},
		{"items of another type", "INVALID_PARAMS", changed(split, "algorithm_params", e2e.Body{"items": "car"}), "items"},
		{"an item of another type", "INVALID_PARAMS", changed(split, "algorithm_params", e2e.Body{"items": []any{"car", 7}}), "items[1]"},
		{"an empty item", "INVALID_PARAMS", changed(split, "algorithm_params", e2e.Body{"items": []any{"car", ""}}), "items[1]"},
		{"an item twice", "INVALID_PARAMS", changed(split, "algorithm_params", e2e.Body{"items": []any{"car", "car"}}), "items[1]"},
		{"an item of 201 bytes", "INVALID_PARAMS", changed(split, "algorithm_params", e2e.Body{"items": []any{strings.Repeat("x", 201)}}), "200"},

		{"no round", "INVALID_PARAMS", changed(random, "algorithm_params", e2e.Body{}), "beacon_round"},
		{"a null round", "INVALID_PARAMS", changed(random, "algorithm_params", e2e.Body{"beacon_round": nil}), "beacon_round"},
		{"round 0", "INVALID_PARAMS", changed(random, "algorithm_params", e2e.Body{"beacon_round": 0}), "beacon_round"},
		{"a negative round", "INVALID_PARAMS", changed(random, "algorithm_params", e2e.Body{"beacon_round": -1}), "beacon_round"},
		{"a round as text", "INVALID_PARAMS", changed(random, "algorithm_params", e2e.Body{"beacon_round": "7"}), "beacon_round"},

		{"no coalitions", "INVALID_PARAMS", changed(shapley, "algorithm_params", e2e.Body{}), "coalition_values"},
		{"a negative worth", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("ann", -1)), "0 to"},
		{"a worth as text", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("ann", "1")), "ann"},
		{"a null worth", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("ann", nil)), "ann"},
		{"an unsorted key", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("bob,ann", 1)), `must be "ann,bob"`},
		{"a member twice", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("ann,ann", 1)), `must be "ann"`},
		{"a blank in a key", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("ann, bob", 1)), `must be "ann,bob"`},
		{"a stranger in a key", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("ann,eve", 1)), `"eve"`},
		{"the empty key", "INVALID_PARAMS", changed(shapley, "algorithm_params", coalitions("", 0)), "empty"},
		{"labels and indexes", "INVALID_PARAMS", changed(trio, "algorithm_params", coalitions("ann", 1, "1", 2)), "no party"},
		{"unsorted indexes", "INVALID_PARAMS", changed(trio, "algorithm_params", coalitions("2,0", 1)), `must be "0,2"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := c.In(t).Refused(400, row.code, "POST", "/v1/deals", key, row.sent)
			if !strings.Contains(a.ErrorText(), row.teaches) {
				t.Errorf("%s does not say %q", a.ErrorText(), row.teaches)
			}
		})
	}
}

// The largest and the oddest that are legal.
func TestAcceptedCreations(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	split, shapley, random := e2e.SplitBody(time.Hour, 2*time.Hour), e2e.ShapleyBody(time.Hour, 2*time.Hour), e2e.RandomBody(2, e2e.FarRound(t), time.Hour, 2*time.Hour)
	const most = 1<<53 - 1
	for name, sent := range map[string]any{
		"16 parties and 256 items":    changed(split, "party_labels", labels(16), "algorithm_params", items(256)),
		"1000 items":                  changed(split, "algorithm_params", items(1000)),
		"10000 parties":               changed(random, "party_labels", labels(10000)),
		"8 parties":                   changed(shapley, "party_labels", labels(8), "algorithm_params", coalitions("party 0", 1)),
		"a label of 200 bytes":        changed(split, "party_labels", []string{"ann", strings.Repeat("é", 100)}),
		"an item of 200 bytes":        changed(split, "algorithm_params", e2e.Body{"items": []string{strings.Repeat("é", 100)}}),
		"a comma in a label":          changed(split, "party_labels", []string{"ann", "bob,cy"}),
		"the latest deadlines":        changed(split, "commit_deadline", e2e.After(365*24*time.Hour), "reveal_deadline", e2e.After(365*24*time.Hour)+1),
		"the first round":             changed(random, "algorithm_params", e2e.Body{"beacon_round": 1}),
		"indexes":                     changed(shapley, "algorithm_params", coalitions("0", 1, "0,1", int64(most))),
		"no worth at all":             changed(shapley, "algorithm_params", coalitions()),
		"explicit defaults":           changed(split, "mode", "sealed", "retention", "standard"),
		"labels that are odd strings": changed(split, "party_labels", []string{" ", "__proto__"}),
	} {
		t.Run(name, func(t *testing.T) { c.In(t).Want(201, "POST", "/v1/deals", key, sent) })
	}
}

// now < commit_deadline: the deadline in the very next second is one, that of
// the second at hand is none.
func TestEarliestCommitDeadline(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	e2e.Eventually(t, "a deal created in the second before its commit_deadline", e2e.Patience, func() bool {
		deadline := time.Now().Unix() + 1
		a := c.Do("POST", "/v1/deals", key, changed(e2e.SplitBody(0, time.Hour), "commit_deadline", deadline))
		if a.Status == 400 {
			return false // that second has begun
		}
		var v struct {
			CreatedAt int64 `json:"created_at"`
		}
		c.Want(200, "GET", c.Created(key, a).Path(""), key, nil).Into(t, &v)
		if v.CreatedAt >= deadline {
			t.Fatalf("created at %d with commit_deadline %d", v.CreatedAt, deadline)
		}
		return v.CreatedAt == deadline-1
	})
}

// What is legal but odd comes back in the warning, and what is not odd does not.
func TestWarnings(t *testing.T) {
	c := surfaceClient(t)
	key := c.Key()
	split, shapley := e2e.SplitBody(time.Hour, 2*time.Hour), e2e.ShapleyBody(time.Hour, 2*time.Hour)
	chain := e2e.BeaconChain(t)
	reveal := time.Now().Add(2 * time.Hour).Unix()
	late := chain.RoundAt(reveal) + 1 // the first that is out after reveal_deadline
	random := e2e.Timed(e2e.RandomBody(2, late, 0, 0), reveal-3600, reveal)
	early := func(round int64) e2e.Body {
		return changed(random, "algorithm_params", e2e.Body{"beacon_round": round})
	}
	const salt = "16 random bytes"
	all := []string{salt, "ignored", "count 0", "counts 0", "nothing to share", "no inputs to fetch", "beacon_round", "read as labels"}
	for _, row := range []struct {
		name  string
		sent  e2e.Body
		wants []string
	}{
		{"split", split, []string{salt}},
		{"a round after the reveals", random, []string{salt}},
		{"the last round before the reveals close", early(late - 1), []string{salt, "beacon_round", fmt.Sprintf("use round %d", late)}},
		{"a round long ago", early(1), []string{salt, "beacon_round", fmt.Sprintf("use round %d", late)}},
		{"all coalitions", shapley, []string{salt}},
		{"a coalition left out", changed(shapley, "algorithm_params", coalitions("ann", 1, "ann,bob", 2)), []string{salt, "count 0", `"bob"`}},
		{"the grand coalition left out", changed(shapley, "algorithm_params", coalitions("ann", 1, "bob", 2)), []string{salt, "counts 0", "nothing to share", `"ann,bob"`}},
		{"labels like indexes", changed(shapley, "party_labels", []string{"1", "0"}, "algorithm_params", coalitions("0", 1, "1", 1, "0,1", 2)), []string{salt, "read as labels"}},
		{"open", changed(split, "mode", "open"), []string{salt}},
		{"purge", changed(split, "retention", "purge"), []string{salt}},
		{"open and purge", changed(split, "mode", "open", "retention", "purge"), []string{salt, "no inputs to fetch"}},
		{"unknown members", changed(split, "colour", 1, "Mode", "open"), []string{salt, "ignored", "colour", "Mode"}},
		{"unknown params", changed(split, "algorithm_params", e2e.Body{"items": []string{"car"}, "tie": 1}), []string{salt, "ignores", "tie"}},
	} {
		d := c.CreateWith(key, row.sent)
		for _, want := range row.wants {
			if !strings.Contains(d.Warning, want) {
				t.Errorf("%s: the warning has no %q: %s", row.name, want, d.Warning)
			}
		}
		for _, other := range all {
			if !slices.Contains(row.wants, other) && strings.Contains(d.Warning, other) {
				t.Errorf("%s: the warning speaks of %q: %s", row.name, other, d.Warning)
			}
		}
	}
}

// FAIRPACT_STRICT_BEACON refuses a round that is out before the reveals close;
// see TestFaultsAndChoices. Here: what was ignored is not kept.
func TestUnknownMembersAreNotKept(t *testing.T) {
	c := surfaceClient(t)
	d := c.Create(changed(e2e.SplitBody(time.Hour, 2*time.Hour), "colour", "red", "initiator", 1, "state", "VOID", "deal_id", "d_mine"))
	a := c.Want(200, "GET", d.Path(""), d.Key, nil)
	if v := d.View(); v.State != "OPEN" || d.ID == "d_mine" || strings.Contains(string(a.Body), `"red"`) {
		t.Errorf("%s", a.Body)
	}
}
