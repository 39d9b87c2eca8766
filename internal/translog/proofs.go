package translog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
)

// Inclusion is the proof that a leaf is under a published head.
type Inclusion struct {
	TreeHead
	LeafIndex int64    `json:"leaf_index"`
	Entry     string   `json:"entry"`          // 64 lower-case hex digits
	Path      []string `json:"inclusion_path"` // from the leaf up; 64 lower-case hex digits each
}

// Consistency is the proof that a published head extends an older one.
type Consistency struct {
	First  TreeHead `json:"first"`
	Second TreeHead `json:"second"`
	Path   []string `json:"consistency_path"` // 64 lower-case hex digits each
}

// LeafQuery names a leaf by its index, its entry, or both. The proof leads to the published
// head of size TreeSize, or to the newest head if TreeSize is nil.
type LeafQuery struct {
	LeafIndex *int64
	Entry     *[32]byte
	TreeSize  *int64
}

// TreeHead returns the newest published head. Each call reads the database, so the head is at
// least as new as every head that was returned before the call. Exception: after a failover of
// Postgres, a head that was returned during the crash may be missing until the log signs it again.
func (l *Log) TreeHead(ctx context.Context) (TreeHead, error) {
	return l.headAt(ctx, nil)
}

// TreeHeadAt returns the published head of a size, or an error if there is none.
func (l *Log) TreeHeadAt(ctx context.Context, size int64) (TreeHead, error) {
	return l.headAt(ctx, &size)
}

func (l *Log) headAt(ctx context.Context, size *int64) (TreeHead, error) {
	heads, err := l.heads(ctx, size)
	if err != nil {
		return TreeHead{}, err
	}
	return heads[0], nil
}

// Inclusion proves that a leaf is under a head. It returns ErrNotFound if that head does not
// cover the leaf, or if the leaf does not have the entry q.Entry. It returns ErrInconsistent if
// the head's signature does not verify, or if the leaf's row does not lead to the head.
func (l *Log) Inclusion(ctx context.Context, q LeafQuery) (Inclusion, error) {
	read, err := l.reads.Do(ctx, headLeafQuery{q, []*int64{q.TreeSize}})
	if err != nil {
		return Inclusion{}, l.checks.recordFailure(ctx, err)
	}
	inclusion, err := l.prove(ctx, q, read)
	return inclusion, l.checks.recordFailure(ctx, err)
}

func (l *Log) prove(ctx context.Context, q LeafQuery, read *readResult) (Inclusion, error) {
	head, err := l.published(read, q.TreeSize)
	if err != nil {
		return Inclusion{}, err
	}
	leaf, found := read.leaf(q)
	if q.LeafIndex != nil {
		leaf.index = *q.LeafIndex
	}
	switch {
	case (found || q.LeafIndex != nil) && (leaf.index < 0 || leaf.index >= head.TreeSize):
		return Inclusion{}, fmt.Errorf("%w: leaf %d is not under the head of size %d", ErrNotFound, leaf.index, head.TreeSize)
	case !found && q.LeafIndex != nil:
		return Inclusion{}, missing(0, uint64(leaf.index))
	case !found:
		return Inclusion{}, fmt.Errorf("%w: no leaf has the given entry", ErrNotFound)
	}
	path, err := l.tree.inclusion(ctx, leaf.index, leaf.entry, treeOf(head))
	if err != nil {
		return Inclusion{}, err
	}
	if q.Entry != nil && !bytes.Equal(leaf.entry, q.Entry[:]) {
		return Inclusion{}, fmt.Errorf("%w: leaf %d does not have the given entry", ErrNotFound, leaf.index)
	}
	return Inclusion{TreeHead: head, LeafIndex: leaf.index, Entry: hex.EncodeToString(leaf.entry), Path: toHex(path)}, nil
}

// Consistency proves that the published head of size `second` extends the published head of size
// `first`. A nil `second` means the newest published head. The two sizes may be equal.
func (l *Log) Consistency(ctx context.Context, first int64, second *int64) (Consistency, error) {
	heads, err := l.heads(ctx, &first, second)
	if err != nil {
		return Consistency{}, err
	}
	path, err := l.tree.consistency(ctx, treeOf(heads[0]), treeOf(heads[1]))
	if err != nil {
		return Consistency{}, l.checks.recordFailure(ctx, err)
	}
	return Consistency{First: heads[0], Second: heads[1], Path: toHex(path)}, nil
}

func toHex(hashes [][]byte) []string {
	path := make([]string, len(hashes))
	for i, h := range hashes {
		path[i] = hex.EncodeToString(h)
	}
	return path
}

// inclusion returns the verified path from a leaf to the head's root, or ErrInconsistent.
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

// consistency returns a verified proof. From an empty tree it is empty and proves nothing.
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

// shortenRootMismatch replaces the library's text, which prints both roots over several lines.
func shortenRootMismatch(err error) error {
	if _, ok := errors.AsType[proof.RootMismatchError](err); ok {
		return errors.New("the computed root differs from the expected root")
	}
	return err
}
