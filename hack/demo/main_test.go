package main

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestShownExchangeHidesSecretsAndFitsTheScreen(t *testing.T) {
	long := strings.Repeat("word ", 12)
	for name, tc := range map[string]struct{ json, want string }{
		"short":            {`{ "b": 1, "a": [true, null] }`, `{"b":1,"a":[true,null]}`},
		"token":            {`{"token":"it_` + strings.Repeat("x", 43) + `"}`, `{"token":"it_xxxxxx…"}`},
		"salt":             {`{"salt":"` + strings.Repeat("0a", 16) + `"}`, `{"salt":"0a0a0a0a…"}`},
		"signature":        {`{"signature":"es256:` + strings.Repeat("0a", 64) + `"}`, `{"signature":"es256:0a0a0a0a…"}`},
		"sentence":         {`{"note":"` + strings.Repeat("more words ", 20) + `"}`, `{"note":"` + strings.Repeat("more words ", 6) + `more …"}`},
		"short words stay": {`["inputs-committed-before-reveal"]`, `["inputs-committed-before-reveal"]`},
		"long": {`{"first":"` + long + `","second":[{"party":0,"label":"` + strings.Repeat("Ana ", 10) + `"}]}`,
			"{\n    \"first\": \"" + long + "\",\n    \"second\": [{\"party\":0,\"label\":\"" + strings.Repeat("Ana ", 10) + "\"}]\n  }"},
		"not JSON": {"oops\x1b[2J", `"oops\x1b[2J"`},
	} {
		var out bytes.Buffer
		request := httptest.NewRequest("POST", "/v1/x", nil)
		request.Header.Set("Authorization", "Bearer fp_"+strings.Repeat("k", 40))
		show(&out, request, nil, 201, []byte(tc.json))
		if want := "> POST /v1/x   Authorization: Bearer fp_kkkkkk…\n< 201 " + tc.want + "\n\n"; out.String() != want {
			t.Errorf("%s: printed\n%s\nwant\n%s", name, &out, want)
		}
	}
}
