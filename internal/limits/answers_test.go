package limits

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/fairpact/fairpact/internal/problem"
)

// from begins a call of a client network.
func from(b *Process, network string) (*Call, context.Context) {
	call, r := b.Begin(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), network, false)
	return call, r.Context()
}

// What is being sent is bounded, whoever reads it slowly; the end of a call gives
// its bytes back, and a small answer takes none.
func TestBytesOfLargeAnswersAreBounded(t *testing.T) {
	b := New()
	b.answers = newAnswers(3 * step)
	first, one := from(b, "192.0.2.1")
	for _, bytes := range []int{2 * step, 2*step + 1, step + 1} { // an estimate, and then what it is
		if err := Answer(one, bytes); err != nil {
			t.Fatal(err)
		}
	}
	second, other := from(b, "192.0.2.2")
	defer second.End()
	if err := Answer(other, step+1); !problem.Is(err, problem.Overloaded) {
		t.Errorf("more than the bound: %v, want OVERLOADED", err)
	}
	if err := Answer(other, step); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	first.Written()
	if b.answers.sent != 2*step+1 {
		t.Errorf("%d bytes are counted before they are sent, want %d", b.answers.sent, 2*step+1)
	}
	first.End()
	first.End()
	if err := Answer(other, 3*step); err != nil {
		t.Errorf("after the end of the other call: %v", err)
	}
}

// A network that reads its answers slowly leaves room for the others.
func TestOneNetworkHoldsAShareOfTheAnswers(t *testing.T) {
	b := New()
	b.answers = newAnswers(networkShare * 4 * step)
	var greedy []*Call
	for {
		call, ctx := from(b, "192.0.2.1")
		greedy = append(greedy, call)
		err := Answer(ctx, 2*step)
		if problem.Is(err, problem.Overloaded) {
			break
		}
		if err != nil || len(greedy) > 2 {
			t.Fatalf("answer %d of one network: %v, want OVERLOADED from the third on", len(greedy), err)
		}
	}
	large, ctx := from(b, "192.0.2.2")
	for _, bytes := range []int{5 * step, 6 * step} { // more than a share, and then a better estimate
		if err := Answer(ctx, bytes); err != nil {
			t.Errorf("the one answer of another network, of %d bytes: %v", bytes, err)
		}
	}
	next, ctx := from(b, "192.0.2.2")
	if err := Answer(ctx, step+1); !problem.Is(err, problem.Overloaded) {
		t.Errorf("a second one beside it: %v, want OVERLOADED", err)
	}
	large.End()
	if err := Answer(ctx, step+1); err != nil {
		t.Errorf("a second one after it: %v", err)
	}
	next.End()
	for _, call := range greedy {
		call.End()
	}
	if b.answers.sent != 0 || len(b.answers.networks) != 0 {
		t.Errorf("after the end %d bytes of %d networks are counted", b.answers.sent, len(b.answers.networks))
	}
}
