package translog

import (
	"encoding/json"
	"io"
	"net/http"
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
