package escrow_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

const sealOrigin = "https://fairpact.example.com"

// sealed returns a replica that accepts seals.
func (h *fixture) sealed() *escrow.Service {
	return h.replicaOn(h.store, escrow.Options{PublicURL: sealOrigin})
}

func (g *game) declared(t *testing.T) *store.Declaration {
	t.Helper()
	return of(g.store.Declaration(t.Context(), g.id)).ok(t)
}

func (g *game) sealRound(t *testing.T) int64 {
	t.Helper()
	return timelock.RoundOf(g.beacon.Chain(), g.declared(t).CommitDeadline)
}

func lock(t *testing.T, chain drand.Chain, round int64, plaintext []byte) string {
	t.Helper()
	var random timelock.Random
	_, _ = rand.Read(random[:])
	return timelock.Seal(chain, round, plaintext, random)
}

func (g *game) plaintext(t *testing.T, party int) []byte {
	t.Helper()
	input := of(canon.ParseObject([]byte(g.inputs[party]))).ok(t)
	return timelock.Opening{DealID: g.id, Party: int64(party), Input: input, Salt: salt}.Plaintext()
}

// seal returns the seal of a party's opening.
func (g *game) seal(t *testing.T, party int) string {
	t.Helper()
	return lock(t, g.beacon.Chain(), g.sealRound(t), g.plaintext(t, party))
}

func (g *game) commitSeal(t *testing.T, svc *escrow.Service, party int, seal string) answer[escrow.Committed] {
	t.Helper()
	return of(svc.Commit(t.Context(), g.access(t, svc, g.tokens[party], escrow.AsParty), escrow.Commitment{Hash: g.commitment(t, party), Seal: seal}, nil))
}

// atRound makes the round of the deal's seals due now. The test's beacon signs any round.
func (g *game) atRound(t *testing.T) *game {
	t.Helper()
	g.exec(t, "UPDATE deals SET seal_time = floor(extract(epoch FROM clock_timestamp()))::bigint WHERE deal_id = $1", g.id)
	return g
}

func (g *game) sealStates(t *testing.T) string {
	t.Helper()
	return g.text(t, `SELECT coalesce(string_agg(party || state || CASE WHEN sealed IS NULL THEN '' ELSE '+' END, ' ' ORDER BY party), '') FROM seals WHERE deal_id = $1`, g.id)
}

func (g *game) allSealed(t *testing.T) *game {
	t.Helper()
	svc := g.sealed()
	for party := range g.tokens {
		g.commitSeal(t, svc, party, g.seal(t, party)).ok(t)
	}
	return g
}

// Every party acts once. At the round the worker opens the seals, and the deal ends.
func TestPartiesWhoSealNeedNotComeBack(t *testing.T) {
	h := newFixture(t)
	required := func(d *escrow.Declared) { d.Seals = deal.SealsRequired }
	games := map[string]*game{
		"split": h.split(t, nil), "split, required": h.split(t, required), "split, purge": h.split(t, purge),
		"random": h.random(t, required), "shapley": h.shapley(t, `{"accept":true}`, `{"accept":true}`),
	}
	for name, g := range games {
		t.Run(name, func(t *testing.T) {
			round := g.sealRound(t)
			g.allSealed(t)
			if got := g.attended(t).phase(t); got != "REVEALING" {
				t.Fatalf("before the round the deal is %s, want REVEALING", got)
			}
			if got := g.sealStates(t); got != "0sealed+ 1sealed+" {
				t.Fatalf("before the round the seals are %s", got)
			}
			g.atRound(t).attended(t)
			if name == "random" {
				g.exec(t, "UPDATE deals SET round_time = round_time - 8000, reveals_closed_at = reveals_closed_at - 8000 WHERE deal_id = $1", g.id)
				g.entropy(t, g.replica()).ok(t)
			}
			if got := g.sealStates(t); got != "0opened 1opened" {
				t.Errorf("after the round the seals are %s", got)
			}
			c := g.published(t)
			if want := fmt.Sprintf("%s%d", certificate.OpenedByTimelock, round); c.Outcome != certificate.Computed || !slices.Contains(c.Properties, want) {
				t.Errorf("outcome %s with %v, want COMPUTED with %s", c.Outcome, c.Properties, want)
			}
		})
	}
}

