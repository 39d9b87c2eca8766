// Package escrow holds the use cases: the actions of callers on a deal, and the steps that
// the service takes when a deadline has passed or all parties have acted. REST, MCP and the
// worker change deals only through this package. Use cases take and return Go values. They
// refuse an action with an error of package problem.
//
// # Order of reading
//
//	escrow.go     Service, its dependencies and its caches
//	idempotency.go Guard, which makes a POST repeatable
//	auth.go       authenticates callers, authorizes their actions, limits the open deals of an API key
//	deal.go       Deal, a deal as it was declared, and View
//	create.go     Create
//	cautions.go   warnings about a deal's beacon round, deadlines and labels
//	commit.go     Commit and Cancel, and the signatures of seat keys
//	reveal.go     Reveal, the rejection of a shapley.v1 deal, and what commit, reveal and cancel share
//	seals.go      the timelock seals that come with commitments, and their receipts
//	closing.go    logs a digest of all commitments and seals, before the round of the seals
//	sealtexts.go  returns the seals of an open deal to its parties
//	openseals.go  opens the seals of a deal once their beacon round is published
//	advance.go    takes the steps that are due, also for the worker, and draws a random.v1 deal
//	end.go        computes the result and stores it with the unsigned certificate
//	issue.go      signs the certificate, appends it to the log, publishes it
//	openings.go   the inputs that parties may see, and a party's consent to show its own
//	wait.go, certificate.go, verify.go    reads; check.go serves them
//	public.go     what everybody reads of a deal with an audience
//	reseal.go     what only the worker calls
//	memory.go     what each call may hold in memory, granted before it reads
//
// # The life of a deal
//
//	Create    stores the declaration                  OPEN
//	Commit    stores a commitment in one transaction  COMMITTING; after the last one REVEALING
//	Reveal    stores an input in one transaction      REVEALING; the last one continues with:
//	  endDeal           decrypts all inputs, computes, and writes state, result and
//	                    unsigned certificate in one transaction    COMPUTED
//	  issueCertificate  signs, appends to the log, stores signature and leaf
//	Certificate, Verify read the row and the leaf, and check them
//
// endDeal also ends a random.v1 deal at its draw, and a deal with a missed deadline (VOID).
//
// A deadline takes effect at its time, even if the worker is late: a read of an active deal, a
// draw, a rejection and StoredCommit or StoredReveal first take the steps that are due (advance).
// Commit, Reveal and Cancel do so only after a refusal. After a crash, any process can repeat the
// interrupted step.
//
// # Caches
//
// The process caches what never changes, and the API keys in use. Each cache is bounded in bytes.
// Certificate and Verify read the row and the leaf at every call, so that a changed row is noticed.
// When the database server changes (a restore, a failover), the process empties all caches except
// the verified signatures, which do not depend on the database.
package escrow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// Signer signs with the deployment's key and returns the signature as `<scheme>:<hex>`.
type Signer interface {
	Sign(ctx context.Context, digest [32]byte) (string, error)
}

// Log is the part of translog.Client that this package uses, so that tests can replace it.
type Log interface {
	Append(ctx context.Context, entry [32]byte, signature string, tag translog.Tag) (leafIndex int64, err error)
	Inclusion(ctx context.Context, entry [32]byte, leafIndex int64) (translog.Inclusion, error)
	TreeHeadAt(ctx context.Context, size int64) (translog.TreeHead, error)
	// Certified returns the largest tree size that is known to be cosigned by a quorum of witnesses.
	// It never falls. LearnCertified updates it from the log, at most once a second.
	Certified() int64
	LearnCertified(ctx context.Context)
	// Witnessed reports whether the log demands cosignatures, at the last LearnCertified that it answered.
	// It is true until then.
	Witnessed() bool
	// TLogProof returns the .tlog-proof of a leaf, or nil if no checkpoint covers the leaf. With `first` it
	// leads to the first checkpoint that met the quorum.
	TLogProof(ctx context.Context, entry [32]byte, leafIndex int64, first bool) ([]byte, error)
}

