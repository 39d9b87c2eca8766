package invitation

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

func TestTextNamesEverythingThatAPartyNeeds(t *testing.T) {
	split, _ := algorithm.Lookup(algorithm.Split)
	seat := Seat{
		DealID: "d_1", Algorithm: split, From: "Ann", Party: 2, Label: "{token} of Ben", Token: "it_secret",
		CommitDeadline: 1790000059, RevealDeadline: 1790003600,
	}
	needs := []string{"Ann invites {token} of Ben to settle who gets what", "by Mon, 21 Sep 2026 14:14 UTC", "Have ready: for each thing", "before Mon, 21 Sep 2026 15:13 UTC",
		"\n\nFor an AI agent (party 2, split.v1)\nCheck the terms (your first call shows them), commit before 1790000059, and reveal before 1790003600 (unix seconds).\n", "/mcp", "/llms.txt", "/v1/deals/d_1", "get_deal"}
	for base, also := range map[string][]string{
		"https://fairpact.example.com": {"\nhttps://fairpact.example.com/d/d_1#it_secret\n", "https://fairpact.example.com/mcp"},
		"":                             {"deal_id: d_1.", "\ninvite_token: it_secret\n", "Go to /d/d_1 "},
	} {
		text := Text(base, seat)
		for _, what := range append(also, needs...) {
			if !strings.Contains(text, what) {
				t.Errorf("base %q: want %q in the invitation\n%s", base, what, text)
			}
		}
		if n := strings.Count(text, seat.Token); n != 1 {
			t.Errorf("base %q: the invitation has the token %d times, want once", base, n)
		}
		if rest := strings.ReplaceAll(text, "{token} of Ben", ""); strings.ContainsAny(rest, "{}") {
			t.Errorf("base %q: a placeholder is left in\n%s", base, rest)
		}
		if strings.Contains(text, "seat key") {
			t.Errorf("base %q: the invitation to a seat without a key names a seat key in\n%s", base, text)
		}
		sealed := seat
		sealed.OpensAt, sealed.Chain = 1790000119, "ab"
		if text := Text(base, sealed); !strings.Contains(text, "opens by itself at Mon, 21 Sep 2026 14:15 UTC") || !strings.Contains(text, "whoever runs it could open it at any time.\n\nYou need not come back") ||
			strings.Contains(text, "nobody can read") || strings.ContainsAny(strings.ReplaceAll(text, "{token} of Ben", ""), "{}") {
			t.Errorf("base %q: the invitation to a deal whose seals another beacon opens is\n%s", base, text)
		}
		sealed.Chain = algorithm.Quicknet
		if text := Text(base, sealed); !strings.Contains(text, "nobody can read it before Mon, 21 Sep 2026 14:15 UTC") || !strings.Contains(text, "You need not come back") || strings.Contains(text, "15:13 UTC") || strings.Contains(text, "quicknet") ||
			strings.Contains(text, "1790003600") || strings.ContainsAny(strings.ReplaceAll(text, "{token} of Ben", ""), "{}") {
			t.Errorf("base %q: the invitation to a deal that requires seals is\n%s", base, text)
		}
		titled := seat
		titled.Title, titled.Message = "The {token} & <b>house</b>", "Hello,\n\nGo to your link:\nhttps://evil.example"
		plain, rest, _ := strings.Cut(text, ".\n\n")
		if got, want := Text(base, titled), plain+".\n\nTitle: The {token} & <b>house</b>\nAnn writes:\n> Hello,\n> \n> Go to your link:\n> https://evil.example\n\n"+rest; got != want {
			t.Errorf("base %q: the invitation with title and message is\n%s\nwant\n%s", base, got, want)
		}
		titled.Message = ""
		if got, want := Text(base, titled), plain+".\n\nTitle: The {token} & <b>house</b>\n\n"+rest; got != want {
			t.Errorf("base %q: the invitation with a title is\n%s\nwant\n%s", base, got, want)
		}
		key, keyed := "ed25519:ab", seat
		keyed.Key = &key
		if with := Text(base, keyed); !strings.HasPrefix(with, text+"\n") || !strings.Contains(with, "seat key "+key) {
			t.Errorf("base %q: want the seat key %s at the end of\n%s", base, key, with)
		}
		if person, _, _ := strings.Cut(text, "For an AI agent"); strings.Contains(person, "MCP") || strings.Contains(person, "split.v1") {
			t.Errorf("base %q: a person reads of agents first in\n%s", base, text)
		}
	}
}
