package ops

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// listed reads testdata/metrics.txt. It returns, by binary and metric, the type, the labels, and
// "later" or "". A metric with "later" has no series until its first event.
func listed(t testing.TB) map[string]map[string][]string {
	t.Helper()
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/metrics.txt"))
	e2e.Must(t, err)
	all := map[string]map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 4 && (len(fields) != 5 || fields[4] != "later") {
			t.Fatalf("testdata/metrics.txt: %q is not name, type, binaries, labels and an optional later", line)
		}
		for _, binary := range strings.Split(fields[2], ",") {
			if all[binary] == nil {
				all[binary] = map[string][]string{}
			}
			all[binary][fields[0]] = []string{fields[1], strings.TrimPrefix(fields[3], "-"), strings.Join(fields[4:], "")}
		}
	}
	return all
}

// The binaries serve exactly the metrics of testdata/metrics.txt, with the listed types and labels.
// The counters match the calls of the test. A scrape of deal-api or the worker succeeds even while
// Postgres, Redis and log-server are stopped.
func TestMetrics(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)).Play(e2e.Body{"valuations": e2e.Body{"car": 1}}, e2e.Body{"valuations": e2e.Body{"boat": 1}})
	c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	draw := c.Create(e2e.RandomBody(2, stack.Chain().RoundAt(time.Now().Unix())-10, time.Hour, 2*time.Hour))
	draw.Play(e2e.Body{"nonce": "00"}, e2e.Body{"nonce": "01"})
	c.Want(200, "POST", draw.Path("/entropy"), draw.Tokens[0], nil)
	c.Refused(404, "NOT_FOUND", "GET", "/no/such/path", "", nil)
	c.Do("BREW", "/v1/status", "", nil)
	c.Want(200, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}}`)
	for lead := 2 * time.Second; ; lead *= 2 {
		late := c.Create(e2e.SplitBody(lead, 2*lead))
		if late.Attempt("commit", 0, e2e.Seal(t, e2e.Body{}).Act("commit")) {
			late.Certified(e2e.DefaultTimeout)
			break
		}
	}
	e2e.Eventually(t, "the worker counts the active deal", e2e.DefaultTimeout, func() bool {
		f := e2e.Scrape(t, stack, localstack.DeadlineWorker)
		return e2e.Sum(f["fairpact_deals"], "state", "COMMITTING") == 1 && e2e.Sum(f["fairpact_certificates_pending"]) == 0
	})

	e2e.Eventually(t, "the metrics say that Redis is there", e2e.DefaultTimeout, func() bool {
		return e2e.Sum(e2e.Scrape(t, stack, localstack.DealAPI)["fairpact_redis_up"]) == 1
	})

	for binary, want := range listed(t) {
		families := e2e.Scrape(t, stack, binary)
		for name, shape := range want {
			f := families[name]
			if f == nil {
				if shape[2] == "" {
					t.Errorf("%s serves no %s", binary, name)
				}
				continue
			}
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			wanted := strings.FieldsFunc(shape[1], func(r rune) bool { return r == ',' })
			slices.Sort(wanted)
			if kind := strings.ToLower(f.GetType().String()); kind != shape[0] || !slices.Equal(labels, wanted) {
				t.Errorf("%s: %s is a %s of %v, want %v", binary, name, kind, labels, shape)
			}
		}
		for name := range families {
			if strings.HasPrefix(name, "fairpact_") && want[name] == nil {
				t.Errorf("%s serves %s, which testdata/metrics.txt does not name", binary, name)
			}
		}
		if e2e.Sum(families["fairpact_build_info"], "binary", binary) != 1 || families["go_goroutines"] == nil || families["process_resident_memory_bytes"] == nil {
			t.Errorf("%s serves no build_info, or not the metrics of Go and of the process", binary)
		}
	}
	api, log, worker := e2e.Scrape(t, stack, localstack.DealAPI), e2e.Scrape(t, stack, localstack.LogServer), e2e.Scrape(t, stack, localstack.DeadlineWorker)
	for _, count := range []struct {
		what      string
		got, want float64
	}{
		{"reveals", e2e.Sum(api["fairpact_http_requests_total"], "route", "/v1/deals/{id}/reveal", "method", "POST", "status", "200"), 4},
		{"their durations", e2e.Sum(api["fairpact_http_request_duration_seconds"], "route", "/v1/deals/{id}/reveal"), 4},
		{"unknown paths", e2e.Sum(api["fairpact_http_requests_total"], "route", "other", "status", "404"), 1},
		{"unknown methods", e2e.Sum(api["fairpact_http_requests_total"], "method", "other"), 1},
		{"errors", e2e.Sum(api["fairpact_errors_total"], "code", "NOT_FOUND"), 1},
		{"tool calls", e2e.Sum(api["fairpact_mcp_tool_calls_total"], "tool", "list_algorithms", "outcome", "ok"), 1},
		{"deals ended", e2e.Sum(api["fairpact_deals_ended_total"]) + e2e.Sum(worker["fairpact_deals_ended_total"]), 3},
		{"beacon rounds", e2e.Sum(api["fairpact_beacon_fetches_total"], "outcome", "ok"), 1},
		{"leaves", e2e.Sum(log["fairpact_log_tree_size"], "of", "committed"), 3},
		{"published leaves", e2e.Sum(log["fairpact_log_tree_size"], "of", "published"), 3},
		{"proof failures", e2e.Sum(log["fairpact_log_proof_failures_total"]), 0},
		{"late steps", e2e.Sum(api["fairpact_deadline_lateness_seconds"]) + e2e.Sum(worker["fairpact_deadline_lateness_seconds"]), 1},
	} {
		if count.got != count.want {
			t.Errorf("%s: counted %v, want %v", count.what, count.got, count.want)
		}
	}

	// deal-api and the worker may both append the same certificate, so three certificates may need
	// more than three appends.
	if n := e2e.Sum(log["fairpact_log_append_duration_seconds"]); n < 3 {
		t.Errorf("%v appends were counted, want 3 or more", n)
	}

	e2e.Must(t, stack.Stop(localstack.LogServer))
	e2e.Must(t, stack.Redis().Stop())
	e2e.Must(t, stack.Postgres().Stop())
	for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
		e2e.Scrape(t, stack, name)
	}
	e2e.Eventually(t, "the metrics say that Redis is gone", e2e.DefaultTimeout, func() bool {
		return e2e.Sum(e2e.Scrape(t, stack, localstack.DealAPI)["fairpact_redis_up"]) == 0
	})
	e2e.Must(t, stack.Redis().Restart(t.Context()))
	e2e.Must(t, stack.Postgres().Restart(t.Context()))
}
