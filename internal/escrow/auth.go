package escrow

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Prefixes of API keys (SPEC 2.1) and of invite tokens.
const (
	keyPrefix   = "fp_"
	tokenPrefix = "it_"
)

// Principal is a caller: the holder of an API key, or of one party's invite token.
type Principal struct {
	keyHash []byte   // nil for an invite token
	account *account // nil for an invite token
	seat    seat     // the party of an invite token; zero for an API key
}

func (p Principal) isParty() bool { return p.keyHash == nil }

// Key identifies the API key without revealing it: the hex of its hash. It is "" for an invite token.
func (p Principal) Key() string { return hex.EncodeToString(p.keyHash) }

// NewKey is the answer to CreateKey (SPEC 2.1).
type NewKey struct {
	APIKey string `json:"api_key"`
}

// CreateKey makes an API key. SPEC 1: no signup and no e-mail.
func (s *Service) CreateKey(ctx context.Context, rec *Record) (NewKey, error) {
	key := NewKey{sealing.Token(keyPrefix)}
	replay, err := rec.ReplayWith(key)
	if err != nil {
		return key, err
	}
	done, err := budget.From(ctx).One(ctx, budget.NewKey)
	if err != nil {
		return key, err
	}
	defer done()
	return key, s.store.InsertKey(ctx, sealing.TokenHash(key.APIKey), replay)
}

// Authenticate returns the holder of a Bearer credential, or INVALID_CREDENTIAL.
func (s *Service) Authenticate(ctx context.Context, credential string) (Principal, error) {
	s.sameServer(ctx)
	sum := sealing.TokenHash(credential)
	switch {
	case strings.HasPrefix(credential, keyPrefix):
		if a, ok := s.apiKeys.Get(hash(sum)); ok {
			return Principal{keyHash: sum, account: a}, nil
		}
		done, err := budget.From(ctx).One(ctx, budget.Lookup)
		if err != nil {
			return Principal{}, err
		}
		defer done()
		known, open, err := s.store.UseKey(ctx, sum, max(0, s.options.OpenUnits))
		if err != nil {
			return Principal{}, err
		}
		if known {
			a := &account{open: open, counted: time.Now()}
			switch err := s.store.EndKeyReplay(ctx, sum); {
			case err == nil:
				s.apiKeys.Add(hash(sum), a, 0)
			case !problem.Is(err, problem.ReadOnly): // then a later call must end the replay, so the key is not cached
				return Principal{}, err
			}
			return Principal{keyHash: sum, account: a}, nil
		}
	case strings.HasPrefix(credential, tokenPrefix):
		at, err := s.seatOf(ctx, sum)
		if err == nil {
			return Principal{seat: at}, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return Principal{}, err
		}
	}
	return Principal{}, unknownCredential()
}

func unknownCredential() error {
	return problem.New(problem.InvalidCredential, "this credential is unknown; pass an API key (fp_…) or an invite token (it_…) exactly as %s or %s returned it",
		problem.Call{Op: problem.CreateKey}, problem.Call{Op: problem.CreateDeal})
}

func (s *Service) seatOf(ctx context.Context, tokenHash []byte) (seat, error) {
	if at, ok := s.tokens.Get(hash(tokenHash)); ok {
		return at, nil
	}
	done, err := budget.From(ctx).One(ctx, budget.Lookup)
	if err != nil {
		return seat{}, err
	}
	defer done()
	dealID, party, err := s.store.PartyByToken(ctx, tokenHash)
	if err != nil {
		return seat{}, err
	}
	at := seat{dealID, party}
	s.tokens.Add(hash(tokenHash), at, len(dealID))
	return at, nil
}

// KnowsToken reports whether a credential is an invite token that this process has seen lately. It reads nothing.
func (s *Service) KnowsToken(credential string) bool {
	if !strings.HasPrefix(credential, tokenPrefix) {
		return false
	}
	_, known := s.tokens.Get(hash(sealing.TokenHash(credential)))
	return known
}

// Action is a kind of request about a deal.
type Action int

// The actions, each with the credentials of the deal that permit it (SPEC 4, 5).
const (
	Read        Action = iota // permitted to any invite token of the deal and to the initiator's API key
	AsParty                   // commit, reveal, or read certificate, bundle or inputs; permitted to any invite token
	DrawEntropy               // permitted to any invite token of the deal and to the initiator's API key
	CancelDeal                // permitted only to the initiator's API key
)

// Access is a principal's permission for one action on one deal.
type Access struct {
	deal   *Deal
	party  int // -1 if the initiator's API key gave access, and for an audience
	by     Principal
	action Action
}

// Deal returns the deal.
func (a Access) Deal() *Deal { return a.deal }

// Party returns the party whose invite token gave access, or -1 for the initiator's API key and for an audience.
func (a Access) Party() int { return a.party }

func (a Access) call(op problem.Op) problem.Call { return problem.Call{Op: op, DealID: a.deal.DealID} }

