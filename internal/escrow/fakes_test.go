package escrow_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/beacon/devbeacon"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// The outside parts, each with a hook that a test sets to make it fail. Without
// a hook they do their work.

// pen signs with a real key.
type pen struct {
	*signing.Signer
	mu     sync.Mutex
	before func(ctx context.Context) error // an error is the signer's
	signed int
}

func newPen(t *testing.T) *pen {
	t.Helper()
	s, err := signing.Open(t.Context(), "dev://"+filepath.Join(t.TempDir(), "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return &pen{Signer: s}
}

func (p *pen) fail(before func(context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

// signatures is how often it was asked to sign.
func (p *pen) signatures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signed
}

func (p *pen) Sign(ctx context.Context, digest [32]byte) (string, error) {
	p.mu.Lock()
	before := p.before
	p.signed++
	p.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return "", err
		}
	}
	return p.Signer.Sign(ctx, digest)
}

// ledger is a transparency log in memory: RFC 6962 2.1 as it is written there.
type ledger struct {
	pen       *signing.Signer // signs the heads
	mu        sync.Mutex
	leaves    [][32]byte
	taken     []string // the signature of each leaf
	tags      map[translog.Tag][32]byte
	appending func(add func()) error // add appends the entry
	reading   func(*translog.Inclusion) error

	cosigned, certified atomic.Int64 // the size that a quorum has cosigned, and what was learned of it
}

func (l *ledger) Certified() int64 { return l.certified.Load() }

func (l *ledger) LearnCertified(context.Context) { l.certified.Store(l.cosigned.Load()) }

func (l *ledger) fail(appending func(add func()) error, reading func(*translog.Inclusion) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appending, l.reading = appending, reading
}

func (l *ledger) Append(_ context.Context, entry [32]byte, signature string, tag translog.Tag) (int64, error) {
	l.mu.Lock()
	hook := l.appending
	l.mu.Unlock()
	l.mu.Lock()
	owner, tagged := l.tags[tag]
	l.mu.Unlock()
	if tagged && owner != entry {
		return 0, translog.ErrTagTaken
	}
	add := func() int64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.tags == nil {
			l.tags = make(map[translog.Tag][32]byte)
		}
		if tag != (translog.Tag{}) {
			l.tags[tag] = entry
		}
		if !slices.Contains(l.leaves, entry) {
			l.leaves, l.taken = append(l.leaves, entry), append(l.taken, signature)
		}
		return int64(slices.Index(l.leaves, entry))
	}
	if hook != nil {
		if err := hook(func() { add() }); err != nil {
			return 0, err
		}
	}
	return add(), nil
}

// TLogProof is none: the ledger signs no checkpoints.
func (l *ledger) TLogProof(context.Context, [32]byte, int64) ([]byte, error) { return nil, nil }

func (l *ledger) Inclusion(ctx context.Context, entry [32]byte, index int64) (translog.Inclusion, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index < 0 || index >= int64(len(l.leaves)) || l.leaves[index] != entry {
		return translog.Inclusion{}, translog.ErrNotFound
	}
	in := translog.Inclusion{
		TreeHead:  translog.TreeHead{TreeSize: int64(len(l.leaves)), RootHash: hex.EncodeToString(treeHash(l.leaves))},
		LeafIndex: index, Entry: hex.EncodeToString(entry[:]), Path: path(int(index), l.leaves),
	}
	var err error
	if in.TreeHead.Signature, err = l.pen.Sign(ctx, in.Digest()); err != nil {
		return in, err
	}
	if l.reading != nil {
		err = l.reading(&in)
	}
	return in, err
}

func (l *ledger) TreeHeadAt(ctx context.Context, size int64) (translog.TreeHead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if size > int64(len(l.leaves)) {
		return translog.TreeHead{}, translog.ErrNotFound
	}
	head := translog.TreeHead{TreeSize: size, RootHash: hex.EncodeToString(treeHash(l.leaves[:size]))}
	var err error
	head.Signature, err = l.pen.Sign(ctx, head.Digest())
	return head, err
}

func (l *ledger) empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaves, l.taken, l.tags = nil, nil, nil
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.leaves)
}

func treeHash(leaves [][32]byte) []byte {
	if len(leaves) == 1 {
		sum := sha256.Sum256(append([]byte{0}, leaves[0][:]...))
		return sum[:]
	}
	k := half(len(leaves))
	sum := sha256.Sum256(slices.Concat([]byte{1}, treeHash(leaves[:k]), treeHash(leaves[k:])))
	return sum[:]
}

func path(m int, leaves [][32]byte) []string {
	if len(leaves) == 1 {
		return nil
	}
	k := half(len(leaves))
	if m < k {
		return append(path(m, leaves[:k]), hex.EncodeToString(treeHash(leaves[k:])))
	}
	return append(path(m-k, leaves[k:]), hex.EncodeToString(treeHash(leaves[:k])))
}

func half(n int) int {
	k := 1
	for 2*k < n {
		k *= 2
	}
	return k
}

// well is a beacon of its own chain, with real rounds.
type well struct {
	server *devbeacon.Server
	mu     sync.Mutex
	chain  beacon.Chain
	err    error
	asked  int
}

func newWell() *well {
	s := devbeacon.New([]byte("escrow"))
	return &well{server: s, chain: s.Chain()}
}

func (w *well) set(chain beacon.Chain, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.chain, w.err = chain, err
}

func (w *well) fetched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *well) Chain() beacon.Chain {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chain
}

func (w *well) Fetch(_ context.Context, round int64) (beacon.Round, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.err != nil {
		return beacon.Round{}, w.err
	}
	signature := w.server.Sign(round)
	randomness := sha256.Sum256(signature)
	return beacon.Round{Round: round, Randomness: hex.EncodeToString(randomness[:]), Signature: hex.EncodeToString(signature)}, nil
}

// rootOfTwo is the input_root of two leaves.
func rootOfTwo(leaves [][]byte) string {
	one, other := sha256.Sum256(append([]byte{0}, leaves[0]...)), sha256.Sum256(append([]byte{0}, leaves[1]...))
	root := sha256.Sum256(slices.Concat([]byte{1}, one[:], other[:]))
	return "sha256:" + hex.EncodeToString(root[:])
}
