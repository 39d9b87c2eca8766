package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/replica"
	"github.com/fairpact/fairpact/internal/verification"
)

// processes is the check that those which run accept each other's keys, and
// says how many sign with which.
func processes(running []replica.Process, err error) verification.Check {
	check := verification.Check{Name: "processes", OK: err == nil}
	if err != nil {
		check.Detail = err.Error()
		return check
	}
	signing, kinds := map[string]int{}, map[string]int{}
	for _, p := range running {
		signing[p.SignsWith]++
		kinds[p.Kind]++
		for _, other := range running {
			if p.Rejects(other) && check.OK {
				check.OK, check.Detail = false, fmt.Sprintf("%s %s does not accept the key that %s %s signs with, %s", p.Kind, p.Name, other.Kind, other.Name, other.SignsWith)
			}
		}
	}
	if !check.OK {
		return check
	}
	check.Detail = fmt.Sprintf("%d run (%s) and accept each other's keys; %s", len(running), counted(kinds, "%d %s"), counted(signing, "%d sign with %s"))
	if len(running) == 0 {
		check.OK, check.Detail = false, "none has announced itself in this database within 15 seconds: it is another database, or all are of a version that does not"
	}
	return check
}

func counted(numbers map[string]int, format string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		all = append(all, fmt.Sprintf(format, numbers[name], name))
	}
	return strings.Join(all, ", ")
}
