package escrow_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

var garbageSeals = flag.Int("garbage", 600, "number of garbage seals in TestGarbageAtOneRound; 10000 measures the worst deal")

// Seals that pass all checks and do not open cost the service one pairing each. They are opened in batches, so
// other deals go on in between. All of them are kept, and only their parties are at fault.
func TestGarbageAtOneRound(t *testing.T) {
	h, n := newFixture(t), *garbageSeals
	g := h.many(t, n)
	g.allGarbage(t)

	stop, others := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var took []time.Duration
		for {
			select {
			case <-stop:
				others <- took
				return
			default:
			}
			began := time.Now()
			h.split(t, nil).revealed(t)
			took = append(took, time.Since(began))
		}
	}()
	worker, batches, peak := h.replica(), 0, uint64(0)
	began, cpu := time.Now(), processTime(t)
	for {
		batches++
		again := of(worker.ProcessDeal(t.Context(), g.id)).ok(t)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if peak = max(peak, m.HeapInuse); again > time.Millisecond {
			break
		}
	}
	cpu, took := processTime(t)-cpu, time.Since(began)
	close(stop)
	latencies := <-others
	slices.Sort(latencies)
	if want := (n + 127) / 128; batches < want {
		t.Errorf("%d seals were opened in %d batches, want at least %d: other deals must go on in between", n, batches, want)
	}
	if kept := g.text(t, "SELECT count(*)::text FROM seals WHERE deal_id = $1 AND state = 'failed' AND sealed IS NOT NULL", g.id); kept != fmt.Sprint(n) || g.phase(t) != "REVEALING" {
		t.Errorf("%s of %d seals are failed and kept, and the deal is %s", kept, n, g.phase(t))
	}
	if len(latencies) > 0 {
		t.Logf("%d seals in %v: CPU of this process %v, heap at most %d MiB; %d other deals meanwhile, p50 %v, max %v",
			n, took, cpu, peak>>20, len(latencies), latencies[len(latencies)/2], latencies[len(latencies)-1])
	}
}

// many creates a random.v1 deal of n parties.
func (h *fixture) many(t *testing.T, n int) *game {
	t.Helper()
	return h.random(t, func(d *escrow.Declared) {
		d.Labels = nil
		for i := range n {
			d.Labels = append(d.Labels, fmt.Sprint("party ", i))
		}
	})
}

// allGarbage gives every party a seal that passes all checks and does not open. Its round is due.
func (g *game) allGarbage(t *testing.T) {
	t.Helper()
	relabelled := devbeacon.New([]byte("foreign")).Chain()
	relabelled.Hash = g.beacon.Chain().Hash
	garbage := []byte(lock(t, relabelled, g.sealRound(t), g.plaintext(t, 0)))
	hash, parties, sealed := sha256.Sum256(garbage), make([]int, len(g.tokens)), make([][]byte, len(g.tokens))
	for i := range parties {
		parties[i], sealed[i] = i, g.secret.EncryptSeal(g.id, i, garbage)
	}
	g.exec(t, `WITH given AS (SELECT * FROM unnest($2::int[], $3::bytea[]) AS p (party, sealed)),
		committed AS (INSERT INTO commitments (deal_id, party, commitment, committed_at) SELECT $1, party, $4, 1 FROM given)
		INSERT INTO seals (deal_id, party, hash, sealed, sealed_at, round_time) SELECT $1, party, $4, sealed, 1, 1 FROM given`, g.id, parties, sealed, hash[:])
	g.exec(t, "UPDATE deals SET phase = 'REVEALING', commits_closed_at = commit_deadline, seal_time = 1 WHERE deal_id = $1", g.id)
}

// At the end of the entropy window a call opens one batch, as at any other time. The deal ends when no seal is pending.
func TestOneCallOpensOneBatchAfterTheEntropyWindow(t *testing.T) {
	h := newFixture(t)
	g := h.many(t, 130).later(t, 8000+int64(window.Seconds()))
	g.allGarbage(t)
	if got := g.view(t, g.replica()).State; got != deal.Revealing {
		t.Fatalf("after the first call the deal is %s, want REVEALING", got)
	}
	if pending := g.text(t, "SELECT count(*)::text FROM seals WHERE deal_id = $1 AND state = 'sealed'", g.id); pending != "2" {
		t.Errorf("after the first call %s seals are pending, want 2", pending)
	}
	if again := of(g.replica().ProcessDeal(t.Context(), g.id)).ok(t); again > time.Millisecond || g.phase(t) != "VOID" {
		t.Errorf("after the worker the deal is %s and due again in %v, want VOID", g.phase(t), again)
	}
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
