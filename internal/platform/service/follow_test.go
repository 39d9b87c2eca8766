package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// A file that is not usable is logged once and shown until it is repaired, also by its former content.
func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	var used []string
	f := File{Setting: "FAIRPACT_TEST_FILE", Path: path, Use: func(_ context.Context, content []byte) (bool, error) {
		if text := string(content); text == "bad" {
			return false, errors.New("bad content")
		} else if len(used) == 0 || used[len(used)-1] != text {
			used = append(used, text)
			return true, nil
		}
		return false, nil
	}}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for i, x := range []struct {
		content string // "": the file is missing
		changed bool
		errors  int // the lines logged so far
		unused  float64
	}{
		{"one", true, 0, 0}, {"one", false, 0, 0}, {"bad", false, 1, 1}, {"bad", false, 1, 1}, {"one", false, 1, 0},
		{"bad", false, 2, 1}, {"two", true, 2, 0}, {"", false, 3, 1}, {"two", false, 3, 0},
	} {
		var err error
		if x.content == "" {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, []byte(x.content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		changed := f.read(t.Context(), logger)
		var metric dto.Metric
		if err := unused.WithLabelValues(f.Setting).Write(&metric); err != nil {
			t.Fatal(err)
		}
		lines, gauge := strings.Count(log.String(), "level=ERROR"), metric.GetGauge().GetValue()
		if changed != x.changed || lines != x.errors || gauge != x.unused {
			t.Errorf("step %d, %q: changed %v with %d errors and the metric at %v, want %+v", i, x.content, changed, lines, gauge, x)
		}
	}
	if got := strings.Join(used, " "); got != "one two" {
		t.Errorf("used %s", got)
	}
}
