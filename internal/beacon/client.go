package beacon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
	"golang.org/x/sync/singleflight"

	"github.com/fairpact/fairpact/internal/crash"
)

var (
	// ErrNotYet means that the round has not come out: every relay says so, or
	// some do, none has it, and by the local clock its time lies ahead.
	ErrNotYet = errors.New("the beacon round is not out yet")

	// ErrUnavailable means that no relay gave a round that verifies. Its text
	// names each relay by host, with what was wrong.
	ErrUnavailable = errors.New("no beacon relay gave a valid round")
)

const (
	relayTimeout = 5 * time.Second        // for one relay's whole answer
	hedgeDelay   = 400 * time.Millisecond // before the next relay is asked as well
	cachedRounds = 1024                   // verified rounds kept in memory
)

// Round is a verified round; the strings are lower-case hex.
type Round struct {
	Round      int64
	Randomness string // 64 digits, SHA-256 of the signature's bytes
	Signature  string // 96 digits, a compressed point of G1
}

// Client fetches rounds of one chain from any of its relays. It is safe for
// concurrent use.
type Client struct {
	chain  Chain
	broken error // what is wrong with the chain
	key    bls.G2Affine
	relays []relay
	http   *http.Client
	flight singleflight.Group
	now    func() time.Time

	mu    sync.Mutex
	known map[int64]Round
	order []int64 // of known, oldest first
}

// NewClient makes a client of a chain. The relays are base addresses, such as
// https://api.drand.sh, asked in this order. A nil hc stands for
// http.DefaultClient. A chain or a list that Chain.Check or CheckRelays refuses
// makes every Fetch fail.
func NewClient(chain Chain, relays []string, hc *http.Client) *Client {
	if hc == nil {
		hc = http.DefaultClient
	}
	c := &Client{chain: chain, http: hc, now: crash.Now, known: map[int64]Round{}}
	if c.broken = chain.Check(); c.broken == nil {
		c.key, c.broken = parseKey(chain.PublicKey)
	}
	for _, base := range relays {
		c.relays = append(c.relays, newRelay(base))
	}
	return c
}

// Chain is the chain that the client was made for.
func (c *Client) Chain() Chain { return c.chain }

// Fetch gives a verified round. Callers that ask for one round at the same time
// share one race of the relays; the race goes on where a caller gives up, so the
// others, and later ones, have its answer. The error wraps ErrBadRound,
// ErrNotYet, ErrUnavailable or the context's own error. It is over within
// seconds.
func (c *Client) Fetch(ctx context.Context, round int64) (Round, error) {
	if round < 1 || round > MaxRound {
		return Round{}, fmt.Errorf("%w, got %d", ErrBadRound, round)
	}
	if known, ok := c.lookup(round); ok {
		return known, nil
	}
	if err := ctx.Err(); err != nil {
		return Round{}, fmt.Errorf("beacon round %d: %w", round, err)
	}
	shared := context.WithoutCancel(ctx)
	answer := c.flight.DoChan(strconv.FormatInt(round, 10), func() (any, error) {
		// A race that ended between the look-up above and this one has it.
		if known, ok := c.lookup(round); ok {
			return known, nil
		}
		fetched, err := c.race(shared, round)
		count(err)
		if err == nil {
			c.keep(fetched)
		}
		return fetched, err
	})
	select {
	case <-ctx.Done():
		return Round{}, fmt.Errorf("beacon round %d: %w", round, ctx.Err())
	case a := <-answer:
		return a.Val.(Round), a.Err
	}
}

// race asks the first relay, one more after each hedgeDelay, and all that are
// left as soon as one has failed. The first round that verifies wins and the
// other requests end.
func (c *Client) race(ctx context.Context, round int64) (Round, error) {
	if c.broken != nil {
		return Round{}, fmt.Errorf("%w: %w", ErrUnavailable, c.broken)
	}
	if len(c.relays) == 0 {
		return Round{}, fmt.Errorf("%w: no relay is configured", ErrUnavailable)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	notDue := c.now().Unix() < c.chain.RoundTime(round)

	type outcome struct {
		relay int
		round Round
		err   error
	}
	outcomes := make(chan outcome, len(c.relays))
	started := 0
	start := func() {
		i := started
		started++
		go func() {
			ctx, cancel := context.WithTimeout(ctx, relayTimeout)
			defer cancel()
			r, err := c.relays[i].round(ctx, c.http, c.chain.Hash, &c.key, round, notDue)
			outcomes <- outcome{i, r, err}
		}()
	}
	hedge := time.NewTicker(hedgeDelay)
	defer hedge.Stop()

	failures := make([]error, len(c.relays))
	start()
	for failed := 0; failed < len(c.relays); {
		select {
		case o := <-outcomes:
			if o.err == nil {
				return o.round, nil
			}
			failures[o.relay] = o.err
			failed++
			for started < len(c.relays) {
				start()
			}
		case <-hedge.C:
			if started < len(c.relays) {
				start()
			}
		}
	}
	return Round{}, c.verdict(round, failures, notDue)
}

// verdict is the error of a race that nobody won.
func (c *Client) verdict(round int64, failures []error, notDue bool) error {
	notOut := 0
	reasons := make([]string, len(failures))
	for i, err := range failures {
		if errors.Is(err, errNotOut) {
			notOut++
		}
		// Cut short: a reason may quote what the relay sent.
		reasons[i] = fmt.Sprintf("%s: %.200s", c.relays[i].host, err.Error())
	}
	// Where relays disagree the clock decides: one dead relay must not make an
	// early question look like a broken beacon, and one that always says "not
	// yet" must not hide that the others are broken.
	if notOut == len(failures) || notOut > 0 && notDue {
		return fmt.Errorf("%w: round %d is due at unix time %d", ErrNotYet, round, c.chain.RoundTime(round))
	}
	return fmt.Errorf("%w for %d: %s", ErrUnavailable, round, strings.Join(reasons, "; "))
}

func (c *Client) lookup(round int64) (Round, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.known[round]
	return known, ok
}

// keep remembers a verified round, and forgets the oldest beyond cachedRounds.
func (c *Client) keep(r Round) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[r.Round]; ok {
		return
	}
	if len(c.order) == cachedRounds {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	c.known[r.Round] = r
	c.order = append(c.order, r.Round)
}
