package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/wire"
)

// createKey issues an API key. It has no caller, so that idempotency is scoped
// by the client's address, and Authorization is not looked at.
func (a *API) createKey(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	address := a.Callers.Address(r)
	if err := a.Callers.MayTakeKey(r.Context(), address); err != nil {
		return nil, err
	}
	body, err := a.body(w, r, maxSmall, true)
	if err != nil {
		return nil, err
	}
	once, err := request(r, address, body)
	if err != nil {
		return nil, err
	}
	once.Status, once.Lifetime, once.NoCopy = http.StatusCreated, idempotency.KeyLifetime, true
	return encoded(idempotency.Do(r.Context(), a.Guard, once,
		func(rec *idempotency.Record) (escrow.NewKey, error) { return a.Escrow.CreateKey(r.Context(), rec) },
		idempotency.Lost[escrow.NewKey]))
}

func (a *API) createDeal(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	principal, err := a.principal(r)
	if err != nil {
		return nil, err
	}
	if err := a.Escrow.MayCreate(principal); err != nil {
		return nil, err
	}
	body, err := a.body(w, r, maxCreation, false)
	if err != nil {
		return nil, err
	}
	declared, err := wire.Declared(body)
	if err != nil {
		return nil, err
	}
	once, err := request(r, credential(r), body)
	if err != nil {
		return nil, err
	}
	if err := limits.Answer(r.Context(), declared.AnswerBytes()); err != nil {
		return nil, err
	}
	once.Status = http.StatusCreated
	return encoded(idempotency.Do(r.Context(), a.Guard, once,
		func(rec *idempotency.Record) (escrow.Created, error) {
			if err := a.Callers.MayCreateDeal(r.Context(), principal.Key(), declared.Units()); err != nil {
				return escrow.Created{}, err
			}
			return a.Escrow.Create(r.Context(), principal, declared, rec)
		}, idempotency.Lost[escrow.Created]))
}

func (a *API) commit(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, body, err := a.dealBody(w, r, escrow.Act, maxSmall, false)
	if err != nil {
		return nil, err
	}
	commitment, err := wire.Commitment(body)
	if err != nil {
		return nil, err
	}
	once, err := request(r, credential(r), body)
	if err != nil {
		return nil, err
	}
	worded := func(c escrow.Committed, err error) (wire.CommittedBody, error) {
		return wire.Committed(access.Deal(), c), err
	}
	return encoded(idempotency.Do(r.Context(), a.Guard, once,
		func(rec *idempotency.Record) (wire.CommittedBody, error) {
			return worded(a.Escrow.Commit(r.Context(), access, commitment, rec))
		},
		func() (wire.CommittedBody, error) { return worded(a.Escrow.Committed(r.Context(), access)) }))
}

func (a *API) reveal(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, body, err := a.dealBody(w, r, escrow.Act, maxReveal, false)
	if err != nil {
		return nil, err
	}
	opening, err := wire.Opening(body)
	if err != nil {
		return nil, err
	}
	once, err := request(r, credential(r), body)
	if err != nil {
		return nil, err
	}
	return encoded(idempotency.Do(r.Context(), a.Guard, once,
		func(rec *idempotency.Record) (escrow.Revealed, error) {
			return a.Escrow.Reveal(r.Context(), access, opening, rec)
		},
		func() (escrow.Revealed, error) { return a.Escrow.Revealed(r.Context(), access) }))
}

func (a *API) cancel(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, body, err := a.dealBody(w, r, escrow.CancelDeal, maxSmall, true)
	if err != nil {
		return nil, err
	}
	once, err := request(r, credential(r), body)
	if err != nil {
		return nil, err
	}
	return encoded(idempotency.Do(r.Context(), a.Guard, once,
		func(rec *idempotency.Record) (escrow.Cancelled, error) {
			return a.Escrow.Cancel(r.Context(), access, rec)
		},
		func() (escrow.Cancelled, error) { return access.Cancelled(), nil }))
}

// entropy draws. A draw is the same however often it is asked for, so that an
// Idempotency-Key has nothing to add; only its syntax is checked.
func (a *API) entropy(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, err := a.access(r, escrow.DrawEntropy)
	if err != nil {
		return nil, err
	}
	if _, err := idempotencyKey(r); err != nil {
		return nil, err
	}
	return encoded(a.Escrow.Entropy(r.Context(), access))
}

func (a *API) view(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, err := a.access(r, escrow.Read)
	if err != nil {
		return nil, err
	}
	wait, err := a.wait(r)
	if err != nil {
		return nil, err
	}
	view, err := a.Escrow.ViewAfter(r.Context(), access, wait)
	if err != nil {
		return nil, err
	}
	if at, more := a.Escrow.LookAt(view); more {
		w.Header().Set(nextLook, strconv.FormatInt(at, 10))
	}
	if party := access.Party(); party >= 0 {
		w.Header().Set("Fairpact-Party", strconv.Itoa(party))
	}
	for _, caution := range view.Cautions() {
		w.Header().Add("Fairpact-Caution", caution+".") // they hold commas: the full stop ends each where a client joins them
	}
	return wire.View(view)
}

