package e2e

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fairpact/fairpact/internal/localstack"
)

// scrape reads a process's metrics as Prometheus does, in little time whatever
// is down.
func scrape(t testing.TB, stack *localstack.Stack, name string) map[string]*dto.MetricFamily {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(stack.AdminURL(name) + "/metrics")
	if err != nil {
		t.Fatalf("scrape %s: %v", name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape %s: %s", name, resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("scrape %s: %v", name, err)
	}
	return families
}

// sum adds up the series of a metric whose labels hold the pairs; of a
// histogram, its observations.
func sum(f *dto.MetricFamily, pairs ...string) (total float64) {
	for _, m := range f.GetMetric() {
		held := map[string]string{}
		for _, l := range m.GetLabel() {
			held[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i+1 < len(pairs); i += 2 {
			fits = fits && held[pairs[i]] == pairs[i+1]
		}
		if fits {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// listed is testdata/metrics.txt: what each binary serves, by name.
func listed(t testing.TB) map[string]map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 4 && (len(fields) != 5 || fields[4] != "later") {
			t.Fatalf("testdata/metrics.txt: %q has not name, type, binaries and labels", line)
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

// The metrics are those of the list, with its types and labels, and count what
// was done; a scrape answers while all that it could ask is down.
func TestMetrics(t *testing.T) {
	t.Parallel()
	stack := own(t, nil)
	c := newClient(t, stack.BaseURL())
	c.create(splitBody(time.Hour, 2*time.Hour)).play(body{"valuations": body{"car": 1}}, body{"valuations": body{"boat": 1}})
	c.create(splitBody(time.Hour, 2*time.Hour))
	draw := c.create(randomBody(2, stack.Chain().RoundAt(time.Now().Unix())-10, time.Hour, 2*time.Hour))
	draw.play(body{"nonce": "00"}, body{"nonce": "01"})
	c.want(200, "POST", draw.path("/entropy"), draw.Tokens[0], nil)
	c.refused(404, "NOT_FOUND", "GET", "/no/such/path", "", nil)
	c.do("BREW", "/v1/status", "", nil)
	c.want(200, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}}`)
	for lead := 2 * time.Second; ; lead *= 2 {
		late := c.create(splitBody(lead, 2*lead))
		if late.attempt("commit", 0, seal(t, body{}).act("commit")) {
			late.certified(patience)
			break
		}
	}
	eventually(t, "the worker counts the deal that runs", patience, func() bool {
		f := scrape(t, stack, localstack.DeadlineWorker)
		return sum(f["fairpact_deals"], "state", "COMMITTING") == 1 && sum(f["fairpact_certificates_pending"]) == 0
	})

	eventually(t, "the metrics say that Redis is there", patience, func() bool {
		return sum(scrape(t, stack, localstack.DealAPI)["fairpact_redis_up"]) == 1
	})

	for binary, want := range listed(t) {
		families := scrape(t, stack, binary)
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
		if sum(families["fairpact_build_info"], "binary", binary) != 1 || families["go_goroutines"] == nil || families["process_resident_memory_bytes"] == nil {
			t.Errorf("%s: no build_info, or nothing of Go and the process", binary)
		}
	}
	api, log, worker := scrape(t, stack, localstack.DealAPI), scrape(t, stack, localstack.LogServer), scrape(t, stack, localstack.DeadlineWorker)
	for _, count := range []struct {
		what      string
		got, want float64
	}{
		{"reveals", sum(api["fairpact_http_requests_total"], "route", "/v1/deals/{id}/reveal", "method", "POST", "status", "200"), 4},
		{"their durations", sum(api["fairpact_http_request_duration_seconds"], "route", "/v1/deals/{id}/reveal"), 4},
		{"unknown paths", sum(api["fairpact_http_requests_total"], "route", "other", "status", "404"), 1},
		{"unknown methods", sum(api["fairpact_http_requests_total"], "method", "other"), 1},
		{"errors", sum(api["fairpact_errors_total"], "code", "NOT_FOUND"), 1},
		{"tool calls", sum(api["fairpact_mcp_tool_calls_total"], "tool", "list_algorithms", "outcome", "ok"), 1},
		{"deals ended", sum(api["fairpact_deals_ended_total"]) + sum(worker["fairpact_deals_ended_total"]), 3},
		{"beacon rounds", sum(api["fairpact_beacon_fetches_total"], "outcome", "ok"), 1},
		{"leaves", sum(log["fairpact_log_tree_size"], "of", "committed"), 3},
		{"published leaves", sum(log["fairpact_log_tree_size"], "of", "published"), 3},
		{"appends", sum(log["fairpact_log_append_duration_seconds"]), 3},
		{"proof failures", sum(log["fairpact_log_proof_failures_total"]), 0},
		{"late steps", sum(api["fairpact_deadline_lateness_seconds"]) + sum(worker["fairpact_deadline_lateness_seconds"]), 1},
	} {
		if count.got != count.want {
			t.Errorf("%s: %v, want %v", count.what, count.got, count.want)
		}
	}

	if err := stack.Stop(localstack.LogServer); err != nil {
		t.Fatal(err)
	}
	if err := stack.Redis().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := stack.Postgres().Stop(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
		began := time.Now()
		scrape(t, stack, name)
		t.Logf("%s answers a scrape in %s with everything down", name, time.Since(began))
	}
	eventually(t, "the metrics say that Redis is gone", patience, func() bool {
		return sum(scrape(t, stack, localstack.DealAPI)["fairpact_redis_up"]) == 0
	})
	if err := stack.Redis().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stack.Postgres().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}
