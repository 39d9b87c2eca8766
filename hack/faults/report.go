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
	faults, ends, recoveries := map[string]int{}, map[string]string{}, map[string][]time.Duration{}
	for _, e := range events {
		switch v := e.state(); {
		case e.Op == opFault:
			faults[e.Via]++
		case e.Op == opRecovery:
			recoveries[e.Via] = append(recoveries[e.Via], time.Duration(e.Return-e.Call))
		case e.Op == opView && e.Final && e.acknowledged():
			ends[e.Deal] = v.State
		}
	}
	outcomes := map[string]int{}
	for _, state := range ends {
		outcomes[state]++
	}
	fmt.Fprintf(w, "\n%d requests, %d deals by outcome:%s\n\n", len(events), len(ends), counted(outcomes))
	fmt.Fprintf(w, "%-32s %6s %14s\n", "fault", "times", "recovery p95")
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		took := "-"
		if all := recoveries[name]; len(all) > 0 {
			slices.Sort(all)
			took = all[(len(all)*95+99)/100-1].Round(10 * time.Millisecond).String()
		}
		fmt.Fprintf(w, "%-32s %6d %14s\n", name, faults[name], took)
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
