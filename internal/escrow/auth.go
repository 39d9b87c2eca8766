package escrow

import (
	"bytes"
	"context"
	"errors"
	"strings"

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
	keyHash []byte // API key
	dealID  string // invite token, like the next
	party   int
}

func (p Principal) isParty() bool { return p.keyHash == nil }

// CreateKey issues an API key. SPEC 1: no signup and no e-mail.
func (s *Service) CreateKey(ctx context.Context, rec *idempotency.Record) (idempotency.Response, error) {
	key := sealing.Token(keyPrefix)
	resp, err := respond(201, struct {
		APIKey string `json:"api_key"`
	}{key})
	if err != nil {
		return resp, err
	}
	replay, err := rec.ReplayWith(resp.Status, resp.Body)
	if err != nil {
		return resp, err
	}
	return resp, s.store.InsertKey(ctx, sealing.TokenHash(key), replay)
}

// Authenticate finds who a Bearer credential speaks for; it is refused with 401
// where nobody.
func (s *Service) Authenticate(ctx context.Context, credential string) (Principal, error) {
	hash := sealing.TokenHash(credential)
	switch {
	case credential == "":
		return Principal{}, problem.New(problem.AuthRequired, "pass `Authorization: Bearer <API_KEY or INVITE_TOKEN>`; get an API key with POST /v1/keys")
	case strings.HasPrefix(credential, keyPrefix):
		if s.apiKeys.Contains(string(hash)) {
			return Principal{keyHash: hash}, nil
		}
		known, err := s.store.UseKey(ctx, hash)
		if err != nil {
			return Principal{}, err
		}
		if known {
			s.apiKeys.Add(string(hash), struct{}{})
			return Principal{keyHash: hash}, nil
		}
	case strings.HasPrefix(credential, tokenPrefix):
		if at, ok := s.tokens.Get(string(hash)); ok {
			return Principal{dealID: at.dealID, party: at.party}, nil
		}
		dealID, party, err := s.store.PartyByToken(ctx, hash)
		if err == nil {
			s.tokens.Add(string(hash), seat{dealID, party})
			return Principal{dealID: dealID, party: party}, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return Principal{}, err
		}
	}
	return Principal{}, problem.New(problem.InvalidCredential, "this credential is unknown; pass an API key (fp_…) from POST /v1/keys or an invite token (it_…) from POST /v1/deals, unchanged")
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
	deal  *declaration
	party int // -1: the initiator's API key
}

// Party is whose invite token gave access; -1: the initiator's API key.
func (a Access) Party() int { return a.party }

// Authorize permits an action on a deal. An unknown deal is 404 on Read and 403
// elsewhere.
func (s *Service) Authorize(ctx context.Context, p Principal, dealID string, action Action) (Access, error) {
	d, err := s.declared(ctx, dealID) // ErrNotFound also where the id has not the form of one
	if errors.Is(err, store.ErrNotFound) {
		if action == Read {
			return Access{}, problem.New(problem.DealNotFound, "no deal has this id; use the deal_id that POST /v1/deals answered")
		}
		return Access{}, problem.New(problem.Forbidden, "this credential is not for this deal; use an invite token of the deal and the deal_id that POST /v1/deals answered")
	}
	if err != nil {
		return Access{}, err
	}
	partyOnly := action == Act || action == ReadCertificate || action == ReadInputs
	switch {
	case p.isParty() && action == CancelDeal:
		return Access{}, problem.New(problem.Forbidden, "only the initiator can cancel; pass the API key that created the deal")
	case p.isParty() && p.dealID != dealID:
		return Access{}, problem.New(problem.Forbidden, "this invite token is for another deal; use the token that belongs to this deal_id")
	case p.isParty():
		return Access{d, p.party}, nil
	case partyOnly:
		return Access{}, problem.New(problem.Forbidden, "pass an invite token of this deal, not an API key; the initiator is party 0 and uses that party's token")
	case !bytes.Equal(p.keyHash, d.OwnerHash):
		return Access{}, problem.New(problem.Forbidden, "this API key did not create this deal; pass the initiator's key or an invite token of the deal")
	}
	return Access{d, -1}, nil
}
