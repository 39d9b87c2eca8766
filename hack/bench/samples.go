package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// samples maps a name to the measured values, usually one for each round. An example is
// "deals.64.per_second": [431, 428, 440].
type samples map[string][]float64

func (s samples) add(name string, value float64) { s[name] = append(s[name], value) }

func (s samples) median(name string) float64 {
	values := slices.Sorted(slices.Values(s[name]))
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// ratio returns the median of the quotients a/b of all rounds. If a and b have different
// numbers of rounds, it returns the quotient of their medians.
func (s samples) ratio(a, b string) float64 {
	if len(s[a]) != len(s[b]) {
		return s.median(a) / s.median(b)
	}
	quotients := samples{}
	for i, value := range s[a] {
		quotients.add("", value/s[b][i])
	}
	return quotients.median("")
}

func (s samples) max(name string) float64 {
	if len(s[name]) == 0 {
		return 0
	}
	return slices.Max(s[name])
}

type latencies []time.Duration

// milliseconds returns the p-th percentile in milliseconds. It sorts `l`.
func (l latencies) milliseconds(p int) float64 {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return float64(l[min(len(l)*p/100, len(l)-1)]) / 1e6
}

func (s samples) addLatencies(name string, l latencies) {
	s.add(name+".p50_ms", l.milliseconds(50))
	s.add(name+".p99_ms", l.milliseconds(99))
}

// results is the content of report.json.
type results struct {
	Parts   map[string]provenance `json:"parts"`
	Samples samples               `json:"samples"`
	// Statements maps the number of clients to the costliest statements of a deal.
	Statements map[string][]statement `json:"statements"`
}

type provenance struct {
	Commit   string `json:"commit"`
	Time     string `json:"time"`
	Machine  string `json:"machine"`
	Postgres string `json:"postgres"`
	Rounds   int    `json:"rounds"`
	Seconds  int    `json:"seconds"`  // duration of one measurement
	Finished int    `json:"finished"` // ended deals in the database before the run
}

func newResults() *results {
	return &results{Parts: map[string]provenance{}, Samples: samples{}, Statements: map[string][]statement{}}
}

func readResults(path string) (*results, error) {
	r := newResults()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	return r, err
}

func (r *results) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// replace overwrites earlier samples of the same names. Before a new curve, it deletes the whole
// earlier curve. Otherwise points of the earlier curve could stay among those of the new curve.
func (r *results) replace(s samples) {
	if _, found := s["curve.ended"]; found {
		maps.DeleteFunc(r.Samples, func(name string, _ []float64) bool { return strings.HasPrefix(name, "curve.") })
	}
	maps.Copy(r.Samples, s)
}
