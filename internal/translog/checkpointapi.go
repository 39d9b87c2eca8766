package translog

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairpact/fairpact/internal/httpcache"
	"github.com/fairpact/fairpact/internal/signing"
)

const textPlain = "text/plain; charset=utf-8"

// Status is what the log publishes beside its heads.
type Status struct {
	Origin         *string       `json:"origin"` // null: the log publishes no checkpoints
	Keys           []VerifierKey `json:"keys"`
	CheckpointSize *int64        `json:"checkpoint_size"` // of the newest checkpoint
	CertifiedSize  *int64        `json:"certified_size"`  // of the largest checkpoint that met the witnesses' quorum; null: none has, or there are none
	Quorum         bool          `json:"quorum"`          // whether the policy demands witnesses
}

// VerifierKey is a key under which checkpoints are signed, or were.
type VerifierKey struct {
	VKey  string `json:"vkey"`
	State string `json:"state"` // next, current or retired
}

func (l *Log) serveStatus(r *http.Request) (any, error) { return l.Status(r.Context()) }

// Status reads what the log publishes.
func (l *Log) Status(ctx context.Context) (Status, error) {
	c := l.checkpoints
	if c == nil {
		return Status{Keys: []VerifierKey{}}, nil
	}
	s := Status{Origin: &c.Origin, Keys: c.verifierKeys(), Quorum: c.Policy != nil && c.Policy.Demands()}
	newest, err := c.newest(ctx)
	switch {
	case errors.Is(err, errNoCheckpoint):
		return s, nil
	case err != nil:
		return Status{}, err
	}
	s.CheckpointSize = &newest.Size
	if certified := c.certified.Load(); certified > 0 {
		s.CertifiedSize = &certified
	}
	return s, nil
}

func (c *checkpoints) verifierKeys() []VerifierKey {
	keys := []VerifierKey{{c.own.String(), signing.StateCurrent}}
	for _, key := range c.Retired {
		if key.ID() != c.own.ID() {
			keys = append(keys, VerifierKey{key.String(), signing.StateRetired})
		}
	}
	for _, key := range c.Keys() {
		if of, ok := c.deployment[key.PublicKey]; ok {
			keys = append(keys, VerifierKey{of.String(), key.State})
		}
	}
	return keys
}

// serveCheckpoint answers the newest checkpoint (c2sp.org/tlog-tiles).
func (l *Log) serveCheckpoint(r *http.Request) (any, error) {
	c, err := l.published()
	if err != nil {
		return nil, err
	}
	newest, err := c.newest(r.Context())
	if err != nil {
		return nil, err
	}
	return plain{textPlain, "no-store", newest.text()}, nil
}

// serveCheckpointOf answers the checkpoint of ?tree_size=, or the largest one that
// met the quorum.
func (l *Log) serveCheckpointOf(r *http.Request) (any, error) {
	c, err := l.published()
	if err != nil {
		return nil, err
	}
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	size, err := q.integer("tree_size")
	if err != nil {
		return nil, err
	}
	if size == nil {
		if _, err := c.newest(r.Context()); err != nil { // learns of a newer quorum
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
		return nil, l.checks.note(r.Context(), err)
	}
	return plain{textPlain, "no-store", of.text()}, nil
}

// servePolicy answers the policy file, which serves offline verifiers too.
func (l *Log) servePolicy(*http.Request) (any, error) {
	if l.checkpoints == nil || l.checkpoints.Policy == nil {
		return nil, fmt.Errorf("%w is witnessed: this log has no witness policy", errNoCheckpoint)
	}
	return plain{textPlain, httpcache.Public, l.checkpoints.PolicyText}, nil
}

func (l *Log) published() (*checkpoints, error) {
	if l.checkpoints == nil {
		return nil, fmt.Errorf("%w is published: this log has no origin and no log key", errNoCheckpoint)
	}
	return l.checkpoints, nil
}
