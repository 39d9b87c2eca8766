package timelimits

import (
	"slices"
	"testing"
	"time"
)

// A limit that is not shorter than the one around it never takes effect.
func TestOrder(t *testing.T) {
	table := []time.Duration{Write, Call, Body, Append, Step, Statement, Issue, Sign}
	if !slices.IsSortedFunc(table, func(a, b time.Duration) int { return int(b - a) }) {
		t.Errorf("the limits are %v, want the longest first", table)
	}
	for what, left := range map[string]time.Duration{
		"the answer after Call":         Write - Call,
		"the rest of a call after Body": Call - Body,
		"the rest of a call after Step": Call - Step,
		"the append within Issue":       Issue - Sign,
		"the other work of a step":      Step - Issue,
		"an append beyond its caller":   Append - Issue,
	} {
		if left <= 0 {
			t.Errorf("%s has %s left, want more than 0", what, left)
		}
	}
}
