package main

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	const length = 10 * time.Minute
	faults := schedule(7, length)
	if !reflect.DeepEqual(faults, schedule(7, length)) {
		t.Error("schedule(7, length) returns two different schedules, want the same")
	}
	if reflect.DeepEqual(faults, schedule(8, length)) {
		t.Error("the seeds 7 and 8 have the same schedule, want different ones")
	}
	for _, k := range kinds() {
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Kind == k.name }) {
			t.Errorf("the fault %s does not happen in %s, want at least once", k.name, length)
		}
	}
	over := map[string]time.Duration{}
	for _, f := range faults {
		k := kinds()[slices.IndexFunc(kinds(), func(k kind) bool { return k.name == f.Kind })]
		if on := k.resource + f.Target; f.At < over[on] || f.At >= length {
			t.Errorf("%s begins at %s, want from %s, when the previous fault of its target ends, to %s", f, f.At, over[on], length)
		} else {
			over[on] = f.At + f.For
		}
	}
}
