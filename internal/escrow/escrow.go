// Package escrow holds the use cases: what a caller can do to a deal, and what
// the deal does by itself when its time comes. REST, MCP and the worker call
// these and nothing below. They take and return Go values; their refusals are
// errors of package problem. Statuses, JSON and wording belong to the surfaces.
//
// # The life of a deal
//
//	Create                                   OPEN
//	Commit    one transaction; the last one  REVEALING
//	Reveal    one transaction; the last one goes on:
//	  endDeal           decrypts all inputs, computes, and writes state, result and
//	                    unsigned certificate in one transaction    COMPUTED, VOID
//	  issueCertificate  signs, appends to the log, stores signature and leaf
//	Certificate, Verify read the row and the leaf, and check them
//
// ViewAfter and CertificateAfter wait for a change first (package waiting): every
// use case that changes a deal says so once its transaction has committed.
//
// Whoever meets a deal whose deadline has passed, or in which all have acted and
// nobody went on, takes the step that is due before it answers (advance): the
// deadline decides and not the worker. A crash may cut this anywhere; each step
// can be repeated, by any process.
//
// # What is carried along and what is read again
//
// A call carries what it knows. What cannot change is cached in the process,
// with a bound in bytes: whose a token is, a deal's declaration, a party's
// commitment, a deal that has ended with its certificate published, and that
// certain bytes verified under a certain key. Each use case reads the deal once;
// a certificate's row and leaf are read at every call, so that a changed row is
// found. When the database is another one than before (a restore, a failover)
// the caches start again.
package escrow

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/cache"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
	"github.com/fairpact/fairpact/internal/waiting"
)

// Signer signs a SHA-256 digest with the deployment key and returns `<scheme>:<hex>`.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

// Keys verifies under the current and the legacy keys of the deployment.
type Keys interface {
	// SignerOf returns the key under which the signature over the message verifies.
	SignerOf(message []byte, signature string) (signing.Key, error)
	// Keys returns all of them as they stand now.
	Keys() []signing.Key
	// Published returns the answer of GET /v1/pubkeys.
	Published() []byte
}

// Log is the transparency log.
type Log interface {
	Append(ctx context.Context, entry [32]byte, signature string, tag translog.Tag) (leafIndex int64, err error)
	Inclusion(ctx context.Context, entry [32]byte, leafIndex int64) (translog.Inclusion, error)
	TreeHeadAt(ctx context.Context, size int64) (translog.TreeHead, error)
	// Certified is the largest tree size that a quorum of witnesses has cosigned, as
	// far as is known here; it never falls. LearnCertified asks the log for it,
	// unless that was asked a moment ago.
	Certified() int64
	LearnCertified(ctx context.Context)
	// TLogProof returns the .tlog-proof of a leaf, nil where no checkpoint covers it.
	TLogProof(ctx context.Context, entry [32]byte, leafIndex int64) ([]byte, error)
}

// Beacon is the public randomness beacon; the rounds it returns are verified.
type Beacon interface {
	Chain() beacon.Chain
	Fetch(ctx context.Context, round int64) (beacon.Round, error)
}

// Options are the deployment's choices.
type Options struct {
	EntropyWindow time.Duration // until an unpinned random.v1 deal is EXPIRED
	StrictBeacon  bool          // refuse rounds that are out before the reveals close
	OpenUnits     int           // that the open deals of one API key may cost, see Declared.Units; 0: no limit
	PublicURL     string        // origin under which callers reach deal-api; "": not known
	ReadOnly      bool          // the database and the log take no changes
	Waits         *waiting.Hub  // of this process; nil: one that no other process announces to
}

// Service is the use cases over their parts. It is safe for concurrent use.
type Service struct {
	store   *store.Store
	secrets *sealing.Secrets
	signer  Signer
	keys    Keys
	log     Log
	beacon  Beacon
	options Options
	logger  *slog.Logger

	// Only what never changes is cached.
	apiKeys     *cache.Cache[hash, *account]
	tokens      *cache.Cache[hash, seat]
	deals       *cache.Cache[string, *Deal]
	commitments *cache.Cache[seat, [32]byte]
	ended       *cache.Cache[string, *store.Snapshot] // with its certificate published
	verified    *cache.Cache[hash, checked]
	server      atomic.Value // the database server that the caches were filled from

	loads  singleflight.Group // by deal
	steps  singleflight.Group // by deal and step
	issues singleflight.Group // by certificate

	contradicted contradictions
}

// hash is the SHA-256 of what a cache is asked for.
type hash [32]byte

// seat is one party of one deal.
type seat struct {
	dealID string
	party  int
}

// What the caches hold at most, in bytes.
const (
	smallCache = 8 << 20
	largeCache = 32 << 20
)

const issueBound = 3 * time.Second // what issuing may add to a reveal or entropy call

// New wires the use cases.
func New(s *store.Store, secrets *sealing.Secrets, signer Signer, keys Keys, log Log, b Beacon, o Options, logger *slog.Logger) *Service {
	if o.Waits == nil {
		o.Waits = waiting.New(s.Marks, nil, logger)
	}
	return &Service{
		store: s, secrets: secrets, signer: signer, keys: keys, log: log, beacon: b, options: o, logger: logger,
		apiKeys:     cache.New[hash, *account](smallCache),
		tokens:      cache.New[hash, seat](largeCache),
		deals:       cache.New[string, *Deal](largeCache),
		commitments: cache.New[seat, [32]byte](smallCache),
		ended:       cache.New[string, *store.Snapshot](largeCache),
		verified:    cache.New[hash, checked](smallCache),
	}
}

// Chain is the beacon chain that new random.v1 deals declare their round of.
func (s *Service) Chain() beacon.Chain { return s.beacon.Chain() }

// sameServer empties the caches where the database server is another one than
// before: what it holds may be older than what was cached. It is noticed within
// a second.
func (s *Service) sameServer(ctx context.Context) {
	s.store.Confirm(ctx)
	now := s.store.Server()
	if before := s.server.Swap(now); before == nil || before == now {
		return
	}
	s.forget()
	time.AfterFunc(forgetAgain, s.forget) // what calls under way still add from the server before
}

// forgetAgain is longer than any call takes.
const forgetAgain = time.Minute

func (s *Service) forget() {
	s.apiKeys.Purge()
	s.tokens.Purge()
	s.deals.Purge()
	s.commitments.Purge()
	s.ended.Purge()
}

// detached returns a context that goes on when the caller hangs up: what was
// accepted is finished.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
}
