package escrow_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/translog"
)

// closing returns what the log must state of the deal. A party without a seal has the seal "".
func (g *game) closing(t *testing.T, seals ...string) timelock.Closing {
	t.Helper()
	text := of(g.declared(t).Canonical()).ok(t)
	c := timelock.Closing{DealID: g.id, Declaration: certificate.DeclarationDigest(text), Chain: g.beacon.Chain().Hash, Round: g.sealRound(t)}
	for party, seal := range seals {
		hash := g.commitment(t, party)
		one := timelock.ClosedCommitment{Commitment: "sha256:" + hex.EncodeToString(hash[:])}
		if seal != "" {
			one.SealHash = timelock.Hash(seal)
		}
		c.Commitments = append(c.Commitments, one)
	}
	return c
}

func (g *game) leaves(entry [32]byte) (n int) {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	for _, leaf := range g.log.leaves {
		if leaf == entry {
			n++
		}
	}
	return n
}

const closingLeaf = `SELECT coalesce(closing_leaf::text, 'none') FROM deals WHERE deal_id = $1`

// The last commitment of a deal with seals puts the closing into the log, once.
func TestTheLastCommitmentClosesADealWithSeals(t *testing.T) {
	h := newFixture(t)
	for name, sealed := range map[string][]bool{"both seal": {true, true}, "the first seals": {true, false}, "the last seals": {false, true}, "nobody seals": {false, false}} {
		t.Run(name, func(t *testing.T) {
			g, svc, seals, before := h.split(t, nil), h.sealed(), make([]string, 2), h.log.size()
			for party, seal := range sealed {
				if g.leaves(g.closing(t, seals...).Entry()) != 0 || h.log.size() != before {
					t.Fatalf("before the commitment of party %d the log has a new leaf", party)
				}
				if seal {
					seals[party] = g.seal(t, party)
				}
				g.commitSeal(t, svc, party, seals[party]).ok(t)
			}
			want := 1
			if !slices.Contains(sealed, true) {
				want = 0
			}
			g.attended(t)
			if n := g.leaves(g.closing(t, seals...).Entry()); n != want || h.log.size() != before+want {
				t.Errorf("the log has %d closings and %d new leaves, want %d", n, h.log.size()-before, want)
			}
			if stored := g.text(t, closingLeaf, g.id); (stored != "none") != (want == 1) {
				t.Errorf("the stored leaf is %s", stored)
			}
		})
	}
}

// What the call left undone, the worker does until the round is due: a later closing proves nothing.
func TestTheWorkerClosesUntilTheRound(t *testing.T) {
	h := newFixture(t)
	down := func(add bool) *game {
		g := h.split(t, nil)
		h.log.fail(func(appended func()) error {
			if add {
				appended()
			}
			return errors.New("the log is away")
		}, nil)
		g.allSealed(t)
		h.log.fail(nil, nil)
		return g
	}
	for name, added := range map[string]bool{"append failed": false, "answer lost": true} {
		t.Run(name, func(t *testing.T) {
			g := down(added)
			if stored := g.text(t, closingLeaf, g.id); stored != "none" {
				t.Fatalf("the stored leaf is %s although the log did not answer", stored)
			}
			before := h.log.size()
			g.exec(t, "UPDATE deals SET commits_closed_at = commits_closed_at - 10 WHERE deal_id = $1", g.id)
			due := of(g.replica().Due(t.Context(), 3*time.Second, 10)).ok(t)
			if len(due) != 1 || due[0].DealID != g.id {
				t.Fatalf("due: %v, want the deal", due)
			}
			g.attended(t)
			if stored := g.text(t, closingLeaf, g.id); stored == "none" || h.log.size()-before != map[bool]int{true: 0, false: 1}[added] {
				t.Errorf("after the worker: leaf %s, %d new leaves", stored, h.log.size()-before)
			}
			g.atRound(t).attended(t)
		})
	}
	ended := down(false)
	for party := range 2 {
		ended.reveal(t, h.sealed(), party).ok(t)
	}
	ended.exec(t, "UPDATE deals SET commits_closed_at = commits_closed_at - 10 WHERE deal_id = $1", ended.id)
	if due := of(ended.replica().Due(t.Context(), 3*time.Second, 10)).ok(t); !slices.ContainsFunc(due, func(d store.Due) bool { return d.DealID == ended.id }) {
		t.Errorf("the deal that ended by hand is not due: %v", due)
	}
	ended.attended(t)
	if stored := ended.text(t, closingLeaf, ended.id); stored == "none" || ended.phase(t) != "COMPUTED" {
		t.Errorf("after the worker, the deal that ended by hand has leaf %s and is %s, want a leaf, COMPUTED", stored, ended.phase(t))
	}
	h.log.fail(func(func()) error { return errors.New("the log is away") }, nil)
	pending := h.split(t, nil).allSealed(t)
	for party := range 2 {
		pending.reveal(t, h.sealed(), party).ok(t)
	}
	h.log.fail(nil, nil)
	own := h.beacon.Chain()
	slow := own
	slow.Period = 4_000_000_000 // leaves no time for seals
	h.beacon.set(slow, nil)
	_, err := pending.replica().ProcessDeal(t.Context(), pending.id)
	if leaf := pending.text(t, "SELECT coalesce(leaf_index::text, 'none') FROM certificates WHERE deal_id = $1", pending.id); err == nil || leaf == "none" {
		t.Errorf("if the closing fails: %v, and the certificate has the leaf %s; want an error and a leaf", err, leaf)
	}
	h.beacon.set(own, nil)
	late := down(false)
	late.atRound(t).attended(t)
	if stored := late.text(t, closingLeaf, late.id); stored != "none" || late.phase(t) != "COMPUTED" {
		t.Errorf("after the round: leaf %s, %s; want none, COMPUTED", stored, late.phase(t))
	}
}