// Beacon fetches rounds of a public randomness beacon, and verifies them.
type Beacon interface {
	Chain() drand.Chain
	Fetch(ctx context.Context, round int64) (beacon.Round, error)
}

// Options are the settings of a Service.
type Options struct {
	EntropyWindow time.Duration           // how long a random.v1 deal, or one with unopened seals, waits for a due beacon round before the deal is EXPIRED
	StrictBeacon  bool                    // refuse a new deal whose beacon round is published at or before the reveal deadline
	OpenUnits     int                     // limit on the cost of one API key's open deals, in Declared.Units; 0: no limit
	PublicURL     string                  // origin under which callers reach deal-api; "": not known
	KeepContents  time.Duration           // how long after its end and reveal deadline a deal keeps params, title, message, inputs and seals; 0: for ever
	ReadOnly      bool                    // maintenance: the database and the log accept no writes
	Waits         *waiting.Hub            // nil: a hub without a connection to other processes
	Development   func(label string) bool // reports whether a signing key is a development key; nil: none is
}

// Service runs the use cases. It is safe for concurrent use.
type Service struct {
	store   *store.Store
	secrets *sealing.Secrets
	signer  Signer
	keys    *signing.KeySet
	log     Log
	beacon  Beacon
	options Options
	logger  *slog.Logger

	apiKeys   *cache[hash, *account]
	tokens    *cache[hash, seat]
	deals     *cache[string, *Deal]
	acts      *cache[seat, acted]
	seen      *cache[string, *store.Snapshot] // of all parties; of deals whose certificate is published, and of those with many parties
	verified  *cache[hash, checked]
	public    *cache[string, shown] // what an audience reads
	server    atomic.Value          // the database server that filled the caches
	lastRound atomic.Pointer[roundKey]
	certified atomic.Int64 // the largest tree size that the database is known to store as cosigned by a quorum of witnesses

	loads  singleflight.Group // keyed by deal_id
	steps  singleflight.Group // keyed by deal_id and deal.Step
	issues singleflight.Group // keyed by cert_id, and for a closing by deal_id

	contradicted *expirable.LRU[string, contradiction] // keyed by deal_id
}

// hash is a SHA-256 digest, the key of a cache.
type hash [32]byte

type seat struct {
	dealID string
	party  int
}

// acted is what a party has done for certain.
type acted struct {
	commitment [32]byte
	revealed   bool
}

const (
	// Bytes of the caches. Their sum is in package budget (caches).
	smallCache = 4 << 20
	tokenCache = 8 << 20
	dealCache  = 12 << 20
	seenCache  = 8 << 20

	publicCache = 8 << 20
)

// New returns a Service with empty caches.
func New(s *store.Store, secrets *sealing.Secrets, signer Signer, keys *signing.KeySet, log Log, b Beacon, o Options, logger *slog.Logger) *Service {
	if o.Waits == nil {
		o.Waits = waiting.New(s.Progress, nil, logger)
	}
	if o.Development == nil {
		o.Development = func(string) bool { return false }
	}
	svc := &Service{
		store: s, secrets: secrets, signer: signer, keys: keys, log: log, beacon: b, options: o, logger: logger,
		apiKeys:  newCache[hash, *account](smallCache),
		tokens:   newCache[hash, seat](tokenCache),
		deals:    newCache[string, *Deal](dealCache),
		acts:     newCache[seat, acted](smallCache),
		seen:     newCache[string, *store.Snapshot](seenCache),
		verified: newCache[hash, checked](smallCache),
		public:   newCache[string, shown](publicCache),

		contradicted: expirable.NewLRU[string, contradiction](1<<14, nil, contradictedFor),
	}
	svc.public.largest = publicCache // a draw of 10,000 parties; entries are good for a second only
	return svc
}

// Chain returns the beacon chain of new random.v1 deals.
func (s *Service) Chain() drand.Chain { return s.beacon.Chain() }

