package rest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// serve returns the handler of an operation.
func (a *API) serve(operation ops.Served) http.HandlerFunc {
	status := cmp.Or(operation.Served().Status, http.StatusOK)
	return func(w http.ResponseWriter, r *http.Request) {
		m := a.message(w, r)
		if known := r.Header.Values("If-None-Match"); web.IsHead(w) {
			m.Unless = func(string) bool { return true }
		} else if len(known) > 0 {
			m.Unless = func(tag string) bool { _, same := web.Match(known, tag); return same }
		}
		answer, err := operation.Serve(r.Context(), &a.Services, m)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		if view, ok := answer.Value.(escrow.View); ok {
			a.describe(w.Header(), view, answer.By.Access.Party())
		}
		web.Tagged(w, answer.Tag)
		web.JSON(w, status, answer.Body)
	}
}

// head returns the handler of a HEAD. The answer lacks the headers that depend on the body, which RFC 9110 9.3.2 allows. It can be 200
// where a GET fails while it makes the body (ops.Endpoint.Head).
func (a *API) head(operation ops.Served) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := operation.Head(r.Context(), &a.Services, a.message(w, r)); err != nil {
			a.fail(w, r, err)
			return
		}
		web.JSON(w, http.StatusOK, nil) // no-store: some answers are
	}
}

// describe sets the headers of a deal view. party is -1 for the initiator's API key.
func (a *API) describe(h http.Header, view escrow.View, party int) {
	if at, more := a.Escrow.LookAt(view); more {
		h.Set("Fairpact-Next-Look", strconv.FormatInt(at, 10))
	}
	if party >= 0 {
		h.Set("Fairpact-Party", strconv.Itoa(party))
	}
	// A client may join the Fairpact-Caution headers with commas. The texts contain commas
	// too, so each text ends with a full stop.
	for _, caution := range view.Cautions() {
		h.Add("Fairpact-Caution", caution+".")
	}
}

func (a *API) status(w http.ResponseWriter, r *http.Request) {
	body, err := web.Encode(a.Status())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	web.JSON(w, http.StatusOK, body)
}

func fixed(body func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { web.JSON(w, http.StatusOK, body()) }
}

// request is the ops.Parts of a REST request.
type request struct {
	api *API
	w   http.ResponseWriter
	r   *http.Request
}

func (a *API) message(w http.ResponseWriter, r *http.Request) *ops.Message {
	return &ops.Message{Parts: request{a, w, r}, Surface: wire.REST, Method: r.Method, Path: r.URL.Path, Copies: 2}
}

func (q request) Address() string { return q.api.Callers.Address(q.r) }

// bearer returns the Bearer credential (RFC 6750 2.1), or "". The scheme's name is case-insensitive (RFC 9110 11.1).
func bearer(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(value)
}

func (q request) Credential(ops.Who, escrow.Action) (string, error) {
	value := bearer(q.r)
	if value == "" { // SPEC 5.5
		return "", problem.New(problem.AuthRequired, "pass `Authorization: Bearer <API_KEY or INVITE_TOKEN>`; get an API key with %s", problem.Call{Op: problem.CreateKey})
	}
	return value, nil
}

func (q request) DealID() (string, error)    { return q.r.PathValue("id"), nil }
func (q request) CertID() (string, error)    { return q.r.PathValue("cert_id"), nil }
func (q request) Wait() (escrow.Wait, error) { return q.api.wait(q.r) }

// Openings parses ?openings=1.
func (q request) Openings() (bool, error) {
	switch asked := q.r.URL.Query()["openings"]; {
	case asked == nil:
		return false, nil
	case slices.Equal(asked, []string{"1"}):
		return true, nil
	}
	return false, problem.New(problem.InvalidRequest, "the parameter `openings` must be 1, once, or left out")
}

// Body parses the body as a JSON object and ignores the Content-Type.
func (q request) Body(o *ops.Operation) (map[string]any, error) {
	raw, err := web.ReadAll(q.w, q.r, o.Limit)
	if err != nil {
		return nil, err
	}
	return o.Object(q.r.Context(), raw)
}

func (q request) IdempotencyKey() (string, error) {
	switch keys, sent := q.r.Header["Idempotency-Key"]; {
	case !sent:
		return "", nil
	case len(keys) != 1 || !escrow.ValidKey(keys[0]):
		return "", problem.New(problem.InvalidIdempotencyKey, "Idempotency-Key must be one header of 1 to 255 visible ASCII characters; a random UUID is a good one")
	default:
		return keys[0], nil
	}
}

// fail answers with err. It logs a 5xx with its cause, but not OVERLOADED, or a call whose client
// disconnected.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	if p.Status() >= 500 && p.Code != problem.Overloaded && !errors.Is(r.Context().Err(), context.Canceled) {
		a.failures.Failure(r.Context(), slog.LevelError, "request failed", p, "", "route", r.Pattern, "code", p.Code)
	}
	web.Error(w, p)
}

// waitOf returns how long a call may wait for a change, in addition to timelimits.Call. The wait
// of a call of /mcp is in its body, which only package mcp reads.
func waitOf(r *http.Request) time.Duration {
	if r.URL.Path == "/mcp" {
		return waiting.Longest
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.RawQuery == "" {
		return 0
	}
	seconds, _ := strconv.Atoi(r.URL.Query().Get("wait"))
	return min(max(time.Duration(seconds)*time.Second, 0), waiting.Longest)
}

// wait parses ?wait= (seconds) and ?since= (a state, or the ETag of a view).
func (a *API) wait(r *http.Request) (escrow.Wait, error) {
	query := r.URL.Query()
	if !query.Has("wait") {
		return escrow.Wait{}, nil
	}
	wait := escrow.Wait{For: waitOf(r)}
	if query.Get("wait") != strconv.Itoa(int(wait.For/time.Second)) || wait.For <= 0 {
		return wait, problem.New(problem.InvalidRequest, "the parameter `wait` must be a whole number of seconds from 1 to %d", waiting.Longest/time.Second)
	}
	since := query.Get("since")
	if since == "" {
		return wait, nil
	}
	if state := deal.State(since); slices.Contains(deal.States, state) {
		wait.State = state
		return wait, nil
	}
	tag := web.KnownTag(since)
	if tag == "" {
		return wait, problem.New(problem.InvalidRequest, "the parameter `since` is neither a state nor the ETag of a view; send a state, such as %s, or an ETag unchanged", deal.Committing)
	}
	wait.Same = func(v escrow.View) bool { return ops.ViewTag(v) == `"`+tag+`"` }
	return wait, nil
}
