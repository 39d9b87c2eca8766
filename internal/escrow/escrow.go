// Package escrow holds the use cases: what a caller can do to a deal and what
// the deal does by itself when its time comes. REST, MCP and the worker call
// these and nothing below.
//
// Every use case first takes the steps that are due (settle), so that the
// deadline decides and not the worker. The end of a deal writes its state, its
// result and the unsigned certificate in one transaction; signing, the log and
// publishing follow as a pipeline that any crash may cut and any process may
// take up (issue).
package escrow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/ephemeral"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
)

// Signer signs a SHA-256 digest with the deployment key and gives `<scheme>:<hex>`.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

// Keys verifies under the current and the legacy keys of the deployment.
type Keys interface {
	Verify(message []byte, signature string) error
	// SignerOf is Verify and tells which key it was.
	SignerOf(message []byte, signature string) (signing.Key, error)
}

// Log is the transparency log.
type Log interface {
	Append(ctx context.Context, entry [32]byte, signature string) (leafIndex int64, err error)
	Inclusion(ctx context.Context, entry [32]byte, leafIndex int64) (translog.Inclusion, error)
}

// Beacon is the public randomness beacon; the rounds it gives are verified.
type Beacon interface {
	Chain() beacon.Chain
	Fetch(ctx context.Context, round int64) (beacon.Round, error)
}

// Options are the deployment's choices.
type Options struct {
	EntropyWindow time.Duration // until an unpinned random.v1 deal is EXPIRED
	StrictBeacon  bool          // refuse rounds that are out before the reveals close
}

// Service is the use cases over their parts. It is safe for concurrent use.
type Service struct {
	store   *store.Store
	redis   *ephemeral.Redis
	secret  *sealing.Secret
	signer  Signer
	keys    Keys
	log     Log
	beacon  Beacon
	options Options
	logger  *slog.Logger

	// Only what never changes is cached: a key that exists, a token's party, a
	// deal's declaration, and up to which party nobody is missing.
	apiKeys *lru.Cache[string, struct{}]
	tokens  *lru.Cache[string, seat]
	small   *lru.Cache[string, *declaration] // of smallSize at most
	large   *lru.Cache[string, *declaration]
	marks   *lru.Cache[string, *mark]
	steps   singleflight.Group // by deal and step
	loads   singleflight.Group // by deal
}

type seat struct {
	dealID string
	party  int
}

// mark remembers the first party that was missing when last asked. All before
// it have acted, for ever.
type mark struct {
	mu               sync.Mutex
	commits, reveals int
}

const smallSize = 16 << 10 // bytes; a deal of 10,000 parties has megabytes

const issueBound = 3 * time.Second // what issuing may add to a reveal or entropy call

// New wires the use cases.
func New(s *store.Store, r *ephemeral.Redis, secret *sealing.Secret, signer Signer, keys Keys, log Log, b Beacon, o Options, logger *slog.Logger) *Service {
	svc := &Service{store: s, redis: r, secret: secret, signer: signer, keys: keys, log: log, beacon: b, options: o, logger: logger}
	svc.apiKeys, _ = lru.New[string, struct{}](16_384)
	svc.tokens, _ = lru.New[string, seat](65_536)
	svc.small, _ = lru.New[string, *declaration](4_096)
	svc.large, _ = lru.New[string, *declaration](32)
	svc.marks, _ = lru.New[string, *mark](4_096)
	return svc
}

// Chain is the beacon chain that new random.v1 deals declare their round of.
func (s *Service) Chain() beacon.Chain { return s.beacon.Chain() }

// settled keeps going when the caller hangs up: what was accepted is finished.
func settled(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
}