// sameServer empties the caches if the database server has changed, because the data of the
// new server may be older than the caches. The store notices a change within a second.
func (s *Service) sameServer(ctx context.Context) {
	s.store.Confirm(ctx)
	now := database.Server()
	if before := s.server.Swap(now); before != nil && before != now {
		s.purgeCachesTwice()
	}
}

// purgeCachesTwice empties the caches again later, because calls in flight may have added stale data
// after the first time.
func (s *Service) purgeCachesTwice() {
	s.forget()
	time.AfterFunc(forgetAgain, s.forget)
}

// forgetAgain MUST be longer than timelimits.Call.
const forgetAgain = time.Minute

func (s *Service) forget() {
	s.apiKeys.Purge()
	s.tokens.Purge()
	s.deals.Purge()
	s.acts.Purge()
	s.seen.Purge()
	s.public.Purge()
	s.certified.Store(0)
}

// detached returns a context that does not end when the caller hangs up, so that the service finishes
// an accepted action.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timelimits.Step)
}

// once is singleflight's Do for a call, which has no turn at the CPU while it waits for another one.
func once(ctx context.Context, of *singleflight.Group, key string, do func() (any, error)) (any, error) {
	budget.From(ctx).Rest()
	answer, err, _ := of.Do(key, do)
	return answer, err
}

// overhead is the approximate size, in bytes, of the list and map nodes of an entry.
const overhead = 200

// cache holds immutable values, at most `limit` bytes of them. It evicts the least recently used.
// It is safe for concurrent use.
type cache[K comparable, V any] struct {
	limit   int
	largest int // bytes of an entry

	mu      sync.Mutex // guards the fields below
	used    int        // bytes of all entries
	entries *simplelru.LRU[K, sized[V]]
}

type sized[V any] struct {
	value V
	bytes int
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	c := &cache[K, V]{limit: limit, largest: limit / 4}
	c.entries, _ = simplelru.NewLRU(1<<31-1, func(_ K, v sized[V]) { c.used -= v.bytes }) // NewLRU fails only for sizes below 1
	return c
}

func (c *cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.entries.Get(key)
	return found.value, ok
}

// Add replaces the value of `key`. If the new value is larger than c.largest, Add only removes the old
// one, because the new value would evict too many others.
func (c *cache[K, V]) Add(key K, value V, bytes int) {
	bytes += overhead
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	if bytes > c.largest {
		return
	}
	c.entries.Add(key, sized[V]{value, bytes})
	c.used += bytes
	for c.used > c.limit {
		c.entries.RemoveOldest()
	}
}

func (c *cache[K, V]) Purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Purge()
}

var (
	dealsEnded = telemetry.NewCounterVec("fairpact_deals_ended_total", "Deals that this process ended, by final state.", "state")
	endedBy    = map[deal.State]prometheus.Counter{
		deal.Computed: dealsEnded.WithLabelValues(string(deal.Computed)), deal.Void: dealsEnded.WithLabelValues(string(deal.Void)),
		deal.Expired: dealsEnded.WithLabelValues(string(deal.Expired)), deal.Cancelled: dealsEnded.WithLabelValues(string(deal.Cancelled)),
	}
	lateness = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "fairpact_deadline_lateness_seconds", Help: "Seconds between a deadline and its processing, by the database's clock.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600},
	})
	inputsLost = telemetry.NewCounter("fairpact_inputs_unopened_total",
		"Failed attempts to decrypt a stored input; attempts during resealing are not counted.")
	inputsResealed = telemetry.NewCounter("fairpact_inputs_resealed_total",
		"Stored inputs that this process encrypted again under the active server secret.")
	sealsOpened = telemetry.NewCounterVec("fairpact_seals_opened_total",
		"Timelock seals that this process opened at their round, by outcome: opened, or failed (the seal does not open to its commitment).", "outcome")
	formerSecrets = telemetry.NewGauge("fairpact_former_server_secrets",
		"Former server secrets that stored data still needs. Only the deadline-worker that holds the Lease counts them; any other process shows 0.")
	certificatesIssued = telemetry.NewCounter("fairpact_certificates_issued_total",
		"Certificates whose leaf this process stored.")
)