// If the log has another closing of the deal, its rows were changed after that. The deal continues without a closing.
func TestAnotherClosingOfTheDeal(t *testing.T) {
	g := newFixture(t).split(t, nil)
	of(g.log.Append(t.Context(), [32]byte{7}, of(g.signer.Sign(t.Context(), [32]byte{7})).ok(t), translog.Tag(timelock.ClosingTag(g.id)))).ok(t)
	g.allSealed(t)
	if stored := g.text(t, closingLeaf, g.id); stored != "-1" {
		t.Errorf("the stored leaf is %s, want -1", stored)
	}
	g.atRound(t).attended(t)
	svc := g.sealed()
	if b := of(svc.Bundle(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty), false)).ok(t); b.Closing != nil {
		t.Error("the bundle has a closing")
	}
}

// Once all have committed, each party of a deal of mode open gets all seals, until the deal ends.
func TestSealTexts(t *testing.T) {
	h := newFixture(t)
	open := func(d *escrow.Declared) { d.Mode = "open" }
	texts := func(g *game, svc *escrow.Service) answer[escrow.SealTexts] {
		return of(svc.SealTexts(t.Context(), g.access(t, svc, g.tokens[1], escrow.AsParty)))
	}
	g, svc := h.split(t, open), h.sealed()
	texts(g, svc).refused(t, problem.CommitsMissing)
	seal := g.seal(t, 0)
	g.commitSeal(t, svc, 0, seal).ok(t)
	texts(g, svc).refused(t, problem.CommitsMissing)
	g.commitSeal(t, svc, 1, "").ok(t)
	all := texts(g, svc).ok(t)
	if len(all.Seals) != 2 || all.DealID != g.id || *all.Seals[0].Seal != seal || *all.Seals[0].Hash != timelock.Hash(seal) || all.Seals[1].Seal != nil || all.Seals[1].Hash != nil {
		t.Errorf("the seals are %+v", all)
	}
	for i, one := range all.Seals {
		if hash := g.commitment(t, i); one.Commitment != "sha256:"+hex.EncodeToString(hash[:]) || one.Party != i {
			t.Errorf("element %d is %+v", i, one)
		}
	}
	g.atRound(t).attended(t)
	if all := texts(g, svc).ok(t); all.Seals[0].Seal != nil || *all.Seals[0].Hash != timelock.Hash(seal) {
		t.Errorf("after the round: %+v, want only the hash", all.Seals[0])
	}
	g.reveal(t, svc, 1).ok(t)
	texts(g, svc).refused(t, problem.DealEnded)
	texts(h.split(t, nil).allSealed(t), svc).refused(t, problem.InputsSealed)
}
