package translog

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/fairpact/fairpact/internal/platform/httpcache"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

const textPlain = "text/plain; charset=utf-8"

// Status describes the checkpoints that the log publishes.
type Status struct {
	Origin         *string       `json:"origin"` // null if the log publishes no checkpoints
	Keys           []VerifierKey `json:"keys"`
	CheckpointSize *int64        `json:"checkpoint_size"` // the size of the newest checkpoint; null if there is none
	CertifiedSize  *int64        `json:"certified_size"`  // the largest size that met the witnesses' quorum; null if none did
	Quorum         bool          `json:"quorum"`          // whether the witness policy demands cosignatures
}

// VerifierKey is a key that signs checkpoints now, signed them before, or will sign them.
type VerifierKey struct {
	VKey  string `json:"vkey"`
	State string `json:"state"` // next, current or retired
}

func (l *Log) serveStatus(r *http.Request) (any, error) {
	c := l.checkpoints
	if c == nil {
		return Status{Keys: []VerifierKey{}}, nil
	}
	s := Status{Origin: &c.Origin, Keys: c.verifierKeys(), Quorum: c.Policy != nil && c.Policy.Demands()}
	newest, err := c.newest(r.Context())
	switch {
	case errors.Is(err, errNoCheckpoint):
		return s, nil
	case err != nil:
		return nil, err
	}
	s.CheckpointSize = &newest.Size
	if certified := c.certified.Load(); certified > 0 {
		s.CertifiedSize = &certified
	}
	return s, nil
}

func (c *checkpoints) verifierKeys() []VerifierKey {
	list := []VerifierKey{{c.own.String(), keys.Current}}
	for _, key := range c.Retired {
		if key.ID() != c.own.ID() {
			list = append(list, VerifierKey{key.String(), keys.Retired})
		}
	}
	for _, key := range c.log.checks.keys.Keys() {
		if of, ok := c.deployment[key.Label]; ok {
			list = append(list, VerifierKey{of.String(), key.State})
		}
	}
	return list
}

// serveCheckpoint serves the newest checkpoint (c2sp.org/tlog-tiles).
func (l *Log) serveCheckpoint(r *http.Request) (any, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	newest, err := c.newest(r.Context())
	if err != nil {
		return nil, err
	}
	return plain{textPlain, "no-store", newest.text()}, nil
}

// serveCheckpointOf serves the checkpoint of the size in the parameter tree_size. Without
// the parameter, it serves the largest checkpoint that met the witnesses' quorum.
func (l *Log) serveCheckpointOf(r *http.Request) (any, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	q := readQuery(r)
	size := q.integer("tree_size")
	if q.err != nil {
		return nil, q.err
	}
	if size == nil {
		if _, err := c.newest(r.Context()); err != nil { // newest raises c.certified
			return nil, err
		}
		certified := c.certified.Load()
		if certified == 0 {
			return nil, fmt.Errorf("%w has met the quorum of the witnesses yet", errNoCheckpoint)
		}
		size = &certified
	}
	of, err := c.at(r.Context(), *size)
	if err != nil {
		return nil, l.checks.recordFailure(r.Context(), err)
	}
	return plain{textPlain, "no-store", of.text()}, nil
}

// servePolicy serves the witness policy file, which offline verifiers use too.
func (l *Log) servePolicy(*http.Request) (any, error) {
	if l.checkpoints == nil || l.checkpoints.Policy == nil {
		return nil, fmt.Errorf("%w is witnessed: this log has no witness policy", errNoCheckpoint)
	}
	return plain{textPlain, httpcache.Public, l.checkpoints.PolicyText}, nil
}

func (l *Log) checkpointing() (*checkpoints, error) {
	if l.checkpoints == nil {
		return nil, fmt.Errorf("%w is published: this log has no origin and no log key", errNoCheckpoint)
	}
	return l.checkpoints, nil
}
