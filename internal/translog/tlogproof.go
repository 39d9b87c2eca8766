package translog

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/problem"
)

// TLogProof proves a leaf as a .tlog-proof file (c2sp.org/tlog-proof): under the
// largest checkpoint that met the witnesses' quorum, or under the newest one where
// none that did covers the leaf.
func (l *Log) TLogProof(ctx context.Context, q LeafQuery) ([]byte, error) {
	c, err := l.published()
	if err != nil {
		return nil, err
	}
	of, err := c.newest(ctx)
	if err != nil {
		return nil, err
	}
	q.TreeSize = &of.Size
	in, err := l.Inclusion(ctx, q)
	if err != nil {
		return nil, err
	}
	if better, err := c.cosigned(ctx, of, in.LeafIndex); err != nil {
		return nil, l.checks.note(ctx, err)
	} else if better != of {
		of, q.TreeSize = better, &better.Size
		if in, err = l.Inclusion(ctx, q); err != nil {
			return nil, err
		}
	}
	proof := checkpoint.Proof{Index: in.LeafIndex, Path: make([][32]byte, len(in.Path)), Note: of.text()}
	for i, hash := range in.Path {
		proof.Path[i], _ = parseHash(hash)
	}
	return proof.Marshal(), nil
}

// cosigned returns the largest checkpoint that met the quorum where it covers the
// leaf, else the one that was read. That one may be of the same size and lack the
// last cosignature, which was stored after it was read.
func (c *checkpoints) cosigned(ctx context.Context, read *signedCheckpoint, leaf int64) (*signedCheckpoint, error) {
	certified := c.certified.Load()
	if leaf >= certified || certified == read.Size && c.met(read) {
		return read, nil
	}
	return c.at(ctx, certified)
}

func (l *Log) serveTLogProof(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	leaf, err := q.leaf()
	if err != nil {
		return nil, err
	}
	proof, err := l.TLogProof(r.Context(), leaf)
	return plain{textPlain, "no-store", proof}, err
}

// leaf reads which leaf is meant.
func (q query) leaf() (leaf LeafQuery, err error) {
	if leaf.LeafIndex, err = q.integer("leaf_index"); err != nil {
		return leaf, err
	}
	if leaf.Entry, err = q.hash("entry"); err != nil {
		return leaf, err
	}
	if leaf.LeafIndex == nil && leaf.Entry == nil {
		return leaf, problem.New(problem.InvalidRequest, "name the leaf: add ?leaf_index= (an integer from 0) or ?entry= (64 lower-case hex digits)")
	}
	return leaf, nil
}

// TLogProof returns the .tlog-proof of a leaf, verified but for its signatures, or
// nil where no checkpoint covers the leaf: the log publishes none, or signs the
// next one in a moment.
func (c *Client) TLogProof(ctx context.Context, entry [32]byte, leafIndex int64) ([]byte, error) {
	var text []byte
	err := c.get(ctx, "/v1/log/tlog-proof", url.Values{"leaf_index": {strconv.FormatInt(leafIndex, 10)}, "entry": {hex.EncodeToString(entry[:])}}, &text)
	if errors.Is(err, ErrNotFound) || errors.Is(err, errNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	proof, err := checkpoint.ParseProof(text)
	if err != nil {
		return nil, misshapen(err)
	}
	signed, err := checkpoint.TextOf(string(proof.Note))
	if err != nil {
		return nil, misshapen(err)
	}
	of, err := checkpoint.Parse(signed)
	if err == nil && proof.Index != leafIndex {
		err = errors.New("the proof is of another leaf")
	}
	if err == nil {
		err = proof.VerifyInclusion(entry[:], of)
	}
	if err != nil {
		return nil, misshapen(err)
	}
	return text, nil
}
