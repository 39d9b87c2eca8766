package invitation

import (
	"strings"
	"testing"
)

var seat = Seat{
	DealID: "d_1", Algorithm: "split.v1", Purpose: "who gets what", Party: 2, Label: "{token} of Ben", Token: "it_secret",
	CommitDeadline: 1790000000, RevealDeadline: 1790003600,
}

func TestTextNamesEverythingThatAPartyNeeds(t *testing.T) {
	needs := []string{"{token} of Ben (party 2)", "split.v1", "who gets what", "Seal by 2026-09-21 14:13:20 UTC", "Open by 2026-09-21 15:13:20 UTC", "/mcp", "/llms.txt", "/v1/deals/d_1", "get_deal", ".\n\nFirst see"}
	for base, also := range map[string][]string{
		"https://fairpact.example.com": {"\nhttps://fairpact.example.com/d/d_1#it_secret\n", "https://fairpact.example.com/mcp"},
		"":                             {"deal_id: d_1\n", "invite_token: it_secret\n", "opens /d/d_1 "},
	} {
		text := Text(base, seat)
		for _, what := range append(also, needs...) {
			if !strings.Contains(text, what) {
				t.Errorf("base %q: no %q in\n%s", base, what, text)
			}
		}
		if n := strings.Count(text, seat.Token); n != 1 {
			t.Errorf("base %q: the token stands there %d times", base, n)
		}
		if rest := strings.ReplaceAll(text, "{token} of Ben", ""); strings.ContainsAny(rest, "{}") {
			t.Errorf("base %q: a placeholder is left in\n%s", base, rest)
		}
	}
}