func (a *API) certificate(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, err := a.access(r, escrow.ReadCertificate)
	if err != nil {
		return nil, err
	}
	wait, err := a.wait(r)
	if err != nil {
		return nil, err
	}
	issued, err := a.Escrow.CertificateAfter(r.Context(), access, wait, func() (escrow.Issued, error) { return a.Escrow.Certificate(r.Context(), access) })
	if err != nil {
		return nil, err
	}
	return wire.Certificate(issued)
}

func (a *API) bundle(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, err := a.access(r, escrow.ReadCertificate)
	if err != nil {
		return nil, err
	}
	bundle, err := a.Escrow.Bundle(r.Context(), access)
	if err != nil {
		return nil, err
	}
	return wire.Bundle(bundle)
}

func (a *API) declaration(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, err := a.access(r, escrow.Read)
	if err != nil {
		return nil, err
	}
	declaration, err := a.Escrow.Declaration(r.Context(), access)
	if err != nil {
		return nil, err
	}
	return wire.Declaration(declaration)
}

func (a *API) inputs(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	access, err := a.access(r, escrow.ReadInputs)
	if err != nil {
		return nil, err
	}
	inputs, err := a.Escrow.Inputs(r.Context(), access)
	if err != nil {
		return nil, err
	}
	return wire.Inputs(access.Deal().DealID, inputs)
}

func (a *API) verify(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	return encoded(a.Escrow.Verify(r.Context(), r.PathValue("cert_id")))
}

// verifyHanded checks the certificate in the body.
func (a *API) verifyHanded(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := a.body(w, r, maxHanded, false)
	if err != nil {
		return nil, err
	}
	document, certID, err := wire.Handed(body)
	if err != nil {
		return nil, err
	}
	return encoded(a.Escrow.VerifyHanded(r.Context(), document, certID))
}

// encoded writes what a use case answered.
func encoded[T any](v T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return wire.Encode(v)
}

// principal finds who calls.
func (a *API) principal(r *http.Request) (escrow.Principal, error) {
	presented := credential(r)
	if presented == "" { // SPEC 5.5
		return escrow.Principal{}, problem.New(problem.AuthRequired, "pass `Authorization: Bearer <API_KEY or INVITE_TOKEN>`; get an API key with %s", problem.Call{Op: problem.CreateKey})
	}
	return a.Escrow.Authenticate(r.Context(), presented)
}

// access finds the caller and its permission for the path's deal.
func (a *API) access(r *http.Request, action escrow.Action) (escrow.Access, error) {
	principal, err := a.principal(r)
	if err != nil {
		return escrow.Access{}, err
	}
	return a.Escrow.Authorize(r.Context(), principal, r.PathValue("id"), action)
}

func (a *API) dealBody(w http.ResponseWriter, r *http.Request, action escrow.Action, limit int64, empty bool) (escrow.Access, map[string]any, error) {
	access, err := a.access(r, action)
	if err != nil {
		return access, nil, err
	}
	body, err := a.body(w, r, limit, empty)
	return access, body, err
}

// body reads a JSON object of at most limit bytes, whatever its Content-Type.
func (a *API) body(w http.ResponseWriter, r *http.Request, limit int64, empty bool) (map[string]any, error) {
	raw, err := limits.ReadAll(w, r, limit)
	if refused, ok := errors.AsType[*problem.Error](err); ok { // package limits
		return nil, refused
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, problem.New(problem.BodyTooLarge, "the body is over %d bytes; send a smaller one", limit)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "the body ended before it was complete; send it again").Because(err)
	}
	return wire.Object(raw, empty)
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

// request is the call as idempotency sees it.
func request(r *http.Request, caller string, body map[string]any) (idempotency.Request, error) {
	key, err := idempotencyKey(r)
	return idempotency.Request{
		Key: key, Caller: caller, Method: r.Method, Path: r.URL.Path, Status: http.StatusOK,
		Body: func() []byte { return canon.Encode(body) }, Lifetime: idempotency.Lifetime,
	}, err
}

// answers serves a handler that returns the body of success.
func (a *API) answers(status int, handle func(http.ResponseWriter, *http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := handle(w, r)
		if err == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			err = limits.Answer(r.Context(), len(body))
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		answer.JSON(w, status, body)
	}
}

// fail answers an error and logs what is behind a 5xx, once a minute for each code.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	if p.Status() >= 500 && p.Code != problem.Overloaded && !errors.Is(r.Context().Err(), context.Canceled) {
		a.failures.Failure(r.Context(), slog.LevelError, "request failed", p, "", "route", r.Pattern, "code", p.Code)
	}
	answer.Error(w, p)
}
