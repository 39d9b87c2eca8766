package main

import (
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}} {
		if got := (samples{"x": c.values}).median("x"); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatioIsTakenWithinEachRound(t *testing.T) {
	s := samples{"a": {10, 100, 40}, "b": {100, 1000, 100}, "c": {50}}
	if got := s.ratio("a", "b"); got != 0.1 {
		t.Errorf("the ratio of paired rounds is %v, want 0.1", got)
	}
	if got := s.ratio("a", "c"); got != 0.8 {
		t.Errorf("the ratio of unpaired medians is %v, want 0.8", got)
	}
}

func TestPercentiles(t *testing.T) {
	var l latencies
	for i := range 100 {
		l = append(l, time.Duration(100-i)*time.Millisecond)
	}
	if p50, p99 := l.milliseconds(50), l.milliseconds(99); p50 != 51 || p99 != 100 {
		t.Errorf("p50 and p99 of 1 to 100 ms are %v and %v, want 51 and 100", p50, p99)
	}
}

func TestRemeasuredPartReplacesTheEarlierOne(t *testing.T) {
	r := newResults()
	r.replace(samples{"insert.1.ms": {1}, "curve.ended": {10}, "curve.10.deals.per_second": {7}})
	r.replace(samples{"insert.1.ms": {2, 3}})
	if len(r.Samples["insert.1.ms"]) != 2 || len(r.Samples["curve.10.deals.per_second"]) != 1 {
		t.Errorf("after new samples without a curve: %v, want two of insert.1.ms and the earlier curve", r.Samples)
	}
	r.replace(samples{"curve.ended": {20}})
	if len(r.Samples["curve.10.deals.per_second"]) != 0 {
		t.Errorf("after samples of a new curve: %v, want no point of the earlier curve", r.Samples)
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 0.01021: "0.0102", 0.25: "0.250", 7.345: "7.34", 48.44: "48.4", 134.2: "134", 999.4: "999", 1466.3: "1,466", 1234567: "1,234,567",
	} {
		if got := number(value); got != want {
			t.Errorf("number(%v) is %s, want %s", value, got, want)
		}
	}
}

func TestStatementsAreShownWithoutComments(t *testing.T) {
	query := "-- All have committed; one UPDATE wins.\nUPDATE deals -- its phase\n  SET phase = 'x' || $1\n"
	if got, want := shorten(oneLine(query)), "`UPDATE deals SET phase = 'x' \\|\\| $1`"; got != want {
		t.Errorf("shorten(oneLine(%q)) is\n%s, want\n%s", query, got, want)
	}
}
