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
		t.Error("one seed has two schedules")
	}
	if reflect.DeepEqual(faults, schedule(8, length)) {
		t.Error("two seeds have one schedule")
	}
	for _, k := range kinds() {
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Kind == k.name }) {
			t.Errorf("%s never happens in %s", k.name, length)
		}
	}
	over := map[string]time.Duration{}
	for _, f := range faults {
		k := kinds()[slices.IndexFunc(kinds(), func(k kind) bool { return k.name == f.Kind })]
		if on := k.resource + f.Target; f.At < over[on] || f.At >= length {
			t.Errorf("%s begins at %s, before the one before it is over, or after the end", f, f.At)
		} else {
			over[on] = f.At + f.For
		}
	}
}
