package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/platform/database"
)

// Each change of the readiness is logged once, and the metric has one series with the reason.
func TestReadinessIsShown(t *testing.T) { // not parallel: the metric belongs to the process
	var lines bytes.Buffer
	readyGauge.Reset() // other tests have stopped a process
	r := readiness{logger: slog.New(slog.NewTextHandler(&lines, nil))}
	gone := fmt.Errorf("%w: refused", database.ErrNoAnswer)
	old := fmt.Errorf("%w: public is at version 1", database.ErrSchema)
	secret := Because("secret", errors.New("a line is missing"))
	for i, step := range []struct {
		found  error
		ready  bool
		reason string
		logged string
	}{
		{gone, false, "database", "level=INFO"},
		{nil, true, "", "level=INFO"},
		{gone, true, "", ""},
		{old, false, "schema", "version 1"},
		{old, false, "schema", ""},
		{fmt.Errorf("worker: %w", secret), false, "secret", "a line is missing"},
		{errors.New("new"), false, "other", "level=WARN"},
		{nil, true, "", "msg=ready"},
	} {
		lines.Reset()
		ready, err := r.check(t.Context(), func(context.Context) error { return step.found })
		if ready != step.ready || !errors.Is(err, step.found) {
			t.Errorf("step %d: ready %v, %v; want %v, %v", i, ready, err, step.ready, step.found)
		}
		if got, want := shown(t), fmt.Sprintf("%s %v", step.reason, step.ready); !slices.Equal(got, []string{want}) {
			t.Errorf("step %d: the metric shows %q, want %q", i, got, want)
		}
		if logged := lines.String(); !strings.Contains(logged, step.logged) || (logged == "") != (step.logged == "") {
			t.Errorf("step %d: logged %q, want %q", i, logged, step.logged)
		}
	}
	// A check whose caller gave up, one that a later check has overtaken, and one after the stop change nothing.
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = r.check(canceled, func(ctx context.Context) error { return ctx.Err() })
	_, _ = r.check(t.Context(), func(ctx context.Context) error {
		_, _ = r.check(ctx, func(context.Context) error { return nil })
		return old
	})
	if got := shown(t); !slices.Equal(got, []string{" true"}) {
		t.Errorf("the metric shows %q, want ready", got)
	}
	r.stop()
	_, _ = r.check(t.Context(), func(context.Context) error { return nil })
	if got := shown(t); !slices.Equal(got, []string{"stopping false"}) {
		t.Errorf("the metric shows %q, want stopping", got)
	}
}

func shown(t *testing.T) (all []string) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() != "fairpact_ready" {
				continue
			}
			for _, label := range m.GetLabel() {
				if label.GetName() == "reason" {
					all = append(all, fmt.Sprintf("%s %v", label.GetValue(), m.GetGauge().GetValue() == 1))
				}
			}
		}
	}
	return all
}
