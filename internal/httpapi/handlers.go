package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
)

func catalogue() ([]byte, error) { return escrow.Encode(algorithm.Catalogue()) }

// createKey issues an API key. It has no caller, so that idempotency is scoped
// by the client's address, and Authorization is not looked at.
func (a *API) createKey(w http.ResponseWriter, r *http.Request) {
	address := a.Callers.Address(r)
	if err := a.Callers.MayTakeKey(r.Context(), address); err != nil {
		a.fail(w, r, err)
		return
	}
	body, err := a.body(w, r, maxNobody, true)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.once(w, r, idempotency.Request{Caller: address, Body: canon.Encode(body), Lifetime: idempotency.KeyLifetime, NoCopy: true},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return a.Escrow.CreateKey(r.Context(), rec)
		},
		lost)
}

func (a *API) createDeal(w http.ResponseWriter, r *http.Request) {
	principal, err := a.Escrow.Authenticate(r.Context(), credential(r))
	if err == nil {
		err = a.Escrow.MayCreate(principal)
	}
	var body map[string]any
	if err == nil {
		body, err = a.body(w, r, maxBody, false)
	}
	var req escrow.CreateRequest
	if err == nil {
		req, err = escrow.ParseCreate(body)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.once(w, r, idempotency.Request{Caller: credential(r), Body: canon.Encode(body), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return a.Escrow.Create(r.Context(), principal, req, rec)
		}, lost)
}

// lost renders an answer that is stored with its effect: a record without one
// cannot be.
func lost() (idempotency.Response, error) {
	return idempotency.Response{}, errors.New("httpapi: an idempotency record without its response")
}

func (a *API) commit(w http.ResponseWriter, r *http.Request) {
	access, body, err := a.dealBody(w, r, escrow.Act, false)
	var commitment [32]byte
	if err == nil {
		commitment, err = escrow.ParseCommit(body)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.once(w, r, idempotency.Request{Caller: credential(r), Body: canon.Encode(body), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return a.Escrow.Commit(r.Context(), access, commitment, rec)
		},
		func() (idempotency.Response, error) { return a.Escrow.Committed(r.Context(), access) })
}

func (a *API) reveal(w http.ResponseWriter, r *http.Request) {
	access, body, err := a.dealBody(w, r, escrow.Act, false)
	var req escrow.RevealRequest
	if err == nil {
		req, err = escrow.ParseReveal(body)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.once(w, r, idempotency.Request{Caller: credential(r), Body: canon.Encode(body), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return a.Escrow.Reveal(r.Context(), access, req, rec)
		},
		func() (idempotency.Response, error) { return a.Escrow.Revealed(r.Context(), access) })
}

func (a *API) cancel(w http.ResponseWriter, r *http.Request) {
	access, body, err := a.dealBody(w, r, escrow.CancelDeal, true)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.once(w, r, idempotency.Request{Caller: credential(r), Body: canon.Encode(body), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return a.Escrow.Cancel(r.Context(), access, rec)
		},
		func() (idempotency.Response, error) { return a.Escrow.Cancelled(r.Context(), access) })
}

// read serves a call on a deal that has no body to speak of.
func (a *API) read(action escrow.Action, use func(*escrow.Service, context.Context, escrow.Access) (idempotency.Response, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		access, err := a.access(r, action)
		var resp idempotency.Response
		if err == nil {
			resp, err = use(a.Escrow, r.Context(), access)
		}
		a.answer(w, r, resp, err)
	}
}

func (a *API) verify(w http.ResponseWriter, r *http.Request) {
	resp, err := a.Escrow.Verify(r.Context(), r.PathValue("cert_id"))
	a.answer(w, r, resp, err)
}

// entropy draws. A draw is the same however often it is asked for, so that an
// Idempotency-Key has nothing to add; it is held to its form alone.
func (a *API) entropy(w http.ResponseWriter, r *http.Request) {
	access, err := a.access(r, escrow.DrawEntropy)
	if err == nil {
		_, err = idempotencyKey(r)
	}
	var resp idempotency.Response
	if err == nil {
		resp, err = a.Escrow.Entropy(r.Context(), access)
	}
	a.answer(w, r, resp, err)
}

// access finds the caller and its permission for the path's deal.
func (a *API) access(r *http.Request, action escrow.Action) (escrow.Access, error) {
	principal, err := a.Escrow.Authenticate(r.Context(), credential(r))
	if err != nil {
		return escrow.Access{}, err
	}
	return a.Escrow.Authorize(r.Context(), principal, r.PathValue("id"), action)
}

func (a *API) dealBody(w http.ResponseWriter, r *http.Request, action escrow.Action, empty bool) (escrow.Access, map[string]any, error) {
	access, err := a.access(r, action)
	if err != nil {
		return access, nil, err
	}
	body, err := a.body(w, r, maxBody, empty)
	return access, body, err
}

// body reads a JSON object of at most limit bytes, whatever its Content-Type.
func (a *API) body(w http.ResponseWriter, r *http.Request, limit int64, empty bool) (map[string]any, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes; send a smaller one", limit)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body ended before it was complete; send it again").Because(err)
	}
	return escrow.Body(raw, empty)
}

// credential is the Bearer credential, or nothing. RFC 6750 2.1; the scheme's
// name is case-insensitive (RFC 9110 11.1).
func credential(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(value)
}

// idempotencyKey is the request's Idempotency-Key, empty where it has none.
func idempotencyKey(r *http.Request) (string, error) {
	switch keys, sent := r.Header["Idempotency-Key"]; {
	case !sent:
		return "", nil
	case len(keys) != 1 || !idempotency.ValidKey(keys[0]):
		return "", problem.New(problem.InvalidIdempotencyKey, "Idempotency-Key must be one header of 1 to 255 visible ASCII characters; a random UUID is a good one")
	default:
		return keys[0], nil
	}
}

// once runs an effect under the request's Idempotency-Key, if it has one.
func (a *API) once(w http.ResponseWriter, r *http.Request, req idempotency.Request, effect func(*idempotency.Record) (idempotency.Response, error), render func() (idempotency.Response, error)) {
	var err error
	if req.Key, err = idempotencyKey(r); err != nil {
		a.fail(w, r, err)
		return
	}
	req.Method, req.Path = r.Method, r.URL.Path
	resp, err := a.Guard.Do(r.Context(), req, effect, render)
	a.answer(w, r, resp, err)
}

func (a *API) answer(w http.ResponseWriter, r *http.Request, resp idempotency.Response, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	write(w, resp.Status, resp.Body)
}

// fail answers an error and logs what is behind a 5xx.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	if p.Status() >= 500 && !errors.Is(r.Context().Err(), context.Canceled) {
		cause := p.Error()
		if p.Cause() != nil {
			cause = p.Cause().Error()
		}
		a.Logger.ErrorContext(r.Context(), "request failed", "route", r.Pattern, "code", p.Code, "cause", cause)
	}
	problem.Write(w, p)
}
