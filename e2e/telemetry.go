package e2e

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// Scrape reads a process's metrics as Prometheus does, and takes at most 5 s.
func Scrape(t testing.TB, stack *localstack.Stack, name string) map[string]*dto.MetricFamily {
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

// Sum adds up the values of a metric's series that have all given labels. `pairs` lists the name and
// the value of each label, such as "state", "idle". The value of a histogram is its number of
// observations.
func Sum(f *dto.MetricFamily, pairs ...string) (total float64) {
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

// Collector receives spans as an OTLP/HTTP collector does.
type Collector struct {
	t    testing.TB
	http *httptest.Server

	mu    sync.Mutex
	raw   bytes.Buffer
	spans []Span
}

// Span is a received span, the name of the service that sent it, and its string attributes by name.
type Span struct {
	*tracepb.Span
	Service string
	Attr    map[string]string
}

func (s Span) Trace() string { return hex.EncodeToString(s.TraceId) }

func NewCollector(t testing.TB) *Collector {
	c := &Collector{t: t}
	c.http = httptest.NewServer(c)
	t.Cleanup(c.http.Close)
	return c
}

// Environment returns settings that make a process send its spans to c every 100 ms.
func (c *Collector) Environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.http.URL, "OTEL_BSP_SCHEDULE_DELAY=100"}
}

func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var sent collected.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(text, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("the collector received %d bytes at %s, want spans at /v1/traces: %v", len(text), r.URL.Path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(text)
	for _, resource := range sent.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				attr := map[string]string{}
				for _, a := range s.Attributes {
					attr[a.Key] = a.Value.GetStringValue()
				}
				c.spans = append(c.spans, Span{s, service, attr})
			}
		}
	}
}

// Raw returns all received bytes.
func (c *Collector) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.raw.Bytes())
}

func (c *Collector) Find(fits func(Span) bool) (found []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if fits(s) {
			found = append(found, s)
		}
	}
	return found
}

// Whole waits for a complete trace and returns the root span. The trace must have a span for which
// `fits` returns true, and every span that `want` lists. An entry of `want` is "service: name of the
// span", or "service: Postgres" for a database call.
func (c *Collector) Whole(what string, fits func(Span) bool, want ...string) (root Span) {
	c.t.Helper()
	var shown []string
	Eventually(c.t, what, DefaultTimeout, func() bool {
		for _, one := range c.Find(fits) {
			shown = shown[:0]
			ids := map[string]bool{}
			members := c.Find(func(s Span) bool { return s.Trace() == one.Trace() })
			for _, s := range members {
				ids[string(s.SpanId)] = true
				name := s.Service + ": " + s.Name
				if s.Attr["db.system.name"] == "postgresql" {
					name = s.Service + ": Postgres"
				}
				shown = append(shown, name)
			}
			roots := slices.DeleteFunc(members, func(s Span) bool { return ids[string(s.ParentSpanId)] })
			if len(roots) == 1 && len(roots[0].ParentSpanId) == 0 && !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(shown, w) }) {
				root = roots[0]
				return true
			}
		}
		return false
	})
	c.t.Logf("%s: %q", what, shown)
	return root
}

// IssuedWithin reports whether the request with a deal's last reveal also signed the certificate and
// appended it to the log. The request's span links to the client's trace, whose ID is `caller`.
// IssuedWithin waits for this span. A span is sent after its children, so the spans of signing and
// appending have arrived by then.
func (c *Collector) IssuedWithin(deal, caller string) bool {
	c.t.Helper()
	var reveal []Span
	Eventually(c.t, "the span of the last reveal arrives", DefaultTimeout, func() bool {
		reveal = c.Find(func(s Span) bool {
			return s.Attr["fairpact.deal_id"] == deal && s.Service == localstack.DealAPI && len(s.Links) == 1 && hex.EncodeToString(s.Links[0].TraceId) == caller
		})
		return len(reveal) > 0
	})
	succeeded := func(name string) bool {
		return len(c.Find(func(s Span) bool {
			return s.Trace() == reveal[0].Trace() && s.Service == localstack.DealAPI && s.Name == name && s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR
		})) > 0
	}
	return succeeded("sign") && succeeded("POST /v1/append")
}

// Chart is the directory of the Helm chart.
var Chart = Repo("charts/fairpact") + "/"

// Read returns a file of the chart.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Chart, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// DashboardQueries returns the queries of all panels of the chart's dashboard.
func DashboardQueries(t testing.TB) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	Answer{Body: []byte(Read(t, "files/dashboard.json"))}.Into(t, &board)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return all
}
