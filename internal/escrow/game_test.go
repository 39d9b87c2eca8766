package escrow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
)

// game is a deal and all that its parties hold.
type game struct {
	*house
	id     string
	key    string
	tokens []string
	inputs []string // JSON
	round  int64
}

const salt = "0123456789abcdef"

// split is a deal with an hour for each phase. change edits its creation body.
func (h *house) split(t *testing.T, change func(map[string]any)) *game {
	t.Helper()
	return h.create(t, map[string]any{"algorithm": "split.v1", "algorithm_params": map[string]any{"items": []any{"car", "boat"}}},
		[]string{`{"valuations":{"boat":40,"car":60}}`, `{"valuations":{"boat":70,"car":30}}`}, change)
}

func (h *house) shapley(t *testing.T, inputs ...string) *game {
	t.Helper()
	return h.create(t, map[string]any{
		"algorithm":        "shapley.v1",
		"algorithm_params": map[string]any{"coalition_values": map[string]any{"a": int64(10), "a,b": int64(40), "b": int64(20)}},
	}, inputs, nil)
}

// random is a deal whose round comes ten minutes after the reveal deadline.
func (h *house) random(t *testing.T, change func(map[string]any)) *game {
	t.Helper()
	now := h.now(t)
	round := h.well.Chain().RoundAt(now+7200+600) + 1
	g := h.create(t, map[string]any{"algorithm": "random.v1", "algorithm_params": map[string]any{"beacon_round": round}},
		[]string{`{"nonce":"00ff"}`, `{"nonce":"1234"}`}, change)
	g.round = round
	return g
}

