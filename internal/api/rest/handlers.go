package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/idempotency"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// handler serves a call. It returns the body of the answer if the call succeeds.
type handler func(http.ResponseWriter, *http.Request) ([]byte, error)

func (a *API) status(http.ResponseWriter, *http.Request) ([]byte, error) {
	return web.Encode(a.Status())
}

func (a *API) beacon(http.ResponseWriter, *http.Request) ([]byte, error) {
	return web.Encode(wire.BeaconOf(a.Escrow.Chain()))
}

// createKey issues an API key. The call needs no credential and ignores Authorization, so
// its Idempotency-Key is scoped to the client's address.
func (a *API) createKey(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	address := a.Callers.Address(r)
	return encoded(a.Calls.CreateKey(r.Context(), address, a.request(w, r, address, maxSmall, true)))
}

func (a *API) createDeal(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	principal, err := a.principal(r)
	if err != nil {
		return nil, err
	}
	_, created, err := a.Calls.CreateDeal(r.Context(), principal, a.request(w, r, credential(r), maxCreation, false))
	return encoded(wire.CreatedOf(created), err)
}

func (a *API) commit(w http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	return encoded(a.Calls.Commit(r.Context(), access, a.request(w, r, credential(r), maxSmall, false)))
}

func (a *API) reveal(w http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	return encoded(a.Calls.Reveal(r.Context(), access, a.request(w, r, credential(r), maxReveal, false)))
}

func (a *API) cancel(w http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	return encoded(a.Calls.Cancel(r.Context(), access, a.request(w, r, credential(r), maxSmall, true)))
}

// entropy draws a random.v1 deal. Every call for a deal returns the same draw, so an
// Idempotency-Key has no effect. entropy checks only the syntax of that header.
func (a *API) entropy(_ http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	if _, err := idempotencyKey(r); err != nil {
		return nil, err
	}
	return encoded(a.Escrow.Entropy(r.Context(), access))
}

func (a *API) view(w http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
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
	// A client may join the Fairpact-Caution headers with commas. The texts contain commas
	// too, so each text ends with a full stop.
	for _, caution := range view.Cautions() {
		w.Header().Add("Fairpact-Caution", caution+".")
	}
	return web.Encode(wire.ViewOf(view))
}

func (a *API) certificate(_ http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	wait, err := a.wait(r)
	if err != nil {
		return nil, err
	}
	return written(wire.Certificate)(a.Escrow.CertificateAfter(r.Context(), access, wait, nil))
}

func (a *API) bundle(_ http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	bundle, err := a.Escrow.Bundle(r.Context(), access)
	if err != nil {
		return nil, err
	}
	return encoded(wire.BundleOf(bundle))
}

func (a *API) declaration(_ http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	return encoded(a.Escrow.Declaration(r.Context(), access))
}

func (a *API) inputs(_ http.ResponseWriter, r *http.Request, access escrow.Access) ([]byte, error) {
	return encoded(a.Escrow.Inputs(r.Context(), access))
}

func (a *API) verify(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	return encoded(a.Escrow.Verify(r.Context(), r.PathValue("cert_id")))
}

func (a *API) verifySubmitted(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := a.body(w, r, maxSubmitted, false)
	if err != nil {
		return nil, err
	}
	document, certID, err := wire.SubmittedCertificate(body)
	if err != nil {
		return nil, err
	}
	return encoded(a.Escrow.VerifySubmitted(r.Context(), document, certID))
}

func written[T any](write func(T) ([]byte, error)) func(T, error) ([]byte, error) {
	return func(v T, err error) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return write(v)
	}
}

// encoded returns v as JSON, or err. The type of v must have exactly the members of the REST
// body.
func encoded[T any](v T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return web.Encode(v)
}

func (a *API) principal(r *http.Request) (escrow.Principal, error) {
	presented := credential(r)
	if presented == "" { // SPEC 5.5
		return escrow.Principal{}, problem.New(problem.AuthRequired, "pass `Authorization: Bearer <API_KEY or INVITE_TOKEN>`; get an API key with %s", problem.Call{Op: problem.CreateKey})
	}
	return a.Escrow.Authenticate(r.Context(), presented)
}

func (a *API) deal(action escrow.Action, handle func(http.ResponseWriter, *http.Request, escrow.Access) ([]byte, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		principal, err := a.principal(r)
		if err != nil {
			return nil, err
		}
		access, err := a.Escrow.Authorize(r.Context(), principal, r.PathValue("id"), action)
		if err != nil {
			return nil, err
		}
		if access.Party() >= 0 {
			limits.Party(r.Context())
		}
		return handle(w, r, access)
	}
}

// body parses the request body as a JSON object and ignores the Content-Type. The parameter limit
// is the maximum size in bytes. If the parameter empty is true, the body may be left out.
func (a *API) body(w http.ResponseWriter, r *http.Request, limit int64, empty bool) (map[string]any, error) {
	raw, err := limits.ReadAll(w, r, limit)
	if err != nil {
		return nil, err
	}
	return wire.Object(raw, empty)
}

// credential returns the Bearer credential (RFC 6750 2.1), or "" if the request has
// none. The scheme's name is case-insensitive (RFC 9110 11.1).
func credential(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(value)
}

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

// request returns r as a calls.Request. An Idempotency-Key is valid only for `caller`. `limit` is
// the maximum size of the body in bytes. If `empty` is true, the body may be left out.
func (a *API) request(w http.ResponseWriter, r *http.Request, caller string, limit int64, empty bool) ops.Request {
	return ops.Request{
		Body: func() (map[string]any, error) { return a.body(w, r, limit, empty) },
		Once: func(body map[string]any) (idempotency.Request, error) {
			key, err := idempotencyKey(r)
			return idempotency.Request{
				Key: key, Caller: caller, Method: r.Method, Path: r.URL.Path, Status: http.StatusOK,
				Body: func() []byte { return canon.Encode(body) }, Lifetime: idempotency.Lifetime,
			}, err
		},
		Copies: 1,
		Next: func(d *escrow.Deal, c escrow.Committed) wire.Committed {
			return wire.CommittedOf(d, c, web.REST, "?wait=45&since=COMMITTING")
		},
	}
}

func (a *API) handlerFor(status int, handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := handle(w, r)
		if err == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			err = limits.Answer(r.Context(), len(body))
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		web.JSON(w, status, body)
	}
}

// fail sends err as the answer. It logs a 5xx with its cause: INTERNAL each time, any other
// code at most once a minute. It does not log OVERLOADED, or a call whose client disconnected.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	if p.Status() >= 500 && p.Code != problem.Overloaded && !errors.Is(r.Context().Err(), context.Canceled) {
		a.failures.Failure(r.Context(), slog.LevelError, "request failed", p, "", "route", r.Pattern, "code", p.Code)
	}
	web.Error(w, p)
}
