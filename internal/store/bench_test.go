package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/store"
)

// BenchmarkCommit inserts commitments and reveals of a 10,000-party deal from 64
// callers at once, on a Postgres that flushes, and in the same run single rows
// into a bare table: the ratios compare a guarded insert with the cheapest durable
// write on this machine.
func BenchmarkCommit(b *testing.B) {
	const parties = 10_000
	pg, err := localservers.StartPostgres(b.Context(), localservers.Options{Durable: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pg.Close() })
	url := pg.AdminURL()
	if err := store.Migrate(b.Context(), url); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(b.Context(), url, 32)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), "CREATE TABLE bare (deal text, party int, entry bytea, PRIMARY KEY (deal, party))"); err != nil {
		b.Fatal(err)
	}

	var round int
	for b.Loop() {
		round++
		deal := benchDeal(b, s, round, parties)
		bare := rate(b, parties, func(ctx context.Context, i int) error {
			_, err := pool.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", deal, i, hash(i))
			return err
		})
		commits := rate(b, parties, func(ctx context.Context, i int) error {
			return accepted(s.Commit(ctx, store.Act{DealID: deal, Party: i, Commitment: [32]byte(hash(i)), First: i}))
		})
		reveals := rate(b, parties, func(ctx context.Context, i int) error {
			return accepted(s.Reveal(ctx, store.Act{DealID: deal, Party: i, Commitment: [32]byte(hash(i)), Sealed: hash(i), First: i}))
		})
		b.ReportMetric(bare, "bare-inserts/s")
		b.ReportMetric(commits, "commits/s")
		b.ReportMetric(reveals, "reveals/s")
		b.ReportMetric(commits/bare, "commit-of-bare")
		b.ReportMetric(reveals/bare, "reveal-of-bare")
	}
}

func accepted(got store.Acted, err error) error {
	if err == nil && !got.Done {
		return fmt.Errorf("not inserted")
	}
	return err
}

func benchDeal(b *testing.B, s *store.Store, round, parties int) string {
	b.Helper()
	now := time.Now().Unix()
	d := &store.Declaration{
		DealID: fmt.Sprint("d_", round), OwnerHash: hash(-round), Algorithm: "random.v1", Params: []byte("{}"), Mode: "sealed", Retention: "standard",
		CommitDeadline: now + 3600, RevealDeadline: now + 7200, Labels: make([]string, parties),
	}
	tokens := make([][]byte, parties)
	for i := range tokens {
		d.Labels[i], tokens[i] = fmt.Sprint(i), hash(round*parties+i)
	}
	if err := s.InsertKey(b.Context(), d.OwnerHash, nil); err != nil {
		b.Fatal(err)
	}
	if created, err := s.CreateDeal(b.Context(), store.NewDeal{Declaration: d, TokenHashes: tokens}); err != nil || !created.OK {
		b.Fatal(created, err)
	}
	return d.DealID
}

func hash(i int) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
	return sum[:]
}

// rate makes n calls from 64 callers and returns how many a second.
func rate(b *testing.B, n int, do func(context.Context, int) error) float64 {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range 64 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(b.Context(), i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(n) / time.Since(began).Seconds()
}
