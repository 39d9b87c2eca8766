package escrow_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// A failed seal shows what its party sent, also after a reveal by hand.
func TestAFailedSealIsKept(t *testing.T) {
	h := newFixture(t)
	for retention, want := range map[string]string{"standard": "0opened 1failed+", "purge": "0opened 1failed"} {
		g, svc := h.split(t, func(d *escrow.Declared) { d.Retention = retention }), h.sealed()
		g.commitSeal(t, svc, 0, g.seal(t, 0)).ok(t)
		g.commitSeal(t, svc, 1, g.seal(t, 0)).ok(t)
		g.atRound(t).attended(t)
		g.reveal(t, g.replica(), 1).ok(t)
		if got := g.sealStates(t); got != want {
			t.Errorf("retention %s: after a reveal by hand the seals are %s, want %s", retention, got, want)
		}
		declared := of(svc.Declaration(t.Context(), g.access(t, svc, g.tokens[0], escrow.Read))).ok(t)
		if !slices.Equal(declared.Seals.Parties, []string{"opened", "failed"}) {
			t.Errorf("retention %s: the seals are shown as %v", retention, declared.Seals.Parties)
		}
	}
}

// During a rolling upgrade, the previous release serves the same deals and knows no seals.
func TestSealsBesideThePreviousRelease(t *testing.T) {
	h := newFixture(t)
	t.Run("the last commitment", func(t *testing.T) {
		g := h.split(t, nil)
		g.commitSeal(t, h.sealed(), 0, g.seal(t, 0)).ok(t)
		hash := g.commitment(t, 1)
		g.exec(t, "INSERT INTO commitments (deal_id, party, commitment, committed_at) VALUES ($1, 1, $2, $3)", g.id, hash[:], h.now(t))
		g.exec(t, "UPDATE deals SET phase = 'REVEALING', commits_closed_at = $2 WHERE deal_id = $1", g.id, h.now(t))
		if at := g.text(t, "SELECT coalesce(seal_time, 0)::text FROM deals WHERE deal_id = $1", g.id); at != fmt.Sprint(h.beacon.Chain().RoundTime(g.sealRound(t))) {
			t.Fatalf("the seals open at %s", at)
		}
		g.atRound(t).attended(t)
		if got := g.sealStates(t); got != "0opened" {
			t.Errorf("the seals are %s, want 0opened", got)
		}
	})
	t.Run("a reveal by hand", func(t *testing.T) {
		g := h.split(t, nil).allSealed(t)
		kept := g.text(t, "SELECT encode(sealed, 'hex') FROM seals WHERE deal_id = $1 AND party = 0", g.id)
		g.reveal(t, g.replica(), 0).ok(t)
		g.exec(t, "UPDATE seals SET state = 'sealed', sealed = decode($2, 'hex') WHERE deal_id = $1 AND party = 0", g.id, kept)
		if c := g.atRound(t).attended(t).published(t); c.Outcome != certificate.Computed || g.sealStates(t) != "0unused 1opened" {
			t.Errorf("outcome %s with the seals %s, want COMPUTED, and the seal that is not needed deleted", c.Outcome, g.sealStates(t))
		}
	})
}

// An operator who changes the beacon makes no party a flaker: the seals wait, and then the deal expires.
func TestAnotherBeaconFailsNoSeal(t *testing.T) {
	h := newFixture(t)
	pinned, free := h.split(t, func(d *escrow.Declared) { d.Seals = deal.SealsRequired }), h.split(t, nil)
	pinned.allSealed(t).atRound(t)
	free.allSealed(t).atRound(t)
	h.beacon.server = devbeacon.New([]byte("another"))
	h.beacon.set(h.beacon.server.Chain(), nil)
	for _, g := range []*game{pinned, free} {
		if _, err := g.replica().ProcessDeal(t.Context(), g.id); !problem.Is(err, problem.BeaconUnavailable) {
			t.Errorf("ProcessDeal: %v, want BEACON_UNAVAILABLE", err)
		}
		if got := g.sealStates(t); got != "0sealed+ 1sealed+" {
			t.Errorf("the seals are %s, want all pending", got)
		}
		g.later(t, 7200+int64(window.Seconds()))
		if got := g.view(t, g.replica()).State; got != deal.Expired {
			t.Errorf("after the entropy window the deal is %s, want EXPIRED", got)
		}
	}
}

