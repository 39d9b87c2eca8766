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

	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/merkle/testonly"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// fakeSigner signs with a real key and counts the calls of Sign.
type fakeSigner struct {
	*signing.Signer
	mu     sync.Mutex
	before func(ctx context.Context) error // a hook that runs before each signature; if the hook fails, Sign fails
	signed int
}

func newPen(t *testing.T) *fakeSigner {
	t.Helper()
	return &fakeSigner{Signer: of(signing.Open(t.Context(), "dev://"+filepath.Join(t.TempDir(), "key.pem"))).ok(t)}
}

func (s *fakeSigner) fail(before func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *fakeSigner) signatures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signed
}

func (s *fakeSigner) Sign(ctx context.Context, digest [32]byte) (string, error) {
	s.mu.Lock()
	before := s.before
	s.signed++
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return "", err
		}
	}
	return s.Signer.Sign(ctx, digest)
}

// fakeLog is a transparency log in memory.
type fakeLog struct {
	signer    *signing.Signer // signs the tree heads
	keys      *signing.KeySet // the keys that may sign entries; nil: any signature is accepted
	mu        sync.Mutex
	leaves    [][32]byte
	taken     []string // the signature of each leaf, in the order of leaves
	tags      map[translog.Tag][32]byte
	appending func(add func()) error // hook that Append calls first; if it fails, Append fails; `add` appends the entry
	reading   func(*translog.Inclusion) error

	// cosigned is the tree size that a quorum of witnesses has cosigned. LearnCertified copies
	// cosigned to certified, and Certified returns certified.
	cosigned, certified atomic.Int64
	witnessed           atomic.Bool // what Witnessed returns
}

func (l *fakeLog) Witnessed() bool { return l.witnessed.Load() }

func (l *fakeLog) Certified() int64 { return l.certified.Load() }

func (l *fakeLog) LearnCertified(context.Context) { l.certified.Store(l.cosigned.Load()) }

func (l *fakeLog) fail(appending func(add func()) error, reading func(*translog.Inclusion) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appending, l.reading = appending, reading
}

func (l *fakeLog) Append(_ context.Context, entry [32]byte, signature string, tag translog.Tag) (int64, error) {
	l.mu.Lock()
	hook := l.appending
	owner, tagged := l.tags[tag]
	l.mu.Unlock()
	if tagged && owner != entry {
		return 0, translog.ErrTagTaken
	}
	add := func() (int64, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.keys != nil && !slices.Contains(l.leaves, entry) {
			if key, err := l.keys.SignedBy(entry, signature); err != nil || !key.MaySignLeaf(int64(len(l.leaves))) {
				return 0, translog.ErrRefused
			}
		}
		if tag != (translog.Tag{}) {
			l.tags[tag] = entry
		}
		if !slices.Contains(l.leaves, entry) {
			l.leaves, l.taken = append(l.leaves, entry), append(l.taken, signature)
		}
		return int64(slices.Index(l.leaves, entry)), nil
	}
	if hook != nil {
		if err := hook(func() { _, _ = add() }); err != nil {
			return 0, err
		}
	}
	return add()
}

// TLogProof returns nil, because fakeLog signs no checkpoints.
func (l *fakeLog) TLogProof(context.Context, [32]byte, int64, bool) ([]byte, error) { return nil, nil }

func (l *fakeLog) Inclusion(ctx context.Context, entry [32]byte, index int64) (translog.Inclusion, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index < 0 || index >= int64(len(l.leaves)) || l.leaves[index] != entry {
		return translog.Inclusion{}, translog.ErrNotFound
	}
	head, err := l.head(ctx, int64(len(l.leaves)))
	in := translog.Inclusion{TreeHead: head, LeafIndex: index, Entry: hex.EncodeToString(entry[:]), Path: l.path(index)}
	if err == nil && l.reading != nil {
		err = l.reading(&in)
	}
	return in, err
}

func (l *fakeLog) TreeHeadAt(ctx context.Context, size int64) (translog.TreeHead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if size > int64(len(l.leaves)) {
		return translog.TreeHead{}, translog.ErrNotFound
	}
	return l.head(ctx, size)
}

// The caller of l.tree, l.head or l.path must hold l.mu.
func (l *fakeLog) tree() *testonly.Tree {
	tree := testonly.New(rfc6962.DefaultHasher)
	for _, leaf := range l.leaves {
		tree.AppendData(leaf[:])
	}
	return tree
}

func (l *fakeLog) head(ctx context.Context, size int64) (head translog.TreeHead, err error) {
	head.TreeSize, head.RootHash = size, hex.EncodeToString(l.tree().HashAt(uint64(size)))
	head.Signature, err = l.signer.Sign(ctx, head.Digest())
	return head, err
}

func (l *fakeLog) path(index int64) (path []string) {
	proof, err := l.tree().InclusionProof(uint64(index), uint64(len(l.leaves)))
	if err != nil {
		panic(err)
	}
	for _, node := range proof {
		path = append(path, hex.EncodeToString(node))
	}
	return path
}

func (l *fakeLog) empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaves, l.taken, l.tags = nil, nil, map[translog.Tag][32]byte{}
}

func (l *fakeLog) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.leaves)
}

// fakeBeacon is a beacon in memory with its own chain. Its rounds have valid signatures.
type fakeBeacon struct {
	server *devbeacon.Server
	mu     sync.Mutex
	chain  drand.Chain
	err    error
	asked  int
}

func newWell() *fakeBeacon {
	s := devbeacon.New([]byte("escrow"))
	return &fakeBeacon{server: s, chain: s.Chain()}
}

func (b *fakeBeacon) set(chain drand.Chain, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.chain, b.err = chain, err
}

func (b *fakeBeacon) fetched() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

func (b *fakeBeacon) Chain() drand.Chain {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.chain
}

func (b *fakeBeacon) Fetch(_ context.Context, round int64) (beacon.Round, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.err != nil {
		return beacon.Round{}, b.err
	}
	signature := b.server.Sign(round)
	randomness := sha256.Sum256(signature)
	return beacon.Round{Round: round, Randomness: hex.EncodeToString(randomness[:]), Signature: hex.EncodeToString(signature)}, nil
}
