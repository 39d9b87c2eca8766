package escrow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// game is a deal under test, with the initiator's API key, and with the invite tokens and inputs
// of the parties.
type game struct {
	*fixture
	id     string
	key    string
	tokens []string
	inputs []string // JSON, by party
	round  int64
}

const salt = "0123456789abcdef"

func (h *fixture) split(t *testing.T, change func(*escrow.Declared)) *game {
	t.Helper()
	return h.create(t, deal.Terms{Algorithm: "split.v1", Params: []byte(`{"items":["car","boat"]}`)},
		[]string{`{"valuations":{"boat":40,"car":60}}`, `{"valuations":{"boat":70,"car":30}}`}, change)
}

func (h *fixture) shapley(t *testing.T, inputs ...string) *game {
	t.Helper()
	return h.create(t, deal.Terms{Algorithm: "shapley.v1", Params: []byte(`{"coalition_values":{"a":10,"a,b":40,"b":20}}`)}, inputs, nil)
}

// random creates a random.v1 deal. Its beacon round is published ten minutes after the
// reveal deadline.
func (h *fixture) random(t *testing.T, change func(*escrow.Declared)) *game {
	t.Helper()
	round := h.beacon.Chain().RoundAt(h.now(t)+7200+600) + 1
	g := h.create(t, deal.Terms{Algorithm: "random.v1", Params: beaconRound(round)},
		[]string{`{"nonce":"00ff"}`, `{"nonce":"1234"}`}, change)
	g.round = round
	return g
}

func beaconRound(round int64) []byte { return fmt.Appendf(nil, `{"beacon_round":%d}`, round) }

func purge(d *escrow.Declared) { d.Retention = "purge" }

func (h *fixture) now(t *testing.T) int64 {
	t.Helper()
	now, err := h.store.Now(t.Context())
	check(t, err)
	return now
}

func (h *fixture) create(t *testing.T, terms deal.Terms, inputs []string, change func(*escrow.Declared)) *game {
	t.Helper()
	d, now := escrow.Declared{Terms: terms}, h.now(t)
	d.Mode, d.Retention, d.CommitDeadline, d.RevealDeadline = "sealed", "standard", now+3600, now+7200
	for i := range inputs {
		d.Labels = append(d.Labels, string(rune('a'+i)))
	}
	if change != nil {
		change(&d)
	}
	origin := h.origin
	if d.Seals != "" {
		origin = sealOrigin
	}
	svc := h.at(origin)
	g := &game{fixture: h, inputs: inputs, key: of(svc.CreateKey(t.Context(), nil)).ok(t).APIKey}
	owner := of(svc.Authenticate(t.Context(), g.key)).ok(t)
	made := of(svc.Create(t.Context(), owner, d, nil, free)).ok(t)
	g.id = made.DealID
	for _, invite := range made.Invites {
		g.tokens = append(g.tokens, invite.Token)
	}
	return g
}

type answer[T any] struct {
	value T
	err   error
}

func of[T any](v T, err error) answer[T] { return answer[T]{v, err} }

func (a answer[T]) ok(t *testing.T) T {
	t.Helper()
	check(t, a.err)
	return a.value
}

func (a answer[T]) refused(t *testing.T, code problem.Code) *problem.Error {
	t.Helper()
	if !problem.Is(a.err, code) {
		t.Fatalf("got the answer %+v, error %v; want the error %s", a.value, a.err, code)
	}
	return problem.From(a.err)
}

func (g *game) access(t *testing.T, svc *escrow.Service, credential string, action escrow.Action) escrow.Access {
	t.Helper()
	who := of(svc.Authenticate(t.Context(), credential)).ok(t)
	return of(svc.Authorize(t.Context(), who, g.id, action)).ok(t)
}

func (g *game) commitment(t *testing.T, party int) [32]byte {
	t.Helper()
	return of(canon.ParseCommitment(canon.Commitment([]byte(g.inputs[party]), []byte(salt)))).ok(t)
}