func (h *house) now(t *testing.T) int64 {
	t.Helper()
	now, err := h.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func (h *house) create(t *testing.T, body map[string]any, inputs []string, change func(map[string]any)) *game {
	t.Helper()
	now := h.now(t)
	body["party_labels"], body["commit_deadline"], body["reveal_deadline"] = []any{"a", "b"}, now+3600, now+7200
	if change != nil {
		change(body)
	}
	svc := h.replica()
	g := &game{house: h, inputs: inputs}
	g.key = is(t, 201, first(svc.CreateKey(t.Context(), nil)))["api_key"].(string)
	owner, err := svc.Authenticate(t.Context(), g.key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := escrow.ParseCreate(body)
	if err != nil {
		t.Fatal(err)
	}
	made := is(t, 201, first(svc.Create(t.Context(), owner, request, nil)))
	g.id = made["deal_id"].(string)
	for _, invite := range made["invite_tokens"].([]any) {
		g.tokens = append(g.tokens, invite.(map[string]any)["token"].(string))
	}
	return g
}

// answer is what a call gave: a status and a body, or an error.
type answer struct {
	resp idempotency.Response
	err  error
}

func first(resp idempotency.Response, err error) answer { return answer{resp, err} }

// is holds an answer against its status and gives its body.
func is(t *testing.T, status int, a answer) map[string]any {
	t.Helper()
	if a.err != nil || a.resp.Status != status {
		t.Fatalf("status %d, %v; want %d", a.resp.Status, a.err, status)
	}
	var body map[string]any
	if err := json.Unmarshal(a.resp.Body, &body); err != nil {
		t.Fatalf("%s: %v", a.resp.Body, err)
	}
	return body
}

// refused holds an answer against the code of its refusal.
func refused(t *testing.T, code problem.Code, a answer) *problem.Error {
	t.Helper()
	if !problem.Is(a.err, code) {
		t.Fatalf("status %d, %v; want %s", a.resp.Status, a.err, code)
	}
	return problem.From(a.err)
}

func (g *game) access(t *testing.T, svc *escrow.Service, credential string, action escrow.Action) escrow.Access {
	t.Helper()
	who, err := svc.Authenticate(t.Context(), credential)
	if err != nil {
		t.Fatal(err)
	}
	a, err := svc.Authorize(t.Context(), who, g.id, action)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (g *game) commitment(t *testing.T, party int) [32]byte {
	t.Helper()
	c, err := canon.ParseCommitment(canon.Commitment([]byte(g.inputs[party]), []byte(salt)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *game) commit(t *testing.T, svc *escrow.Service, party int) answer {
	t.Helper()
	return first(svc.Commit(t.Context(), g.access(t, svc, g.tokens[party], escrow.Act), g.commitment(t, party), nil))
}

func (g *game) reveal(t *testing.T, svc *escrow.Service, party int) answer {
	t.Helper()
	input, err := canon.ParseObject([]byte(g.inputs[party]))
	if err != nil {
		t.Fatal(err)
	}
	return first(svc.Reveal(t.Context(), g.access(t, svc, g.tokens[party], escrow.Act), escrow.RevealRequest{Input: input, Salt: salt}, nil))
}

func (g *game) view(t *testing.T, svc *escrow.Service) map[string]any {
	t.Helper()
	return is(t, 200, first(svc.View(t.Context(), g.access(t, svc, g.key, escrow.Read))))
}

func (g *game) certificate(t *testing.T, svc *escrow.Service) answer {
	t.Helper()
	return first(svc.Certificate(t.Context(), g.access(t, svc, g.tokens[0], escrow.ReadCertificate)))
}

func (g *game) entropy(t *testing.T, svc *escrow.Service) answer {
	t.Helper()
	return first(svc.Entropy(t.Context(), g.access(t, svc, g.tokens[1], escrow.DrawEntropy)))
}

// committed and revealed bring a deal to where all have.
func (g *game) committed(t *testing.T) *game {
	t.Helper()
	svc := g.replica()
	for party := range g.tokens {
		is(t, 200, g.commit(t, svc, party))
	}
	return g
}

func (g *game) revealed(t *testing.T) *game {
	t.Helper()
	svc := g.committed(t).replica()
	for party := range g.tokens {
		is(t, 200, g.reveal(t, svc, party))
	}
	return g
}

// later lets so many seconds pass for a deal: all its times move back. Processes
// that know the deal remember its deadlines, so ask a new replica.
func (g *game) later(t *testing.T, seconds int64) *game {
	t.Helper()
	g.exec(t, `UPDATE deals SET created_at = created_at - $2, commit_deadline = commit_deadline - $2, reveal_deadline = reveal_deadline - $2,
		round_time = round_time - $2, commits_closed_at = commits_closed_at - $2, reveals_closed_at = reveals_closed_at - $2 WHERE deal_id = $1`, g.id, seconds)
	g.exec(t, "UPDATE commitments SET committed_at = committed_at - $2 WHERE deal_id = $1", g.id, seconds)
	g.exec(t, "UPDATE reveals SET revealed_at = revealed_at - $2 WHERE deal_id = $1", g.id, seconds)
	return g
}

func (g *game) phase(t *testing.T) string {
	t.Helper()
	return g.text(t, "SELECT phase FROM deals WHERE deal_id = $1", g.id)
}

// attended attends until nothing is left to do at once.
func (g *game) attended(t *testing.T) *game {
	t.Helper()
	if _, err := g.replica().Attend(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	return g
}

// published checks that exactly one certificate was issued, with one leaf, and
// that it verifies; it gives the certificate.
func (g *game) published(t *testing.T) map[string]any {
	t.Helper()
	svc := g.replica()
	c := is(t, 200, g.certificate(t, svc))
	if n := g.text(t, "SELECT count(*)::text FROM certificates WHERE deal_id = $1 AND leaf_index IS NOT NULL", g.id); n != "1" {
		t.Fatalf("%s published certificates", n)
	}
	report := is(t, 200, first(svc.Verify(t.Context(), c["cert_id"].(string))))
	if report["valid"] != true || report["outcome"] != c["outcome"] {
		t.Fatalf("the certificate is reported as %v", report)
	}
	if got := g.view(t, svc)["certificate_id"]; got != c["cert_id"] {
		t.Fatalf("the view names certificate %v, want %v", got, c["cert_id"])
	}
	return c
}

// bounded keeps a test that hangs from hanging the run.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func show(v any) string { return fmt.Sprint(v) }
