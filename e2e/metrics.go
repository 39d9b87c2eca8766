package e2e

import (
	"net/http"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fairpact/fairpact/internal/localstack"
)

// Scrape reads a process's metrics as Prometheus does, in little time whatever
// is down.
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

// Sum adds up the series of a metric whose labels hold the pairs; of a
// histogram, its observations.
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
