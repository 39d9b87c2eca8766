package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

func report(w io.Writer, events []*Event, found []Violation) {
	ends, faults := tally(events)
	outcomes := map[string]int{}
	for _, state := range ends {
		outcomes[state]++
	}
	fmt.Fprintf(w, "\n%d requests, %d deals by outcome:%s\n\n", len(events), len(ends), counted(outcomes))
	fmt.Fprintf(w, "%-16s %6s %14s %20s\n", "fault", "count", "recovery p95", "undisturbed p95")
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		var all, undisturbed []time.Duration
		for _, f := range faults[kind] {
			if f.Recovered == 0 {
				continue
			}
			took := time.Duration(f.Recovered - f.Return)
			all = append(all, took)
			if !slices.ContainsFunc(events, func(e *Event) bool {
				return e.Op == opFault && e != f && e.Call < f.Recovered && e.Return > f.Return
			}) {
				undisturbed = append(undisturbed, took)
			}
		}
		fmt.Fprintf(w, "%-16s %6d %14s %20s\n", kind, len(faults[kind]), p95(all), p95(undisturbed))
	}
	for i, v := range found {
		if i == 20 {
			fmt.Fprintf(w, "\nand %d more violations\n", len(found)-i)
			break
		}
		fmt.Fprintf(w, "\nVIOLATION %s\n  deal %s: %s\n", v.Rule, v.Deal, v.Text)
		for _, e := range v.Events {
			fmt.Fprintf(w, "  %s\n", excerpt(e))
		}
	}
	fmt.Fprintf(w, "\n%d violations\n", len(found))
}

// tally returns each deal's state after the last fault, by deal id, and the faults, by kind.
func tally(events []*Event) (ends map[string]string, faults map[string][]*Event) {
	ends, faults = map[string]string{}, map[string][]*Event{}
	for _, e := range events {
		switch {
		case e.Op == opFault:
			faults[e.Via] = append(faults[e.Via], e)
		case e.Op == opView && e.Final && e.acknowledged():
			ends[e.Deal] = e.state().State
		}
	}
	return ends, faults
}

func p95(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("%s (n=%d)", all[(len(all)*95+99)/100-1].Round(10*time.Millisecond), len(all))
}

func counted(counts map[string]int) (text string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text += fmt.Sprintf(" %s %d", name, counts[name])
	}
	return text
}

func excerpt(e *Event) string {
	took := "no answer"
	if e.answered() {
		took = time.Duration(e.Return - e.Call).Round(time.Millisecond).String()
	}
	short := *e
	short.Plan = nil
	body, _ := json.Marshal(short.Body) // cannot fail: Body is valid JSON
	if len(body) > 400 {
		body = append(body[:400], "…"...)
	}
	return fmt.Sprintf("%s %s party %d key %.8s via %s, %s: %d %s %s %.200s",
		time.Unix(0, e.Call).Format("15:04:05.000"), e.Op, e.Party, e.Key, e.Via, took, e.Status, e.Code, body, e.Note)
}

type summary struct {
	commit     string
	length     time.Duration
	rows       []string
	deals      int
	faults     map[string]int
	violations int
}

func (s *summary) add(seed uint64, events []*Event, found []Violation) {
	ends, faults := tally(events)
	outcomes, n := map[string]int{}, 0
	for _, state := range ends {
		outcomes[state]++
	}
	for kind, all := range faults {
		s.faults[kind] += len(all)
		n += len(all)
	}
	s.rows = append(s.rows, fmt.Sprintf("| %d | %d | %d |%s | %d | %d |", seed, len(events), len(ends), counted(outcomes), n, len(found)))
	s.deals += len(ends)
	s.violations += len(found)
}

func (s *summary) write(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Report of the fault campaigns\n\n`make faults-report` wrote this on %s at commit %s: %d campaigns of %s each, one for each seed, with %d deals and **%d violations**.\n\n",
		time.Now().UTC().Format(time.DateOnly), s.commit, len(s.rows), s.length, s.deals, s.violations)
	b.WriteString("| seed | requests | deals | by outcome | faults | violations |\n|---|---|---|---|---|---|\n" + strings.Join(s.rows, "\n") + "\n\n")
	b.WriteString("| fault | count |\n|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", kind, s.faults[kind])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
