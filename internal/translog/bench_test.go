package translog

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkAppendToProof is what an issuer waits for, over the HTTP ports: 64
// callers each append an entry, read its proof and verify it, the signature of
// the head included. Set FAIRPACT_TEST_POSTGRES_URL to measure on a server with
// stock settings that flushes.
func BenchmarkAppendToProof(b *testing.B) {
	const callers = 64
	d := newDeployment(b)
	l := d.open(b, d.pool, nil)
	appends, reads := httptest.NewServer(l.AppendHandler(secret)), httptest.NewServer(l.ReadHandler())
	defer appends.Close()
	defer reads.Close()
	client := NewClient(appends.URL, reads.URL, secret)
	d.mustAppend(b, l, -1)
	signatures := make([]string, b.N)
	for n := range signatures {
		signatures[n] = d.sign(b, entryOf(n))
	}
	took := make([]time.Duration, b.N)
	var verified sync.Map // heads whose signature a caller has verified

	b.ResetTimer()
	each(b, callers, func(ctx context.Context, n int) error {
		began := time.Now()
		index, err := client.Append(ctx, entryOf(n), signatures[n])
		if err != nil {
			return err
		}
		proof, err := client.Inclusion(ctx, entryOf(n), index)
		if err != nil {
			return err
		}
		if _, done := verified.Load(proof.TreeHead); !done {
			if err := d.keys.Verify(proof.Message(), proof.Signature); err != nil {
				return err
			}
			verified.Store(proof.TreeHead, true)
		}
		took[n] = time.Since(began)
		return proof.Verify(entryOf(n))
	})
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "proofs/s")
	b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
}

// each does n = 0 to b.N-1 from a number of callers at once.
func each(b *testing.B, callers int, do func(ctx context.Context, n int) error) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for n := int(next.Add(1)) - 1; n < b.N; n = int(next.Add(1)) - 1 {
				if err := do(b.Context(), n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkAppend appends from 64 callers at once and, in the same run, inserts
// single rows into a bare table from as many: the ratio says what the log costs
// beside the least that a durable write can cost here.
func BenchmarkAppend(b *testing.B) {
	const callers = 64
	d := newDeployment(b)
	if _, err := d.pool.Exec(b.Context(), "CREATE TABLE bare (entry bytea PRIMARY KEY)"); err != nil {
		b.Fatal(err)
	}
	l := d.open(b, d.pool, nil)
	d.mustAppend(b, l, -1)
	signatures := make([]string, b.N)
	for n := range signatures {
		signatures[n] = d.sign(b, entryOf(n))
	}

	spread := func(do func(ctx context.Context, n int) error) time.Duration {
		start := time.Now()
		each(b, callers, do)
		return time.Since(start)
	}
	bare := spread(func(ctx context.Context, n int) error {
		entry := entryOf(n)
		_, err := d.pool.Exec(ctx, "INSERT INTO bare VALUES ($1)", entry[:])
		return err
	})
	b.ResetTimer()
	logged := spread(func(ctx context.Context, n int) error {
		_, err := l.Append(ctx, entryOf(n), signatures[n])
		return err
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/logged.Seconds(), "appends/s")
	b.ReportMetric(float64(b.N)/bare.Seconds(), "bare-inserts/s")
	b.ReportMetric(bare.Seconds()/logged.Seconds(), "of-bare-insert")
}

// BenchmarkLoneAppend is the latency of a caller that appends alone, the signing
// of the entry included.
func BenchmarkLoneAppend(b *testing.B) {
	d := newDeployment(b)
	l := d.open(b, d.pool, nil)
	for n := 0; b.Loop(); n++ {
		d.mustAppend(b, l, n)
	}
}

// BenchmarkInclusion is a proof out of 70,000 leaves, read and verified.
func BenchmarkInclusion(b *testing.B) {
	d := newDeployment(b)
	l := d.open(b, d.pool, nil)
	fill(b, l, 0, 70_000)
	index := int64(0)
	for b.Loop() {
		if _, err := l.Inclusion(b.Context(), LeafQuery{LeafIndex: &index}); err != nil {
			b.Fatal(err)
		}
		index = (index + 7919) % 70_000
	}
}
