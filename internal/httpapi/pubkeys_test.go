package httpapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairpact/fairpact/internal/caller"
)

const (
	// G, 2G and 3G of P-256, and the key of RFC 8032 7.1, test 1.
	labelG   = "es256:036b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
	label2G  = "es256:037cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978"
	label3G  = "es256:025ecbe4d1a6330a44c8f7ef951d4bf165e6c6b721efada985fb41661bc6e7fd6c"
	labelEd  = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	inForce  = `{"keys":[{"pubkey":"` + labelG + `","state":"current"},{"pubkey":"` + label2G + `","state":"next"},{"pubkey":"` + label3G + `","retired_at":1795257295,"state":"retired","tree_size":4711},{"pubkey":"` + labelEd + `","state":"retired"}]}`
	afterOne = `{"keys":[{"pubkey":"` + label2G + `","state":"current"},{"pubkey":"` + labelG + `","state":"retired"}]}`
)

// publisher is a surface that publishes a key set.
func publisher(t *testing.T, document string) http.Handler {
	t.Helper()
	api, err := New(Config{KeySet: func() []byte { return []byte(document) }, LogReadURL: "http://127.0.0.1:1", Callers: &caller.Policy{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func ask(t *testing.T, api http.Handler, method string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "/v1/pubkeys", nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// The key set is published as it was read, in the shape of the document, for
// any page and without a credential, and is cheap to ask for again; another set
// has another tag.
func TestPublicKeys(t *testing.T) {
	api := publisher(t, inForce)
	first := ask(t, api, "GET", "Origin", "https://auditor.example")
	given := text(t, first)
	if first.StatusCode != 200 || given != inForce {
		t.Fatalf("%d %s, want %s", first.StatusCode, given, inForce)
	}
	for name, want := range map[string]string{"Access-Control-Allow-Origin": "*", "Cache-Control": "public, no-cache", "Content-Type": "application/json"} {
		if got := first.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	tag := first.Header.Get("ETag")
	if again := ask(t, api, "GET", "If-None-Match", tag); again.StatusCode != 304 || text(t, again) != "" || again.Header.Get("ETag") != tag || again.Header.Get("Access-Control-Allow-Origin") != "*" || again.Header.Get("Cache-Control") != "public, no-cache" {
		t.Errorf("again: %d %v", again.StatusCode, again.Header)
	}
	if head := ask(t, api, "HEAD"); head.StatusCode != 200 || head.Header.Get("ETag") != tag {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
	if other := ask(t, publisher(t, afterOne), "GET", "If-None-Match", tag); other.StatusCode != 200 || other.Header.Get("ETag") == tag || text(t, other) != afterOne {
		t.Errorf("after a rotation: %d %v", other.StatusCode, other.Header)
	}
	// A credential changes nothing, good or bad, and nothing may be sent here.
	if with := ask(t, api, "GET", "Authorization", "Bearer fp_unknown"); with.StatusCode != 200 || text(t, with) != inForce {
		t.Errorf("with a credential: %d", with.StatusCode)
	}
	if post := ask(t, api, "POST"); post.StatusCode != 405 || post.Header.Get("Allow") == "" {
		t.Errorf("POST: %d, Allow %q", post.StatusCode, post.Header.Get("Allow"))
	}
	if options := ask(t, api, "OPTIONS", "Origin", "https://auditor.example"); options.StatusCode != 204 || options.Header.Get("Allow") == "" {
		t.Errorf("OPTIONS: %d, Allow %q", options.StatusCode, options.Header.Get("Allow"))
	}
}

// The OpenAPI document tells of it all, and its schema takes what is published
// and no more.
func TestPublicKeysInTheDocument(t *testing.T) {
	op := document(t).Paths.Value("/v1/pubkeys").Get
	if op.Security != nil || op.Responses.Value("304") == nil || op.Responses.Value("200").Value.Headers["ETag"] == nil {
		t.Errorf("security %v, responses %v", op.Security, op.Responses.Map())
	}
	schema := op.Responses.Value("200").Value.Content["application/json"].Schema.Value
	for document, good := range map[string]bool{
		inForce:                                  true,
		afterOne:                                 true,
		`{}`:                                     false,
		`{"keys":[]}`:                            false,
		`{"keys":[{"pubkey":"` + labelG + `"}]}`: false,
		`{"keys":[{"pubkey":"` + labelG + `","state":"old"}]}`:                                false,
		`{"keys":[{"pubkey":"es256:00","state":"current"}]}`:                                  false,
		`{"keys":[{"pubkey":"` + labelG + `","state":"retired","tree_size":-1}]}`:             false,
		`{"keys":[{"pubkey":"` + labelG + `","state":"retired","tree_size":null}]}`:           false,
		`{"keys":[{"pubkey":"` + labelG + `","state":"retired","treesize":1}]}`:               false,
		`{"keys":[{"pubkey":"` + labelG + `","state":"current"}],"current":"` + labelG + `"}`: false,
	} {
		var value any
		if err := json.Unmarshal([]byte(document), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.VisitJSON(value); (err == nil) != good {
			t.Errorf("%s: %v", document, err)
		}
	}
}
