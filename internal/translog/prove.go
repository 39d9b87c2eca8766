package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
)

// inclusion returns the verified path from a leaf to the head's root. It returns
// ErrInconsistent if the path does not verify, or if the leaf hash in the tree is not the leaf
// hash of the given entry.
func (t *tree) inclusion(ctx context.Context, index int64, entry []byte, head root) (path [][]byte, err error) {
	at, size := uint64(index), uint64(head.size)
	nodes, err := proof.Inclusion(at, size)
	if err != nil {
		return nil, err
	}
	count := len(nodes.IDs)
	var leaf []byte
	err = t.prove(ctx, head, append(nodes.IDs[:count:count], compact.NewNodeID(0, at)), func(hashes [][]byte) error {
		leaf = hashes[count]
		if path, err = nodes.Rehash(hashes[:count], hasher.HashChildren); err == nil {
			err = proof.VerifyInclusion(hasher, at, size, leaf, path, head.hash)
		}
		if err != nil {
			return fmt.Errorf("%w: leaf %d does not lead to the head of size %d: %w", ErrInconsistent, at, size, shortenRootMismatch(err))
		}
		return nil
	})
	if err == nil && !bytes.Equal(leaf, hasher.HashLeaf(entry)) {
		err = fmt.Errorf("%w: the entry in the row of leaf %d does not match the tree", ErrInconsistent, at)
	}
	return path, err
}

// consistency returns the verified proof that the tree of the second root extends the
// tree of the first. If the first tree is empty, the proof is empty and proves nothing.
func (t *tree) consistency(ctx context.Context, first, second root) (path [][]byte, err error) {
	nodes, err := proof.Consistency(uint64(first.size), uint64(second.size))
	if err != nil {
		return nil, err
	}
	err = t.prove(ctx, second, nodes.IDs, func(hashes [][]byte) error {
		if path, err = nodes.Rehash(hashes, hasher.HashChildren); err == nil {
			err = proof.VerifyConsistency(hasher, uint64(first.size), uint64(second.size), path, first.hash, second.hash)
		}
		if err != nil {
			return fmt.Errorf("%w: the tree of size %d does not extend the tree of size %d: %w", ErrInconsistent, second.size, first.size, shortenRootMismatch(err))
		}
		return nil
	})
	return path, err
}

// prove calls verify with the hashes of the nodes. If hashes from memory contradict the root,
// the database may have been replaced since t read them, so prove reads the tables again. If
// the tables agree with the root, the tiles read from them replace all tiles in memory.
func (t *tree) prove(ctx context.Context, under root, ids []compact.NodeID, verify func([][]byte) error) error {
	if len(ids) == 0 {
		return verify(nil)
	}
	hashes, err := t.nodes(ctx, under, ids)
	if err == nil {
		err = verify(hashes)
	}
	if t.fresh || !errors.Is(err, ErrInconsistent) {
		return err
	}
	second := freshTree(t.store)
	if err := second.prove(ctx, under, ids, verify); err != nil {
		return err
	}
	t.replace(second)
	return nil
}

// shortenRootMismatch shortens the error of a root mismatch. The library's text prints both roots,
// over several lines.
func shortenRootMismatch(err error) error {
	if _, ok := errors.AsType[proof.RootMismatchError](err); ok {
		return errors.New("the computed root differs from the expected root")
	}
	return err
}
