package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestRepeatsLogOneLineAMinuteForEachCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		r := NewRepeats(slog.New(slog.NewJSONHandler(&text, nil)))
		overloaded := problem.New(problem.Overloaded, "%d are sent", 7)
		for range 1000 {
			r.Failure(t.Context(), slog.LevelWarn, "requests fail", overloaded, "")
			r.Log(t.Context(), slog.LevelWarn, "requests fail", "429 /v1/deals", "")
		}
		time.Sleep(logInterval)
		r.Failure(t.Context(), slog.LevelWarn, "requests fail", overloaded.WithCause(errors.New("the cause")), "")
		want := []string{"OVERLOADED 1 OVERLOADED: 7 are sent", "429 /v1/deals 1 ", "OVERLOADED 1000 the cause"}
		var got []string
		for line := range strings.Lines(text.String()) {
			var logged struct {
				Cause, Err string
				Times      int
			}
			if err := json.Unmarshal([]byte(line), &logged); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %d %s", logged.Cause, logged.Times, logged.Err))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

func TestRepeatsBoundCausesAndShowEachInternalFault(t *testing.T) {
	var text bytes.Buffer
	r := NewRepeats(slog.New(slog.NewJSONHandler(&text, nil)))
	for i := range 1000 {
		r.Failure(t.Context(), slog.LevelWarn, "requests fail", fmt.Errorf("cause %d: detail", i), fmt.Sprint("deal ", i))
	}
	if n := strings.Count(text.String(), "\n"); n != maxCauses+1 || len(r.causes) != n {
		t.Errorf("%d lines and %d causes, want %d", n, len(r.causes), maxCauses+1)
	}
	text.Reset()
	for i := range 3 {
		r.Failure(t.Context(), slog.LevelError, "request failed", problem.From(fmt.Errorf("fault %d", i)), "")
	}
	if n := strings.Count(text.String(), `"err":"fault `); n != 3 {
		t.Errorf("%d INTERNAL errors are logged, want 3: %s", n, text.String())
	}
}
