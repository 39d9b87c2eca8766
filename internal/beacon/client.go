// Package beacon fetches rounds of a drand randomness beacon from relays, which it does
// not trust. It accepts a round only if the round's BLS signature verifies under the
// chain's pinned public key. It computes the randomness from that signature.
package beacon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

var (
	// ErrNotYet is returned when every relay says that the round is not published yet.
	// Before the round is due by the local clock, one relay with this answer is enough.
	ErrNotYet = errors.New("the beacon round is not out yet")

	// ErrUnavailable is returned when every relay failed and ErrNotYet does not apply.
	// The error names the host and the failure of each relay.
	ErrUnavailable = errors.New("no beacon relay returned a valid answer")

	// ErrBusy is an ErrUnavailable that says nothing about the relays: this process has asked them too often.
	ErrBusy = fmt.Errorf("%w: too many rounds were asked for", ErrUnavailable)
)

const (
	relayTimeout = 5 * time.Second        // for the complete answer of one relay
	hedgeDelay   = 400 * time.Millisecond // until the next relay is asked too
	cachedRounds = 1024

	// Any deal may name any old round, so the relays are asked for few of them: they would ban the
	// deployment. Recent rounds have tokens of their own, so that old ones do not delay honest draws.
	recentFor   = 10 * time.Minute
	recentBurst = 60
	recentPer   = time.Second / 5
	oldBurst    = 20
	oldPer      = time.Second / 2
)

// Round is a verified round; the strings are lower-case hex.
type Round struct {
	Round      int64
	Randomness string // 64 digits, SHA-256 of the signature's bytes
	Signature  string // 96 digits, a compressed point of G1
}

// Client fetches rounds of one chain from relays. It is safe for concurrent use.
type Client struct {
	chain  drand.Chain
	relays []relay
	http   *http.Client
	flight singleflight.Group
	now    func() time.Time
	known  *lru.Cache[int64, Round]

	recent, old *rate.Limiter // of races
}

// NewClient returns a client of a chain. It asks the relays in this order. The caller MUST check
// them with CheckRelays.
func NewClient(chain drand.Chain, relays []string) *Client {
	known, _ := lru.New[int64, Round](cachedRounds) // fails only for a size below 1
	c := &Client{chain: chain, http: http.DefaultClient, now: crash.Now, known: known,
		recent: rate.NewLimiter(rate.Every(recentPer), recentBurst), old: rate.NewLimiter(rate.Every(oldPer), oldBurst)}
	for _, base := range relays {
		c.relays = append(c.relays, newRelay(base))
	}
	return c
}

// Chain returns the client's chain.
func (c *Client) Chain() drand.Chain { return c.chain }