// The result of a deal does not depend on how its inputs came.
func TestSealsAndHandsComputeTheSame(t *testing.T) {
	h := newFixture(t)
	sealed, revealed := h.split(t, nil).allSealed(t).atRound(t).attended(t), h.split(t, nil).revealed(t)
	a, b := sealed.published(t), revealed.published(t)
	if string(a.Result) != string(b.Result) || *a.InputRoot != *b.InputRoot {
		t.Errorf("by seal %s %s, by hand %s %s", a.Result, *a.InputRoot, b.Result, *b.InputRoot)
	}
	if certificate.OpenedBySeal(b.Properties) {
		t.Errorf("a deal without seals has the properties %v", b.Properties)
	}
}

func TestAnyCallOpensDueSeals(t *testing.T) {
	g := newFixture(t).split(t, nil)
	g.allSealed(t).atRound(t)
	if got := g.view(t, g.replica()).State; got != deal.Computed {
		t.Errorf("the view is %s, want COMPUTED", got)
	}
}

// All rejectors are named, and nobody else.
func TestRejectionsBySealNameEveryRejector(t *testing.T) {
	h := newFixture(t)
	for name, inputs := range map[string][]string{
		"both": {`{"accept":false}`, `{"accept":false}`}, "one": {`{"accept":true}`, `{"accept":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := h.shapley(t, inputs...)
			c := g.allSealed(t).atRound(t).attended(t).published(t)
			want := []int{0, 1}[2-strings.Count(strings.Join(inputs, ""), "false"):]
			if c.Outcome != certificate.Void || !slices.Equal(c.VoidFlakers, want) || c.InputRoot == nil || !certificate.OpenedBySeal(c.Properties) {
				t.Errorf("outcome %s of %v, root %v, %v; want VOID of %v with all inputs", c.Outcome, c.VoidFlakers, c.InputRoot, c.Properties, want)
			}
		})
	}
}

// What only the round shows: a seal that passes all checks and does not open to the commitment fails,
// stays stored, and its party may reveal by hand, or is a flaker.
func TestAFailedSealFailsOnlyItsParty(t *testing.T) {
	h := newFixture(t)
	foreign := devbeacon.New([]byte("foreign")).Chain()
	for name, forge := range map[string]func(t *testing.T, g *game) string{
		"another key": func(t *testing.T, g *game) string {
			relabelled := foreign
			relabelled.Hash = g.beacon.Chain().Hash
			return lock(t, relabelled, g.sealRound(t), g.plaintext(t, 1))
		},
		"seal of another party": func(t *testing.T, g *game) string { return g.seal(t, 0) },
		"another round":         func(t *testing.T, g *game) string { return g.relabelled(t, 1) },
		"another deal": func(t *testing.T, g *game) string {
			other := *g
			other.id = h.split(t, nil).id
			return lock(t, g.beacon.Chain(), g.sealRound(t), other.plaintext(t, 1))
		},
		"no opening": func(t *testing.T, g *game) string {
			return lock(t, g.beacon.Chain(), g.sealRound(t), []byte("garbage"))
		},
		"another salt": func(t *testing.T, g *game) string {
			return lock(t, g.beacon.Chain(), g.sealRound(t), []byte(strings.Replace(string(g.plaintext(t, 1)), salt, "x", 1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := h.split(t, nil)
			svc := g.sealed()
			g.commitSeal(t, svc, 0, g.seal(t, 0)).ok(t)
			g.commitSeal(t, svc, 1, forge(t, g)).ok(t)
			g.atRound(t).attended(t)
			if got := g.sealStates(t); got != "0opened 1failed+" || g.phase(t) != "REVEALING" {
				t.Fatalf("after the round: %s, %s", got, g.phase(t))
			}
			if name == "another salt" {
				g.later(t, 7200).attended(t)
				if c := g.published(t); c.Outcome != certificate.Void || !slices.Equal(c.VoidFlakers, []int{1}) {
					t.Errorf("outcome %s of %v, want VOID of party 1", c.Outcome, c.VoidFlakers)
				}
				return
			}
			g.reveal(t, g.replica(), 1).ok(t)
			if c := g.published(t); c.Outcome != certificate.Computed {
				t.Errorf("after a reveal by hand the outcome is %s, want COMPUTED", c.Outcome)
			}
		})
	}
}

func TestSealsThatAreRefusedAtOnce(t *testing.T) {
	h := newFixture(t)
	g, chain := h.split(t, nil), h.beacon.Chain()
	svc, round := g.sealed(), g.sealRound(t)
	for name, seal := range map[string]string{
		"foreign chain": lock(t, devbeacon.New([]byte("foreign")).Chain(), round, g.plaintext(t, 0)), "another round": lock(t, chain, round+1, g.plaintext(t, 0)),
		"no seal": "x", "two seals": g.seal(t, 0) + g.seal(t, 0), "too long": lock(t, chain, round, make([]byte, 600<<10)),
	} {
		if got := g.commitSeal(t, svc, 0, seal).refused(t, problem.InvalidSeal); strings.Contains(got.Error(), salt) {
			t.Errorf("%s: the error quotes the salt: %s", name, got)
		}
	}
	tight := h.split(t, func(d *escrow.Declared) { d.RevealDeadline = d.CommitDeadline + 100 })
	tight.commitSeal(t, svc, 0, tight.seal(t, 0)).refused(t, problem.InvalidSeal)
	required := h.split(t, func(d *escrow.Declared) { d.Seals = deal.SealsRequired })
	required.commit(t, svc, 0).refused(t, problem.SealRequired)
	g.commitSeal(t, h.replica(), 0, g.seal(t, 0)).refused(t, problem.InvalidRequest) // no origin for the receipt
	g.commit(t, svc, 0).ok(t)
	g.commitSeal(t, svc, 0, g.seal(t, 0)).refused(t, problem.AlreadyCommitted)
	owner := of(svc.Authenticate(t.Context(), g.key)).ok(t)
	late := escrow.Declared{Terms: *g.declaredTerms(t)}
	late.Seals, late.RevealDeadline = deal.SealsRequired, late.CommitDeadline+100
	of(svc.Create(t.Context(), owner, late, nil, free)).refused(t, problem.InvalidParams)
	// Nobody could commit to a deal that requires seals on a deployment that accepts none.
	unsealable := escrow.Declared{Terms: *required.declaredTerms(t)}
	of(h.replica().Create(t.Context(), owner, unsealable, nil, free)).refused(t, problem.InvalidRequest)
	early := escrow.Declared{Terms: *h.random(t, nil).declaredTerms(t)}
	early.Seals, early.Params = deal.SealsRequired, beaconRound(round-1)
	of(svc.Create(t.Context(), owner, early, nil, free)).refused(t, problem.InvalidParams)
}

func (g *game) declaredTerms(t *testing.T) *deal.Terms { t.Helper(); return &g.declared(t).Terms }

// The receipt, the seal and the round prove to anyone what the party committed and when.
func TestReceiptProvesTheSeal(t *testing.T) {
	h := newFixture(t)
	g := h.split(t, nil)
	seal := g.seal(t, 0)
	made := g.commitSeal(t, g.sealed(), 0, seal).ok(t)
	again := of(g.sealed().StoredCommit(t.Context(), g.access(t, g.sealed(), g.tokens[0], escrow.AsParty))).ok(t)
	if made.Receipt == nil || again.Receipt == nil || again.Receipt.Text != made.Receipt.Text {
		t.Fatalf("receipts %+v and %+v, want the same text twice", made.Receipt, again.Receipt)
	}
	r := of(timelock.ParseReceipt(made.Receipt.Text)).ok(t)
	check(t, r.Matches(h.beacon.Chain(), seal))
	if r.DealID != g.id || r.Party != 0 || r.Origin != sealOrigin || r.Commitment != canon.Commitment([]byte(g.inputs[0]), []byte(salt)) || made.OpensAt != h.beacon.Chain().RoundTime(r.Round) {
		t.Errorf("receipt %+v", r)
	}
	for _, signature := range []string{made.Receipt.Signature, again.Receipt.Signature} {
		if _, err := h.keys.SignedBy(sha256.Sum256([]byte(made.Receipt.Text)), signature); err != nil {
			t.Errorf("the receipt's signature: %v", err)
		}
	}
	h.signer.fail(func(context.Context) error { return fmt.Errorf("no signer") })
	if made := g.commitSeal(t, g.sealed(), 1, g.seal(t, 1)).ok(t); made.Receipt != nil || made.State != deal.Revealing {
		t.Errorf("without a signer: %+v, want a commitment without a receipt", made)
	}
}

// A late round is nobody's fault: no deadline voids the deal. It expires after the entropy window.
func TestALateRoundIsNobodysFault(t *testing.T) {
	h := newFixture(t)
	g := h.split(t, nil)
	g.allSealed(t).atRound(t)
	h.beacon.set(h.beacon.Chain(), beacon.ErrNotYet)
	if _, err := g.replica().ProcessDeal(t.Context(), g.id); !problem.Is(err, problem.BeaconNotReady) {
		t.Fatalf("ProcessDeal: %v, want BEACON_NOT_READY", err)
	}
	g.later(t, 7200+10)
	if got := g.view(t, g.replica()).State; got != deal.Revealing {
		t.Fatalf("after reveal_deadline the deal is %s, want REVEALING", got)
	}
	h.exec(t, "UPDATE deals SET seal_time = seal_time - 100")
	if load := of(h.store.Load(t.Context())).ok(t); load.Overdue != 0 || load.DrawOverdue < 100 {
		t.Errorf("overdue %v, draw overdue %v; want only the round", load.Overdue, load.DrawOverdue)
	}
	if asked := h.beacon.fetched(); asked > 3 {
		t.Errorf("the relays were asked %d times", asked)
	}
	g.later(t, int64(window.Seconds()))
	if got := g.view(t, g.replica()).State; got != deal.Expired || g.sealStates(t) != "0unused 1unused" {
		t.Errorf("after the entropy window the deal is %s with the seals %s", got, g.sealStates(t))
	}
}

// The seals of a deal that ends before its round are deleted in the same transaction. Although a deal requires seals, a party that
// does not commit makes it VOID.
func TestADealThatEndsBeforeItsRoundDeletesItsSeals(t *testing.T) {
	h := newFixture(t)
	cancelled, missed, rejected := h.split(t, nil), h.split(t, func(d *escrow.Declared) { d.Seals = deal.SealsRequired }), h.shapley(t, `{"accept":true}`, `{"accept":false}`)
	cancelled.commitSeal(t, h.sealed(), 0, cancelled.seal(t, 0)).ok(t)
	of(h.sealed().Cancel(t.Context(), cancelled.access(t, h.sealed(), cancelled.key, escrow.CancelDeal), nil)).ok(t)
	missed.commitSeal(t, h.sealed(), 1, missed.seal(t, 1)).ok(t)
	missed.later(t, 3600).attended(t)
	rejected.allSealed(t)
	rejected.reveal(t, h.replica(), 1).ok(t)
	for name, g := range map[string]*game{"cancelled": cancelled, "missed": missed, "rejected by hand": rejected} {
		if left := g.text(t, "SELECT count(*)::text FROM seals WHERE deal_id = $1 AND (sealed IS NOT NULL OR state = 'sealed')", g.id); left != "0" {
			t.Errorf("%s: %s seals are left, want none", name, left)
		}
	}
	if c := missed.published(t); c.Outcome != certificate.Void || !slices.Equal(c.VoidFlakers, []int{0}) {
		t.Errorf("outcome %s of %v, want VOID of party 0, which did not commit", c.Outcome, c.VoidFlakers)
	}
}

// A seal and a reveal by hand at the same moment are one reveal.
func TestSealAndHandAtTheSameMoment(t *testing.T) {
	h := newFixture(t)
	for range 5 {
		g := h.split(t, nil).allSealed(t).atRound(t)
		var wait sync.WaitGroup
		for _, act := range []func(){
			func() { _, _ = g.replica().ProcessDeal(t.Context(), g.id) }, func() { _, _ = g.replica().ProcessDeal(t.Context(), g.id) },
			func() { _ = g.reveal(t, g.replica(), 0) }, func() { _ = g.reveal(t, g.replica(), 1) },
		} {
			wait.Go(act)
		}
		wait.Wait()
		if c := g.attended(t).published(t); c.Outcome != certificate.Computed {
			t.Errorf("outcome %s, want COMPUTED", c.Outcome)
		}
	}
}

// A rotation of the server secret encrypts seals again. A lost secret expires the deal: the party is not
// at fault, and its seal is not failed.
func TestSealsAndServerSecrets(t *testing.T) {
	h := newFixture(t)
	g, lost := h.split(t, nil), h.split(t, nil)
	check(t, h.secrets.Check(t.Context(), h.store))
	g.allSealed(t)
	lost.allSealed(t)
	old, fresh := h.secret, of(sealing.New([]byte(strings.Repeat("n", 32)))).ok(t)
	if done := of(h.store.RotateSecret(t.Context(), old.Fingerprint(), fresh.Fingerprint())).ok(t); !done {
		t.Fatal("not rotated")
	}
	h.secrets = of(sealing.NewSecrets(fresh, old)).ok(t)
	h.exec(t, "UPDATE server_secret SET since = since - 3600")
	for more := true; more; {
		more = of(h.replica().Reseal(t.Context())).ok(t)
	}
	if n := g.text(t, "SELECT count(*)::text FROM seals WHERE secret = $1 AND sealed IS NOT NULL", fresh.Fingerprint()); n != "4" {
		t.Fatalf("%s seals are under the new secret, want 4", n)
	}
	h.secrets = of(sealing.NewSecrets(fresh)).ok(t)
	if c := g.atRound(t).attended(t).published(t); c.Outcome != certificate.Computed {
		t.Errorf("outcome %s, want COMPUTED", c.Outcome)
	}
	h.exec(t, "UPDATE seals SET sealed = 'x' WHERE deal_id = $1 AND party = 1", lost.id)
	if _, err := lost.atRound(t).replica().ProcessDeal(t.Context(), lost.id); !problem.Is(err, problem.Unavailable) {
		t.Errorf("ProcessDeal: %v, want UNAVAILABLE", err)
	}
	if got := lost.sealStates(t); strings.Contains(got, "failed") {
		t.Errorf("a seal that cannot be decrypted is marked as failed: %s", got)
	}
}

// A process that dies while it opens seals leaves reveals, marks and pending seals. Another continues.
func TestOpeningContinuesAfterACrash(t *testing.T) {
	h := newFixture(t)
	opened := func(g *game, party int) {
		act := store.Act{DealID: g.id, Party: party, Commitment: g.commitment(t, party), BySeal: true,
			Sealed: h.secret.SealInput(g.id, party, sealing.Input{Canonical: []byte(g.inputs[party]), Salt: salt, SaltBytes: []byte(salt)})}
		if done := of(h.store.Reveal(t.Context(), act)).ok(t); !done.Done {
			t.Fatal("the reveal is not stored")
		}
	}
	t.Run("one reveal is stored", func(t *testing.T) {
		g := h.split(t, nil).allSealed(t).atRound(t)
		opened(g, 0)
		if got := g.sealStates(t); got != "0opened 1sealed+" {
			t.Fatalf("the seals are %s", got)
		}
		if c := g.attended(t).published(t); c.Outcome != certificate.Computed {
			t.Errorf("outcome %s, want COMPUTED", c.Outcome)
		}
	})
	t.Run("all reveals are stored", func(t *testing.T) {
		g := h.split(t, nil).allSealed(t).atRound(t)
		opened(g, 0)
		opened(g, 1)
		if c := g.attended(t).published(t); c.Outcome != certificate.Computed || !certificate.OpenedBySeal(c.Properties) {
			t.Errorf("outcome %s with %v, want COMPUTED by timelock", c.Outcome, c.Properties)
		}
	})
	t.Run("a rejection is not stored", func(t *testing.T) {
		g := h.shapley(t, `{"accept":true}`, `{"accept":false}`).allSealed(t).atRound(t)
		opened(g, 0)
		if c := g.attended(t).published(t); !slices.Equal(c.VoidFlakers, []int{1}) {
			t.Errorf("flakers %v, want the rejector", c.VoidFlakers)
		}
	})
	t.Run("a mark is stored, a rejection is not", func(t *testing.T) {
		g := h.shapley(t, `{"accept":true}`, `{"accept":false}`)
		g.commitSeal(t, h.sealed(), 0, g.seal(t, 1)).ok(t)
		g.commitSeal(t, h.sealed(), 1, g.seal(t, 1)).ok(t)
		check(t, h.store.FailSeals(t.Context(), g.id, []int{0}))
		g.atRound(t).attended(t)
		if c := g.published(t); c.Outcome != certificate.Void || !slices.Equal(c.VoidFlakers, []int{1}) {
			t.Errorf("outcome %s of %v, want VOID of the rejector", c.Outcome, c.VoidFlakers)
		}
	})
	t.Run("a mark is stored", func(t *testing.T) {
		g := h.split(t, nil)
		g.commitSeal(t, h.sealed(), 0, g.seal(t, 0)).ok(t)
		g.commitSeal(t, h.sealed(), 1, g.seal(t, 0)).ok(t)
		check(t, h.store.FailSeals(t.Context(), g.id, []int{1}))
		g.atRound(t).attended(t)
		if got := g.sealStates(t); got != "0opened 1failed+" {
			t.Errorf("the seals are %s", got)
		}
	})
}
