package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/problem"
)

// Processes of a deployment ask for proofs together: the calls that wait at the
// same moment are one request to the private port. Strangers ask one by one, on
// the read port.

const (
	proofsPath    = "/v1/proofs"
	maxProofs     = 256 // of one request
	maxProofsBody = maxProofs * 256
	maxWaiting    = 1 << 14
	proofRequests = 4 // of one client under way at once: the next one fills meanwhile
)

// provedLeaf is a leaf by its index and its entry (64 lower-case hex digits).
type provedLeaf struct {
	LeafIndex int64  `json:"leaf_index"`
	Entry     string `json:"entry"`
}

// proved is a proof, or the error that the read port would answer.
type proved struct {
	*Inclusion
	Error string `json:"error,omitempty"`
}

func (l *Log) serveProofs(r *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxProofsBody))
	var leaves []provedLeaf
	if err != nil || json.Unmarshal(body, &leaves) != nil || len(leaves) > maxProofs {
		return nil, problem.New(problem.InvalidJSON, "the body is not a list of at most %d leaves of the form {\"leaf_index\": integer, \"entry\": string}: correct it and send it again", maxProofs)
	}
	all := make([]proved, len(leaves))
	var each sync.WaitGroup
	for i, leaf := range leaves {
		each.Go(func() {
			entry, err := parseHash(leaf.Entry)
			if err == nil {
				var in Inclusion
				in, err = l.Inclusion(r.Context(), LeafQuery{LeafIndex: &leaf.LeafIndex, Entry: &entry})
				all[i].Inclusion = &in
			}
			if err != nil {
				all[i] = proved{Error: toProblem(err).In(answer.REST)}
			}
		})
	}
	each.Wait()
	return all, nil
}

// proofsOf asks for proofs together. It returns errNotServed where each has
// to be asked for alone.
func (c *Client) proofsOf(ctx context.Context, leaves []provedLeaf) ([]proved, error) {
	body, err := json.Marshal(leaves)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.appendURL+proofsPath, bytes.NewReader(body))
	if err != nil {
		return nil, unavailable(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+c.secret)
	request.Header["Idempotency-Key"] = []string{} // as in Append
	var all []proved
	if err := c.do(request, &all); err != nil {
		return nil, err
	}
	if len(all) != len(leaves) {
		return nil, misshapen(fmt.Errorf("%d proofs of %d leaves", len(all), len(leaves)))
	}
	return all, nil
}

// together collects the leaves that callers want proven and asks for them in
// few requests. A request under way is bounded by readTimeout, whoever waits.
type together struct {
	ask func(context.Context, []provedLeaf) ([]proved, error)

	mu sync.Mutex
	// Guarded by mu: a wanted proof is waiting, or in one request, or answered.
	waiting []*wanted
	asking  int // requests under way
}

type wanted struct {
	ctx  context.Context
	leaf provedLeaf
	done chan provedOr // holds one answer, so that nobody blocks on a caller that gave up
}

type provedOr struct {
	proved
	err error
}

func (t *together) prove(ctx context.Context, entry [32]byte, leafIndex int64) (proved, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	w := &wanted{ctx, provedLeaf{leafIndex, hex.EncodeToString(entry[:])}, make(chan provedOr, 1)}
	t.mu.Lock()
	if len(t.waiting) >= maxWaiting {
		t.mu.Unlock()
		return proved{}, fmt.Errorf("%w: %d proofs are waiting", ErrUnavailable, maxWaiting)
	}
	t.waiting = append(t.waiting, w)
	if t.asking < proofRequests {
		t.asking++
		go t.run()
	}
	t.mu.Unlock()
	select {
	case got := <-w.done:
		return got.proved, got.err
	case <-ctx.Done():
		return proved{}, unavailable(ctx.Err())
	}
}

// run sends requests until nothing waits.
func (t *together) run() {
	for {
		t.mu.Lock()
		t.waiting = slices.DeleteFunc(t.waiting, func(w *wanted) bool { return w.ctx.Err() != nil })
		n := min(len(t.waiting), maxProofs)
		group := slices.Clone(t.waiting[:n])
		t.waiting = slices.Delete(t.waiting, 0, n)
		if n == 0 {
			t.asking--
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		leaves := make([]provedLeaf, n)
		for i, w := range group {
			leaves[i] = w.leaf
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(group[0].ctx), readTimeout) // one trace shows the request
		all, err := t.ask(ctx, leaves)
		cancel()
		for i, w := range group {
			if err != nil {
				w.done <- provedOr{err: err}
				continue
			}
			w.done <- provedOr{proved: all[i]}
		}
	}
}

// errNotServed means that a log-server does not serve a path to this client: it
// is of an earlier release, or has another append secret.
var errNotServed = errors.New("not served")
