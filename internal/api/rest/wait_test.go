package rest

import (
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestWaitIsParsed(t *testing.T) {
	a := &API{Config: Config{Services: ops.Services{Callers: &caller.Policy{}}}}
	tag := strings.Repeat("aB-_", 6)
	for _, row := range []struct {
		query string
		wait  time.Duration
		state deal.State
		same  bool // whether ?since= is an ETag
		bad   bool
	}{
		{"", 0, "", false, false},
		{"since=COMMITTING", 0, "", false, false}, // without ?wait=, ?since= is ignored
		{"wait=1", time.Second, "", false, false},
		{"wait=45", waiting.Longest, "", false, false},
		{"wait=45&since=", waiting.Longest, "", false, false},
		{"wait=5&since=COMMITTING", 5 * time.Second, deal.Committing, false, false},
		{"wait=5&since=" + tag, 5 * time.Second, "", true, false},
		{"wait=5&since=" + url.QueryEscape(`"`+tag+`"`), 5 * time.Second, "", true, false},
		{"wait=5&since=" + url.QueryEscape(`W/"`+tag+`-gzip"`), 5 * time.Second, "", true, false},
		{"wait=5&since=committing", 0, "", false, true},
		{"wait=5&since=" + tag + "aaaa", 0, "", false, true},
		{"wait=46", 0, "", false, true}, {"wait=0", 0, "", false, true}, {"wait=-1", 0, "", false, true}, {"wait=", 0, "", false, true},
		{"wait=1.5", 0, "", false, true}, {"wait=01", 0, "", false, true}, {"wait=x", 0, "", false, true}, {"wait=99999999999999999999", 0, "", false, true},
	} {
		w, err := a.wait(httptest.NewRequest("GET", "/v1/deals/d_1?"+row.query, nil))
		if problem.Is(err, problem.InvalidRequest) != row.bad || (err != nil) != row.bad {
			t.Errorf("?%s: error %v, want INVALID_REQUEST: %t", row.query, err, row.bad)
		}
		if err == nil && (w.For != row.wait || w.State != row.state || (w.Same != nil) != row.same) {
			t.Errorf("?%s: got %s, state %q, ETag %t, want %s, %q, %t", row.query, w.For, w.State, w.Same != nil, row.wait, row.state, row.same)
		}
	}
}

func TestWaitLengthensTheCall(t *testing.T) {
	for target, want := range map[string]time.Duration{
		"GET /v1/deals/d_1?wait=7": 7 * time.Second, "HEAD /v1/deals/d_1?wait=7": 7 * time.Second, "GET /v1/deals/d_1": 0, "GET /v1/deals/d_1?wait=9999999": waiting.Longest,
		"GET /v1/deals/d_1?wait=-7": 0, "POST /v1/deals/d_1/commit?wait=7": 0, "POST /mcp": waiting.Longest,
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := waitOf(httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

func TestErrorTextsNameTheLongestWait(t *testing.T) {
	seconds := strconv.Itoa(int(waiting.Longest / time.Second))
	if rest, mcp := problem.WaitLongest.REST(), problem.WaitLongest.MCP(); rest != "?wait="+seconds || mcp != "wait_seconds "+seconds {
		t.Errorf("the longest wait is %q in REST and %q in MCP, want %s s in both", rest, mcp, seconds)
	}
}
