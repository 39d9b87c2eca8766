package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/problem"
)

// SPEC 5.1: `Authorization: Bearer <token>`. Any other scheme is as good as no
// credential; the scheme's name is case-insensitive (RFC 9110 11.1).
func TestCredential(t *testing.T) {
	for header, want := range map[string]string{
		"":                  "",
		"Bearer fp_x":       "fp_x",
		"bearer fp_x":       "fp_x",
		"BEARER it_x":       "it_x",
		"Bearer  fp_x ":     "fp_x",
		"Bearer":            "",
		"Bearer ":           "",
		"fp_x":              "",
		"Basic fp_x":        "",
		"Bearerfp_x":        "",
		"Bearer\tfp_x":      "",
		"Token Bearer fp_x": "",
		"Bearer fp_x it_y":  "fp_x it_y", // no credential has a space: unknown
	} {
		r := httptest.NewRequest("GET", "/v1/deals/d_1", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		if got := credential(r); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	for _, row := range []struct {
		sent []string
		want string
		bad  bool
	}{
		{nil, "", false},
		{[]string{"6b1d7e0c"}, "6b1d7e0c", false},
		{[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255), false},
		{[]string{strings.Repeat("k", 256)}, "", true},
		{[]string{""}, "", true}, // sent, and empty: the caller relies on something that is not there
		{[]string{"a b"}, "", true},
		{[]string{"é"}, "", true},
		{[]string{"a", "a"}, "", true},
	} {
		r := httptest.NewRequest("POST", "/v1/keys", nil)
		for _, key := range row.sent {
			r.Header.Add("Idempotency-Key", key)
		}
		got, err := idempotencyKey(r)
		if got != row.want || problem.Is(err, problem.InvalidIdempotencyKey) != row.bad || (err != nil) != row.bad {
			t.Errorf("%.20q: %.20q, %v", row.sent, got, err)
		}
		if err != nil && len(row.sent[0]) > 1 && strings.Contains(err.Error(), row.sent[0]) {
			t.Errorf("the error shows the header, which is a secret: %v", err)
		}
	}
}

// One base URL serves the log's reads: the question goes through as it is, and
// nothing that the caller is known by.
func TestLogProxy(t *testing.T) {
	var asked *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Clone(r.Context())
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("the log's own words"))
	}))
	proxy, err := logProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/log/proof?leaf_index=1&entry=%zz&x;y", nil)
		r.Header.Set("Authorization", "Bearer fp_secret")
		r.Header.Set("Idempotency-Key", "secret")
		r.Header.Set("Cookie", "secret=1")
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		w := httptest.NewRecorder()
		proxy(w, r)
		return w
	}
	if w := ask(); w.Code != 404 || w.Body.String() != "the log's own words" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if asked.URL.Path != "/v1/log/proof" || asked.URL.RawQuery != "leaf_index=1&entry=%zz&x;y" {
		t.Errorf("the log was asked %s", asked.URL)
	}
	for name, values := range asked.Header {
		if strings.Contains(strings.Join(values, " "), "secret") || name == "Authorization" || name == "X-Forwarded-For" {
			t.Errorf("the log was sent %s", name)
		}
	}
	server.Close()
	w := ask()
	if w.Code != 503 || !strings.HasPrefix(w.Body.String(), `{"error":"LOG_UNAVAILABLE: `) || w.Header().Get("Retry-After") == "" {
		t.Errorf("with the log down: %d %s", w.Code, w.Body)
	}
}
