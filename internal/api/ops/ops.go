// Package ops runs five calls of the API: create an API key, create a deal, commit,
// reveal, and cancel. For each call it reads the body, checks the caller's limits, and runs
// the use case at most once for each idempotency key. REST and MCP share these functions, so
// both take these steps in the same order.
package ops

import (
	"context"
	"net/http"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/idempotency"
	"github.com/fairpact/fairpact/internal/platform/limits"
)

// Calls has a method for each of the five calls. Escrow runs the use cases, Guard makes the calls
// idempotent, and Callers limits the callers.
type Calls struct {
	Escrow  *escrow.Service
	Guard   *idempotency.Guard
	Callers *limits.Policy
}

// Request is a call over REST or MCP. Its body is not read until Body is called.
type Request struct {
	Body   func() (map[string]any, error)
	Once   func(body map[string]any) (idempotency.Request, error)
	Copies int                                                 // number of copies of the answer in memory while the answer is sent
	Next   func(*escrow.Deal, escrow.Committed) wire.Committed // returns the answer to a commitment, which names the next REST call or MCP tool
}

func read[T any](r Request, parse func(map[string]any) (T, error)) (parsed T, once idempotency.Request, err error) {
	body, err := r.Body()
	if err != nil {
		return parsed, once, err
	}
	if parsed, err = parse(body); err != nil {
		return parsed, once, err
	}
	once, err = r.Once(body)
	return parsed, once, err
}

func anyObject(body map[string]any) (map[string]any, error) { return body, nil }

// CreateKey issues an API key to the caller at an address. It returns RATE_LIMITED if the
// network of the address has reached the limit of new keys a minute.
func (c *Calls) CreateKey(ctx context.Context, address string, r Request) (escrow.NewKey, error) {
	if err := c.Callers.MayTakeKey(ctx, address); err != nil {
		return escrow.NewKey{}, err
	}
	_, once, err := read(r, anyObject)
	if err != nil {
		return escrow.NewKey{}, err
	}
	once.Status, once.Lifetime = http.StatusCreated, idempotency.KeyLifetime
	return idempotency.Do(ctx, c.Guard, once,
		func(rec *idempotency.Record) (escrow.NewKey, error) { return c.Escrow.CreateKey(ctx, rec) },
		idempotency.Lost[escrow.NewKey])
}

// CreateDeal creates a deal for the holder of an API key. It also returns the parsed body.
func (c *Calls) CreateDeal(ctx context.Context, p escrow.Principal, r Request) (escrow.Declared, escrow.Created, error) {
	var none escrow.Created
	if err := c.Escrow.MayCreate(p); err != nil {
		return escrow.Declared{}, none, err
	}
	declared, once, err := read(r, wire.Declared)
	if err != nil {
		return declared, none, err
	}
	once.Status = http.StatusCreated
	// Only this answer shows the tokens, and a refusal after the creation would lose them. So
	// limits.Answer reserves the memory for the answer before the deal is created.
	if err := limits.Answer(ctx, r.Copies*declared.AnswerBytes()); err != nil {
		return declared, none, err
	}
	created, err := idempotency.Do(ctx, c.Guard, once,
		func(rec *idempotency.Record) (escrow.Created, error) {
			if err := c.Callers.MayCreateDeal(ctx, p.Key(), declared.Units()); err != nil {
				return none, err
			}
			return c.Escrow.Create(ctx, p, declared, rec)
		}, idempotency.Lost[escrow.Created])
	return declared, created, err
}

// Commit stores a party's commitment and returns the answer with the next step.
func (c *Calls) Commit(ctx context.Context, access escrow.Access, r Request) (wire.Committed, error) {
	commitment, once, err := read(r, wire.Commitment)
	if err != nil {
		return wire.Committed{}, err
	}
	answered := func(committed escrow.Committed, err error) (wire.Committed, error) {
		return r.Next(access.Deal(), committed), err
	}
	return idempotency.Do(ctx, c.Guard, once,
		func(rec *idempotency.Record) (wire.Committed, error) {
			return answered(c.Escrow.Commit(ctx, access, commitment, rec))
		},
		func() (wire.Committed, error) { return answered(c.Escrow.StoredCommit(ctx, access)) })
}

// Reveal stores a party's input and salt.
func (c *Calls) Reveal(ctx context.Context, access escrow.Access, r Request) (escrow.Revealed, error) {
	opening, once, err := read(r, wire.Opening)
	if err != nil {
		return escrow.Revealed{}, err
	}
	return idempotency.Do(ctx, c.Guard, once,
		func(rec *idempotency.Record) (escrow.Revealed, error) {
			return c.Escrow.Reveal(ctx, access, opening, rec)
		},
		func() (escrow.Revealed, error) { return c.Escrow.StoredReveal(ctx, access) })
}

// Cancel cancels the initiator's deal. Only REST uses it: MCP has no tool to cancel.
func (c *Calls) Cancel(ctx context.Context, access escrow.Access, r Request) (escrow.Cancelled, error) {
	_, once, err := read(r, anyObject)
	if err != nil {
		return escrow.Cancelled{}, err
	}
	return idempotency.Do(ctx, c.Guard, once,
		func(rec *idempotency.Record) (escrow.Cancelled, error) { return c.Escrow.Cancel(ctx, access, rec) },
		func() (escrow.Cancelled, error) { return access.StoredCancel(), nil })
}
