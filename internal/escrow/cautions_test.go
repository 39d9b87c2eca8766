package escrow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestDeclarationsAreBounded(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	svc, now := h.replica(), h.now(t)
	key := of(svc.CreateKey(t.Context(), nil)).ok(t).APIKey
	owner := of(svc.Authenticate(t.Context(), key)).ok(t)
	const year = 366 * 24 * 3600
	round := func(at int64) []byte { return beaconRound(h.beacon.Chain().RoundAt(at)) }
	many := slices.Repeat([]string{strings.Repeat("x", 100)}, 6000)
	for name, row := range map[string]struct {
		change func(*escrow.Declared)
		code   problem.Code // empty if the declaration is accepted
	}{
		"as it should be":           {func(*escrow.Declared) {}, ""},
		"a reveal in a year":        {func(d *escrow.Declared) { d.RevealDeadline = now + year - 60 }, ""},
		"a reveal after more":       {func(d *escrow.Declared) { d.RevealDeadline = now + year + 60 }, problem.InvalidRequest},
		"a reveal at the end":       {func(d *escrow.Declared) { d.RevealDeadline = 1<<53 - 1 }, problem.InvalidRequest},
		"a label that turns around": {func(d *escrow.Declared) { d.Labels[1] = "b\u202eob" }, problem.InvalidParams},
		"a label with an invisible": {func(d *escrow.Declared) { d.Labels[1] = "a\u200b" }, problem.InvalidParams},
		"an item with an invisible": {func(d *escrow.Declared) { d.Params = []byte("{\"items\":[\"car\",\"car\u2060\"]}") }, problem.InvalidParams},
		"a label of any script": {func(d *escrow.Declared) {
			d.Labels = []string{"Ξένια", "می\u200cخواهم 👩\u200d👩\u200d👧"}
		}, ""},
		"a round soon after": {func(d *escrow.Declared) { d.Algorithm, d.Params = "random.v1", round(d.RevealDeadline+60) }, ""},
		"an early round":     {func(d *escrow.Declared) { d.Algorithm, d.Params = "random.v1", round(d.RevealDeadline) }, ""},
		"an early round with an audience": {func(d *escrow.Declared) {
			d.Algorithm, d.Params, d.Audience = "random.v1", round(d.RevealDeadline), deal.AudiencePublic
		}, problem.InvalidParams},
		"a round long after": {func(d *escrow.Declared) { d.Algorithm, d.Params = "random.v1", round(d.RevealDeadline+year+60) }, problem.InvalidParams},
		"a round at the end": {func(d *escrow.Declared) {
			d.Algorithm, d.Params = "random.v1", beaconRound(1<<53-1)
		}, problem.InvalidParams},
		"many long labels": {func(d *escrow.Declared) {
			d.Algorithm, d.Params, d.Labels = "random.v1", round(d.RevealDeadline+60), many
		}, problem.InvalidParams},
	} {
		t.Run(name, func(t *testing.T) {
			d := escrow.Declared{Terms: deal.Terms{Algorithm: "split.v1", Mode: "sealed", Retention: "standard", Labels: []string{"a", "b"},
				Params: []byte(`{"items":["car","boat"]}`), CommitDeadline: now + 3600, RevealDeadline: now + 7200}}
			row.change(&d)
			if made := of(svc.Create(t.Context(), owner, d, nil, free)); row.code == "" {
				made.ok(t)
			} else {
				made.refused(t, row.code)
			}
		})
	}
}

func TestCautionsReachEveryParty(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for name, row := range map[string]struct {
		want string
		game func() *game
	}{
		"nothing to say": {"", func() *game { return h.split(t, nil) }},
		"labels that look alike": {"parties 0 and 1 have labels that look alike", func() *game {
			return h.split(t, func(d *escrow.Declared) { d.Labels = []string{"Ａnn  Lee", "ann lee"} })
		}},
		"Cyrillic letters for Latin ones": {"parties 0 and 1 have labels that look alike", func() *game {
			return h.split(t, func(d *escrow.Declared) { d.Labels = []string{"scope", "\u0455\u0441\u043e\u0440\u0435"} })
		}},
		"Greek capitals for Latin ones": {"parties 0 and 1 have labels that look alike", func() *game {
			return h.split(t, func(d *escrow.Declared) { d.Labels = []string{"BANK", "\u0392\u0391\u039d\u039a"} })
		}},
		"a variation selector": {"parties 0 and 1 have labels that look alike", func() *game {
			return h.split(t, func(d *escrow.Declared) { d.Labels = []string{"ann", "ann\ufe0e"} })
		}},
		"names of other scripts": {"", func() *game {
			return h.split(t, func(d *escrow.Declared) { d.Labels = []string{"\u0418\u0432\u0430\u043d", "Ivan"} })
		}},
		"short phases": {"to commit and 30 s to reveal", func() *game {
			return h.split(t, func(d *escrow.Declared) { d.RevealDeadline = d.CommitDeadline + 30 })
		}},
		"an early round": {"the last party can learn the winner before it reveals", func() *game {
			return h.random(t, func(d *escrow.Declared) {
				d.Params = beaconRound(h.beacon.Chain().RoundAt(d.RevealDeadline))
			})
		}},
		"odd params": {"legal but unusual", func() *game {
			return h.create(t, deal.Terms{Algorithm: "shapley.v1", Params: []byte(`{"coalition_values":{"a":10}}`)},
				[]string{`{}`, `{}`}, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g, svc := row.game(), h.replica()
			got := strings.Join(of(svc.View(t.Context(), g.access(t, svc, g.tokens[1], escrow.Read))).ok(t).Cautions(), ". ")
			if row.want == "" && got != "" || !strings.Contains(got, row.want) {
				t.Errorf("the cautions for party 1 are %q, want %q", got, row.want)
			}
		})
	}
}
