package main

import (
	"strings"
	"testing"
)

func TestShow(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"short", `{ "b": 1, "a": [true, null] }`, `{"b":1,"a":[true,null]}`},
		{"token", `{"token":"it_` + strings.Repeat("x", 43) + `"}`, `{"token":"it_xxxxxx…"}`},
		{"signature", `{"signature":"es256:` + strings.Repeat("0a", 64) + `"}`, `{"signature":"es256:0a0a0a0a…"}`},
		{"names stay", `["inputs-committed-before-reveal"]`, `["inputs-committed-before-reveal"]`},
		{"sentence", `{"note":"` + strings.Repeat("more words ", 20) + `"}`, `{"note":"` + strings.Repeat("more words ", 6) + `more …"}`},
		{"words stay", `{"next":"wait until all parties have committed, then reveal"}`, `{"next":"wait until all parties have committed, then reveal"}`},
		{"long", `{"first":"` + strings.Repeat("word ", 12) + `","second":[{"party":0,"label":"` + strings.Repeat("Ana ", 10) + `"}]}`,
			"{\n  \"first\": \"" + strings.Repeat("word ", 12) + "\",\n  \"second\": [{\"party\":0,\"label\":\"" + strings.Repeat("Ana ", 10) + "\"}]\n}"},
		{"not JSON", `oops`, `oops`},
	} {
		if got := show([]byte(c.raw), ""); got != c.want {
			t.Errorf("%s: show gives\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}
