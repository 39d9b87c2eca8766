package translog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// TLogProof returns the proof of a leaf as a .tlog-proof file (c2sp.org/tlog-proof). The
// proof leads to the largest checkpoint that met the witnesses' quorum. If there is no such
// checkpoint, or it does not cover the leaf, the proof leads to the newest checkpoint.
func (l *Log) TLogProof(ctx context.Context, q LeafQuery) ([]byte, error) {
	c, err := l.checkpointing()
	if err != nil {
		return nil, err
	}
	of, err := c.newest(ctx)
	if err != nil {
		return nil, err
	}
	if certified := c.certified.Load(); certified > 0 {
		// Read the checkpoint again even if `of` has the same size: `of` may lack cosignatures that were
		// stored since it was read.
		better, err := c.at(ctx, certified)
		if err != nil {
			return nil, l.checks.recordFailure(ctx, err)
		}
		if proof, err := l.tlogProof(ctx, q, better); !errors.Is(err, ErrNotFound) && !errors.Is(err, errNoHead) {
			return proof, err
		}
	}
	return l.tlogProof(ctx, q, of)
}

func (l *Log) tlogProof(ctx context.Context, q LeafQuery, under *signedCheckpoint) ([]byte, error) {
	q.TreeSize = &under.Size
	in, err := l.Inclusion(ctx, q)
	if err != nil {
		return nil, err
	}
	proof := checkpoint.Proof{Index: in.LeafIndex, Path: make([][32]byte, len(in.Path)), Note: under.text()}
	for i, hash := range in.Path {
		proof.Path[i], _ = canon.ParseHash(hash)
	}
	return proof.Marshal(), nil
}

func (l *Log) serveTLogProof(r *http.Request) (any, error) {
	q := readQuery(r)
	leaf := q.leaf()
	if q.err != nil {
		return nil, q.err
	}
	proof, err := l.TLogProof(r.Context(), leaf)
	return plain{textPlain, "no-store", proof}, err
}

// TLogProof returns the .tlog-proof of a leaf. It verifies the inclusion proof but not the
// signatures. It returns nil if no checkpoint covers the leaf: the log has no checkpoints,
// or has not signed the next one yet.
func (c *Client) TLogProof(ctx context.Context, entry [32]byte, leafIndex int64) ([]byte, error) {
	var text []byte
	err := c.get(ctx, "/v1/log/tlog-proof", url.Values{"leaf_index": {strconv.FormatInt(leafIndex, 10)}, "entry": {hex.EncodeToString(entry[:])}}, &text)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	proof, err := checkpoint.ParseProof(text)
	if err != nil {
		return nil, notLogServer(err)
	}
	of, err := checkpoint.ParseNote(string(proof.Note))
	if err == nil && proof.Index != leafIndex {
		err = fmt.Errorf("the proof is for leaf %d, not for leaf %d", proof.Index, leafIndex)
	}
	if err == nil {
		err = proof.VerifyInclusion(entry[:], of)
	}
	if err != nil {
		return nil, notLogServer(err)
	}
	return text, nil
}
