package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// report prints counts, recoveries, and each violation with the events that show it.
func report(w io.Writer, events []*Event, found []Violation) {
	ends, faults := tally(events)
	outcomes := map[string]int{}
	for _, state := range ends {
		outcomes[state]++
	}
	fmt.Fprintf(w, "\n%d requests, %d deals by outcome:%s\n\n", len(events), len(ends), counted(outcomes))
	fmt.Fprintf(w, "%-16s %6s %14s %20s\n", "fault", "times", "recovery p95", "undisturbed p95")
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

// tally returns how each deal ended, and the faults by kind.
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

// p95 is the 95th percentile and the number of values, "-" where there is none.
func p95(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("%s of %d", all[(len(all)*95+99)/100-1].Round(10*time.Millisecond), len(all))
}

func counted(counts map[string]int) (text string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text += fmt.Sprintf(" %s %d", name, counts[name])
	}
	return text
}

// excerpt is an event on one line.
func excerpt(e *Event) string {
	took := "no answer"
	if e.answered() {
		took = time.Duration(e.Return - e.Call).Round(time.Millisecond).String()
	}
	short := *e
	short.Plan = nil
	body, _ := json.Marshal(short.Body) // it was JSON
	if len(body) > 400 {
		body = append(body[:400], "…"...)
	}
	return fmt.Sprintf("%s %s party %d key %.8s via %s, %s: %d %s %s %.200s",
		time.Unix(0, e.Call).Format("15:04:05.000"), e.Op, e.Party, e.Key, e.Via, took, e.Status, e.Code, body, e.Note)
}
