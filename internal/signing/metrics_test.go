package signing

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Every ending is counted from zero from the start on: an alert on the increase
// of a counter that begins with 1 would miss the first.
func TestEndingsAreCountedFromZero(t *testing.T) {
	if _, err := newSigner(t.Context(), &fake{newP256(t), honest}, home{scheme: "fresh"}, limits{tries: 1, concurrency: 1, trip: 1}); err != nil {
		t.Fatal(err)
	}
	found := make(chan prometheus.Metric, 1000)
	requests.Collect(found)
	close(found)
	counts := map[string]float64{}
	for metric := range found {
		var m dto.Metric
		if err := metric.Write(&m); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["provider"] == "fresh" {
			counts[labels["outcome"]] = m.GetCounter().GetValue()
		}
	}
	for _, err := range []error{nil, ErrProvider, context.Canceled, context.DeadlineExceeded, ErrUnavailable, errClosed, errors.New("no permission")} {
		if n, there := counts[outcome(err)]; !there || n != 0 {
			t.Errorf("%v: outcome %q stands at %v, there: %v", err, outcome(err), n, there)
		}
	}
}