// A round that comes an hour after reveal_deadline opens the seals all the same.
func TestARoundThatIsLateByAnHour(t *testing.T) {
	h := newFixture(t)
	g := h.split(t, nil).committed(t).later(t, 7200+3600)
	for party := range g.tokens { // the round follows from the times, so the seals are stored after later
		sealed := h.secret.EncryptSeal(g.id, party, []byte(g.seal(t, party)))
		g.exec(t, "INSERT INTO seals (deal_id, party, hash, sealed, sealed_at, round_time) VALUES ($1, $2, $3, $4, 1, 1)", g.id, party, make([]byte, 32), sealed)
	}
	g.atRound(t)
	h.beacon.set(h.beacon.Chain(), beacon.ErrNotYet)
	if got := g.view(t, g.replica()).State; got != deal.Revealing {
		t.Fatalf("an hour after reveal_deadline the deal is %s, want REVEALING", got)
	}
	h.beacon.set(h.beacon.Chain(), nil)
	if c := g.attended(t).published(t); c.Outcome != certificate.Computed || !certificate.OpenedBySeal(c.Properties) {
		t.Errorf("outcome %s with %v, want COMPUTED by timelock", c.Outcome, c.Properties)
	}
}

// relabelled returns a seal for a later round, whose stanza names the round of the deal.
func (g *game) relabelled(t *testing.T, party int) string {
	t.Helper()
	round := g.sealRound(t)
	armored := lock(t, g.beacon.Chain(), round+1, g.plaintext(t, party))
	lines := strings.Split(strings.TrimSpace(armored), "\n")
	raw := of(base64.StdEncoding.DecodeString(strings.Join(lines[1:len(lines)-1], ""))).ok(t)
	text := base64.StdEncoding.EncodeToString(bytes.Replace(raw, fmt.Append(nil, round+1), fmt.Append(nil, round), 1))
	b := lines[0] + "\n"
	for line := range slices.Chunk([]byte(text), 64) {
		b += string(line) + "\n"
	}
	return b + lines[len(lines)-1] + "\n"
}

// rows are the rows of a deal in a dump.
type rows map[string]string

var dumped = []string{"deals", "commitments", "reveals", "seals", "certificates"}

func (g *game) dump(t *testing.T) rows {
	t.Helper()
	all := rows{}
	for _, table := range dumped {
		all[table] = g.text(t, "SELECT coalesce(json_agg(r), '[]')::text FROM "+table+" AS r WHERE deal_id = $1", g.id)
	}
	return all
}

func (g *game) restore(t *testing.T, from rows) {
	t.Helper()
	for _, table := range slices.Backward(dumped) {
		g.exec(t, "DELETE FROM "+table+" WHERE deal_id = $1", g.id)
	}
	for _, table := range dumped {
		g.exec(t, "INSERT INTO "+table+" SELECT * FROM json_populate_recordset(NULL::"+table+", $1::json)", from[table])
	}
}

// A database that was restored from a dump opens its seals again, to the same result.
func TestRestoreOfAnOlderDumpOpensTheSameSeals(t *testing.T) {
	h := newFixture(t)
	for name, ended := range map[string]bool{"before the certificate": false, "after the certificate": true} {
		t.Run(name, func(t *testing.T) {
			g := h.split(t, purge).allSealed(t).atRound(t)
			older := g.dump(t)
			if ended {
				g.attended(t)
			}
			var first certificate.Certificate
			if ended {
				first = g.published(t)
			} else {
				g.exec(t, "UPDATE seals SET sealed = NULL, state = 'opened' WHERE deal_id = $1 AND party = 0", g.id) // lost with the database
			}
			g.restore(t, older)
			if got := g.sealStates(t); got != "0sealed+ 1sealed+" {
				t.Fatalf("after the restore the seals are %s", got)
			}
			_, _ = g.replica().ProcessDeal(t.Context(), g.id)
			if got := g.sealStates(t); got != "0opened 1opened" || g.phase(t) != "COMPUTED" {
				t.Fatalf("after the round: %s with the seals %s", g.phase(t), got)
			}
			if !ended {
				g.published(t)
				return
			}
			// The log has the first certificate, and refuses a second one. A party's copy brings it back.
			g.certificate(t, g.replica()).refused(t, problem.LogInconsistent)
			payload := of(first.SigningBytes()).ok(t)
			check(t, escrow.Adopt(t.Context(), h.store, h.secrets, payload, first.Signature, first.LogProof.LeafIndex))
			if c := g.published(t); c.CertID != first.CertID || string(c.Result) != string(first.Result) {
				t.Errorf("certificate %s with %s, want %s with %s", c.CertID, c.Result, first.CertID, first.Result)
			}
		})
	}
}