// Authorize permits an action on a deal, or refuses it with FORBIDDEN. A Read of an unknown
// deal is refused with DEAL_NOT_FOUND.
func (s *Service) Authorize(ctx context.Context, p Principal, dealID string, action Action) (Access, error) {
	d, err := s.dealOf(ctx, dealID)
	if errors.Is(err, store.ErrNotFound) {
		return Access{}, unknownDeal(action)
	}
	if err != nil {
		return Access{}, err
	}
	switch {
	case p.isParty() && action == CancelDeal:
		return Access{}, onlyTheInitiator()
	case p.isParty() && p.seat.dealID != dealID:
		return Access{}, problem.New(problem.Forbidden, "this invite token is for another deal; use the token that belongs to this deal_id")
	case p.isParty():
		return Access{d, p.seat.party, p, action}, nil
	case action == AsParty:
		return Access{}, problem.New(problem.Forbidden, "this call needs an invite token, not an API key; pass your invite token of this deal (the initiator passes the token of party 0)")
	case !bytes.Equal(p.keyHash, d.OwnerHash) && action == CancelDeal:
		return Access{}, onlyTheInitiator()
	case !bytes.Equal(p.keyHash, d.OwnerHash):
		return Access{}, problem.New(problem.Forbidden, "this API key did not create this deal; pass the initiator's key or an invite token of the deal")
	}
	return Access{d, -1, p, action}, nil
}

// onlyTheInitiator refuses every other cancellation, of a deal that exists or not, in the same words.
func onlyTheInitiator() error {
	return problem.New(problem.Forbidden, "only the initiator can cancel; pass the API key that created the deal, and the deal_id that %s returned with it", problem.Call{Op: problem.CreateDeal})
}

func unknownDeal(action Action) error {
	create := problem.Call{Op: problem.CreateDeal}
	if action == Read {
		return problem.New(problem.DealNotFound, "no deal has this id; use the deal_id that %s returned", create)
	}
	if action == CancelDeal { // an invite token would be refused too
		return onlyTheInitiator()
	}
	return problem.New(problem.Forbidden, "this credential is not for this deal; use an invite token of the deal and the deal_id that %s returned", create)
}

// dealMissing returns the error for a deal that is cached but not in the database, as after a dump is
// restored without a restart of the server. It empties the caches, which may be stale too.
func (s *Service) dealMissing(a Access) error {
	s.purgeCachesTwice()
	if a.by.isParty() {
		return unknownCredential()
	}
	return unknownDeal(a.action)
}

const (
	// Declared.Units: one, plus one for each full 100 parties and each full 10 KiB of labels, seat keys,
	// params, title and message.
	partiesPerUnit = 100
	bytesPerUnit   = 10 << 10

	// While an API key is at its limit, this process counts the key's open deals in the database
	// at most once per recountEvery. Below the limit, it counts again after it has created deals
	// of about limit/recountAfter units, because other replicas create deals too.
	recountEvery = 10 * time.Second
	recountAfter = 16
)

// account holds what this process knows about the units of one API key's open deals. Between two
// counts in the database it sees neither deals that end nor deals that other replicas create. So N
// replicas together allow a key at most 1 + N/recountAfter times the limit.
type account struct {
	mu      sync.Mutex
	open    int // units of open deals: the last count in the database, plus creations in flight then, plus creations since
	created int // units of the deals created since the last count
	pending int // units of creations in flight: a count in the database may miss their deals
	counted time.Time
}

// charge adds a new deal's units to those of the API key's open deals, or returns RATE_LIMITED. The
// caller MUST call done after the creation of the deal, even if it failed. A deal that is stored
// during a count in the database may count twice until the next count.
func (s *Service) charge(ctx context.Context, p Principal, units int) (done func(), err error) {
	most, a := s.options.OpenUnits, p.account
	if most <= 0 {
		return func() {}, nil
	}
	units = min(units, most) // so that an API key without open deals can create one deal of any size
	budget.From(ctx).Rest()  // the count happens under the lock
	a.mu.Lock()
	defer a.mu.Unlock()
	full := a.open+units > most
	if full && time.Since(a.counted) >= recountEvery || !full && a.created+units > most/recountAfter {
		_, open, err := s.store.UseKey(ctx, p.keyHash, most)
		if err != nil {
			return nil, err
		}
		a.open, a.created, a.counted = open+a.pending, 0, time.Now()
	}
	if a.open+units > most {
		return nil, problem.New(problem.RateLimited, "the open deals of this API key cost %d of at most %d units, and this deal costs %d (one unit, plus one for each %d parties and one for each %d KiB of labels, seat keys, params, title and message): wait until open deals end, or cancel open deals in which no other party has committed",
			a.open, most, units, partiesPerUnit, bytesPerUnit>>10).WithRetryAfter(int64(recountEvery / time.Second))
	}
	a.open += units
	a.created += units
	a.pending += units
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pending -= units
	}, nil
}