func (g *game) commit(t *testing.T, svc *escrow.Service, party int) answer[escrow.Committed] {
	t.Helper()
	return of(svc.Commit(t.Context(), g.access(t, svc, g.tokens[party], escrow.AsParty), escrow.Commitment{Hash: g.commitment(t, party)}, nil))
}

func (g *game) reveal(t *testing.T, svc *escrow.Service, party int) answer[escrow.Revealed] {
	t.Helper()
	input := of(canon.ParseObject([]byte(g.inputs[party]))).ok(t)
	return of(svc.Reveal(t.Context(), g.access(t, svc, g.tokens[party], escrow.AsParty), escrow.Opening{Input: input, Salt: salt}, nil))
}

func (g *game) view(t *testing.T, svc *escrow.Service) escrow.View {
	t.Helper()
	return of(svc.View(t.Context(), g.access(t, svc, g.key, escrow.Read))).ok(t)
}

func (g *game) certificate(t *testing.T, svc *escrow.Service) answer[certificate.Certificate] {
	t.Helper()
	issued, err := svc.Certificate(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty))
	if err != nil {
		return answer[certificate.Certificate]{err: err}
	}
	payload, err := certificate.Parse(issued.Payload)
	if issued.CertID != payload.CertID || issued.Outcome != payload.Outcome {
		t.Errorf("the payload is certificate %s (%s), want %s (%s), as the answer says", payload.CertID, payload.Outcome, issued.CertID, issued.Outcome)
	}
	return of(certificate.Certificate{Payload: payload, Signature: issued.Signature, LogProof: issued.Proof}, err)
}

func (g *game) entropy(t *testing.T, svc *escrow.Service) answer[escrow.Drawn] {
	t.Helper()
	return of(svc.Entropy(t.Context(), g.access(t, svc, g.tokens[1], escrow.DrawEntropy)))
}

func (g *game) committed(t *testing.T) *game {
	t.Helper()
	svc := g.replica()
	for party := range g.tokens {
		g.commit(t, svc, party).ok(t)
	}
	return g
}

func (g *game) revealed(t *testing.T) *game {
	t.Helper()
	svc := g.committed(t).replica()
	for party := range g.tokens {
		g.reveal(t, svc, party).ok(t)
	}
	return g
}

// later subtracts the given seconds from all times of a deal, as if this time had passed. An
// escrow.Service caches the deadlines of a deal, so afterwards a test must use a new Service.
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

func (g *game) certID(t *testing.T) string {
	t.Helper()
	return g.text(t, "SELECT cert_id FROM certificates WHERE deal_id = $1", g.id)
}

func (g *game) pendingCertificate(t *testing.T) *store.Certificate {
	t.Helper()
	return of(g.store.CertificateOf(t.Context(), g.id)).ok(t)
}

func (g *game) attended(t *testing.T) *game {
	t.Helper()
	of(g.replica().ProcessDeal(t.Context(), g.id)).ok(t)
	return g
}

// published returns the deal's certificate. It fails the test unless exactly one certificate is
// published, Verify finds that certificate valid, and the view shows its id.
func (g *game) published(t *testing.T) certificate.Certificate {
	t.Helper()
	svc := g.replica()
	c := g.certificate(t, svc).ok(t)
	if n := g.text(t, "SELECT count(*)::text FROM certificates WHERE deal_id = $1 AND leaf_index IS NOT NULL", g.id); n != "1" {
		t.Fatalf("the deal has %s published certificates, want 1", n)
	}
	if report := of(svc.Verify(t.Context(), c.CertID)).ok(t); !report.Valid || report.Outcome != c.Outcome {
		t.Fatalf("Verify = %+v, want a valid certificate with outcome %s", report, c.Outcome)
	}
	if got := g.view(t, svc).CertificateID; got == nil || *got != c.CertID {
		t.Fatalf("the view has the certificate_id %s, want %s", show(got), c.CertID)
	}
	return c
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", show(got), show(want))
	}
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// free reserves storage without a limit.
func free(int) error { return nil }