// Fetch returns a verified round. Concurrent calls for one round share the requests, which
// continue if one caller gives up. The error wraps drand.ErrBadRound, ErrNotYet, ErrUnavailable, ErrBusy or
// the context's error. A call may take seconds.
func (c *Client) Fetch(ctx context.Context, round int64) (Round, error) {
	if round < 1 || round > drand.MaxRound {
		return Round{}, fmt.Errorf("%w: %d", drand.ErrBadRound, round)
	}
	if known, ok := c.known.Get(round); ok {
		return known, nil
	}
	if err := ctx.Err(); err != nil {
		return Round{}, fmt.Errorf("beacon round %d: %w", round, err)
	}
	budget.From(ctx).Rest()
	shared := context.WithoutCancel(ctx)
	answer := c.flight.DoChan(strconv.FormatInt(round, 10), func() (any, error) {
		// Another call may have cached the round since the first look-up.
		if known, ok := c.known.Get(round); ok {
			return known, nil
		}
		if !c.mayAsk(round) {
			fetchBusy.Inc()
			return Round{}, fmt.Errorf("%w; round %d", ErrBusy, round)
		}
		fetched, err := c.race(shared, round)
		count(err)
		if err == nil {
			c.known.Add(round, fetched)
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

// mayAsk takes a token for a race.
func (c *Client) mayAsk(round int64) bool {
	now, tokens := c.now(), c.old
	if now.Sub(time.Unix(c.chain.RoundTime(round), 0)) < recentFor {
		tokens = c.recent
	}
	return tokens.AllowN(now, 1)
}

// race asks one more relay after each hedgeDelay, and all once one has failed. The first round
// that verifies wins.
func (c *Client) race(ctx context.Context, round int64) (Round, error) {
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
			r, err := c.relays[i].round(ctx, c.http, c.chain, round, notDue)
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

func (c *Client) verdict(round int64, failures []error, notDue bool) error {
	notOut := 0
	reasons := make([]string, len(failures))
	for i, err := range failures {
		if errors.Is(err, errNotOut) {
			notOut++
		}
		// An error may quote a long text from the relay.
		reasons[i] = fmt.Sprintf("%s: %.200s", c.relays[i].host, err.Error())
	}
	// If only some relays say "not yet", the local clock decides: a dead relay must not make the
	// beacon look broken, nor one that always says "not yet" hide that the others are broken.
	if notOut == len(failures) || notOut > 0 && notDue {
		return fmt.Errorf("%w: round %d is due at unix time %d", ErrNotYet, round, c.chain.RoundTime(round))
	}
	return fmt.Errorf("%w for round %d: %s", ErrUnavailable, round, strings.Join(reasons, "; "))
}

var fetches = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "fairpact_beacon_fetches_total", Help: "Beacon rounds requested from the relays, by outcome: ok, too_early, failed, or busy (no relay was asked, because this process has asked too often).",
}, []string{"outcome"})

var fetchedOK, fetchedEarly, fetchFailed, fetchBusy = fetches.WithLabelValues("ok"), fetches.WithLabelValues("too_early"), fetches.WithLabelValues("failed"), fetches.WithLabelValues("busy")

func count(err error) {
	switch {
	case err == nil:
		fetchedOK.Inc()
	case errors.Is(err, ErrNotYet):
		fetchedEarly.Inc()
	default:
		fetchFailed.Inc()
	}
}

// maxBody is the longest answer that a relay may send, in bytes. A round takes about 210.
const maxBody = 8 << 10

var errNotOut = errors.New("the relay says that the round is not out yet")

// relay is the address of a drand relay. It can withhold a round but cannot forge one.
type relay struct {
	base string // without a trailing slash
	host string // shown in errors; the rest of base may contain a secret
}

func newRelay(base string) relay {
	r := relay{base: strings.TrimRight(base, "/"), host: "(relay without a host)"}
	if u, err := url.Parse(base); err == nil && u.Host != "" {
		r.host = u.Host
	}
	return r
}

// CheckRelays returns an error if the list is empty or an address is invalid. The error
// does not contain the address, which may contain a secret.
func CheckRelays(relays []string) error {
	if len(relays) == 0 {
		return errors.New("no beacon relay is configured: name at least one, such as https://api.drand.sh")
	}
	for i, base := range relays {
		u, err := url.Parse(base)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("the beacon relay at index %d is invalid: write an http or https address without query and fragment, such as https://api.drand.sh", i)
		}
	}
	return nil
}

// round asks for one round and verifies the answer. For a round that is not due (by the local
// clock), older drand relays answer 404 instead of 425. Otherwise 404 means that the relay does
// not serve the chain.
func (r relay) round(ctx context.Context, hc *http.Client, chain drand.Chain, round int64, notDue bool) (Round, error) {
	address := r.base + "/" + chain.Hash + "/public/" + strconv.FormatInt(round, 10)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Round{}, errors.New("the relay's address is not a URL")
	}
	request.Header.Set("Accept", "application/json")
	response, err := hc.Do(request)
	if err != nil {
		return Round{}, transportError(err)
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusTooEarly, code == http.StatusNotFound && notDue:
		return Round{}, errNotOut
	case code != http.StatusOK:
		return Round{}, fmt.Errorf("status %d", code)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return Round{}, transportError(err)
	}
	if len(body) > maxBody {
		return Round{}, fmt.Errorf("the answer is over %d bytes", maxBody)
	}
	return parseRound(body, chain, round)
}

// transportError removes the relay's URL from an error, because the URL may contain a secret.
func transportError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", relayTimeout)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// parseRound verifies an answer. If it contains randomness, which drand's newer interface does
// not send, that value MUST be right.
func parseRound(body []byte, chain drand.Chain, round int64) (Round, error) {
	var answer struct {
		Round      int64   `json:"round"`
		Randomness *string `json:"randomness"`
		Signature  string  `json:"signature"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Round{}, errors.New("the answer is not the JSON of a round")
	}
	if answer.Round != round {
		return Round{}, fmt.Errorf("the answer is round %d instead of %d", answer.Round, round)
	}
	signature, err := hex.DecodeString(answer.Signature)
	if err != nil {
		return Round{}, errors.New("the signature is not hex")
	}
	digest, err := chain.Verify(round, signature)
	if err != nil {
		return Round{}, err
	}
	randomness := hex.EncodeToString(digest[:])
	if answer.Randomness != nil && !strings.EqualFold(*answer.Randomness, randomness) {
		return Round{}, errors.New("the randomness is not the SHA-256 of the signature")
	}
	return Round{Round: round, Randomness: randomness, Signature: hex.EncodeToString(signature)}, nil
}
