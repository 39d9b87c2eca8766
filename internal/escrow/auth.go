package escrow

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Prefixes of the two kinds of credential. SPEC 2.1 fixes the first.
const (
	keyPrefix   = "fp_"
	tokenPrefix = "it_"
)

// Principal is who a credential speaks for: an API key, or one party of one deal.
type Principal struct {
	keyHash []byte   // API key
	account *account // API key
	seat    seat     // invite token
}

func (p Principal) isParty() bool { return p.keyHash == nil }

// Key names an API key without showing it; empty for an invite token.
func (p Principal) Key() string { return hex.EncodeToString(p.keyHash) }

// NewKey is an API key, shown once (SPEC 2.1).
type NewKey struct {
	APIKey string `json:"api_key"`
}

// CreateKey issues an API key. SPEC 1: no signup and no e-mail.
func (s *Service) CreateKey(ctx context.Context, rec *idempotency.Record) (NewKey, error) {
	key := NewKey{sealing.Token(keyPrefix)}
	replay, err := rec.ReplayWith(key)
	if err != nil {
		return key, err
	}
	return key, s.store.InsertKey(ctx, sealing.TokenHash(key.APIKey), replay)
}

// Authenticate finds who a Bearer credential speaks for. An unknown one is
// refused with INVALID_CREDENTIAL.
func (s *Service) Authenticate(ctx context.Context, credential string) (Principal, error) {
	s.sameServer(ctx)
	sum := sealing.TokenHash(credential)
	switch {
	case strings.HasPrefix(credential, keyPrefix):
		if a, ok := s.apiKeys.Get(hash(sum)); ok {
			return Principal{keyHash: sum, account: a}, nil
		}
		known, open, err := s.store.UseKey(ctx, sum, max(0, s.options.OpenUnits))
		reading := problem.Is(err, problem.ReadOnly)
		if reading {
			known, err = s.store.KnownKey(ctx, sum)
		}
		if err != nil {
			return Principal{}, err
		}
		if known {
			a := &account{open: open, counted: time.Now()}
			if !reading { // else this was not the first use, which ends the replay of the key
				s.apiKeys.Add(hash(sum), a, 0)
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
	return Principal{}, problem.New(problem.InvalidCredential, "this credential is unknown; pass an API key (fp_…) from %s or an invite token (it_…) from %s, unchanged",
		problem.Call{Op: problem.CreateKey}, problem.Call{Op: problem.CreateDeal})
}

func (s *Service) seatOf(ctx context.Context, tokenHash []byte) (seat, error) {
	if at, ok := s.tokens.Get(hash(tokenHash)); ok {
		return at, nil
	}
	dealID, party, err := s.store.PartyByToken(ctx, tokenHash)
	if err != nil {
		return seat{}, err
	}
	at := seat{dealID, party}
	s.tokens.Add(hash(tokenHash), at, len(dealID))
	return at, nil
}

// Action is what a principal wants of a deal.
type Action int

// The actions and who may take them (SPEC 4, 5).
const (
	Read            Action = iota // the initiator's key or any invite token
	Act                           // commit, reveal: an invite token
	ReadCertificate               // an invite token
	ReadInputs                    // an invite token
	DrawEntropy                   // any invite token or the initiator's key
	CancelDeal                    // the initiator's key
)

// Access is a principal's permission for one action on one deal.
type Access struct {
	deal  *Deal
	party int // -1: the initiator's API key
}

// Deal is what was declared of the deal.
func (a Access) Deal() *Deal { return a.deal }

// Party is whose invite token gave access; -1: the initiator's API key.
func (a Access) Party() int { return a.party }

// Authorize permits an action on a deal. An unknown deal is DEAL_NOT_FOUND on
// Read and FORBIDDEN elsewhere.
func (s *Service) Authorize(ctx context.Context, p Principal, dealID string, action Action) (Access, error) {
	create := problem.Call{Op: problem.CreateDeal}
	d, err := s.dealOf(ctx, dealID)
	if errors.Is(err, store.ErrNotFound) {
		if action == Read {
			return Access{}, problem.New(problem.DealNotFound, "no deal has this id; use the deal_id that %s answered", create)
		}
		return Access{}, problem.New(problem.Forbidden, "this credential is not for this deal; use an invite token of the deal and the deal_id that %s answered", create)
	}
	if err != nil {
		return Access{}, err
	}
	partyOnly := action == Act || action == ReadCertificate || action == ReadInputs
	switch {
	case p.isParty() && action == CancelDeal:
		return Access{}, problem.New(problem.Forbidden, "only the initiator can cancel; pass the API key that created the deal")
	case p.isParty() && p.seat.dealID != dealID:
		return Access{}, problem.New(problem.Forbidden, "this invite token is for another deal; use the token that belongs to this deal_id")
	case p.isParty():
		return Access{d, p.seat.party}, nil
	case partyOnly:
		return Access{}, problem.New(problem.Forbidden, "pass an invite token of this deal, not an API key; the initiator is party 0 and uses that party's token")
	case !bytes.Equal(p.keyHash, d.OwnerHash) && action == CancelDeal:
		return Access{}, problem.New(problem.Forbidden, "this API key did not create this deal; pass the initiator's key")
	case !bytes.Equal(p.keyHash, d.OwnerHash):
		return Access{}, problem.New(problem.Forbidden, "this API key did not create this deal; pass the initiator's key or an invite token of the deal")
	}
	return Access{d, -1}, nil
}
