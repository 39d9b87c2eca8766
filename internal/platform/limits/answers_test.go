package limits

import (
	"testing"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

func TestBytesOfLargeAnswersAreBounded(t *testing.T) {
	p := New()
	p.answers = newAnswers(3 * step)
	first, one := begin(p, 0, "192.0.2.1")
	for _, bytes := range []int{2 * step, 2*step + 1, step + 1} { // estimates for one answer; Answer counts the largest
		if err := Answer(one.Context(), bytes); err != nil {
			t.Fatal(err)
		}
	}
	second, other := begin(p, 0, "192.0.2.2")
	defer second.End()
	if err := Answer(other.Context(), step+1); !problem.Is(err, problem.Overloaded) {
		t.Errorf("over the bound: %v, want OVERLOADED", err)
	}
	if err := Answer(other.Context(), step); err != nil {
		t.Errorf("a small answer: %v, want no error", err)
	}
	first.ReleaseSlotAndBody()
	if bytes, _ := p.answers.Held(); bytes != 2*step+1 {
		t.Errorf("%d bytes are counted before they are sent, want %d", bytes, 2*step+1)
	}
	first.End()
	first.End()
	if err := Answer(other.Context(), 3*step); err != nil {
		t.Errorf("an answer after the end of the other call: %v, want no error", err)
	}
}

func TestOneNetworkHoldsAShareOfTheAnswers(t *testing.T) {
	p := New()
	p.answers = newAnswers(networkShare * 4 * step)
	var calls []*Call
	answer := func(network string, estimates ...int) error {
		call, r := begin(p, 0, network)
		calls = append(calls, call)
		for _, bytes := range estimates {
			if err := Answer(r.Context(), bytes); err != nil {
				return err
			}
		}
		return nil
	}
	for i, want := range []bool{true, true, false} {
		if err := answer("192.0.2.1", 2*step); (err == nil) != want || err != nil && !problem.Is(err, problem.Overloaded) {
			t.Errorf("answer %d of one network: %v, want it served: %t", i, err, want)
		}
	}
	if err := answer("192.0.2.2", 5*step, 6*step); err != nil { // the first answer may exceed the network's share
		t.Errorf("the first answer of another network: %v, want no error", err)
	}
	if err := answer("192.0.2.2", step+1); !problem.Is(err, problem.Overloaded) {
		t.Errorf("its second answer: %v, want OVERLOADED", err)
	}
	calls[3].End()
	if err := answer("192.0.2.2", step+1); err != nil {
		t.Errorf("its second answer after the end of the first: %v, want no error", err)
	}
	for _, call := range calls {
		call.End()
	}
	if bytes, networks := p.answers.Held(); bytes != 0 || networks != 0 {
		t.Errorf("after the end %d bytes of %d networks are counted, want none", bytes, networks)
	}
}
