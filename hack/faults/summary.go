package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// summary is what the campaigns of several seeds came to.
type summary struct {
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

// write writes the report as Markdown.
func (s *summary) write(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Report of a campaign\n\n`make faults-report` wrote this on %s: %d seeds of %s each, %d deals, **%d violations**.\n\n",
		time.Now().UTC().Format(time.DateOnly), len(s.rows), s.length, s.deals, s.violations)
	b.WriteString("| seed | requests | deals | by outcome | faults | violations |\n|---|---|---|---|---|---|\n" + strings.Join(s.rows, "\n") + "\n\n")
	b.WriteString("| fault | times |\n|---|---|\n")
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", kind, s.faults[kind])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
