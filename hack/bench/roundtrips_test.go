package main

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/localservers"
)

func TestRoundTripsAreCounted(t *testing.T) {
	server, err := localservers.StartPostgres(t.Context(), localservers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	address, err := url.Parse(server.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	counter, err := newRoundTripCounter(address.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(counter.close)
	address.Host = counter.address()
	conn, err := pgx.Connect(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	trips := func(do func() error) int64 {
		before := counter.count.Load()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		return counter.count.Load() - before
	}
	prepared := func() error {
		_, err := conn.Exec(t.Context(), "SELECT $1::int", 1)
		return err
	}
	if n := trips(prepared); n != 2 {
		t.Errorf("the first use of a statement takes %d round trips, want 2", n)
	}
	if n := trips(prepared); n != 1 {
		t.Errorf("a prepared statement takes %d round trips, want 1", n)
	}
	batch := func() error {
		b := &pgx.Batch{}
		for range 3 {
			b.Queue("SELECT $1::int", 1)
		}
		return conn.SendBatch(t.Context(), b).Close()
	}
	if n := trips(batch); n != 1 {
		t.Errorf("a batch of three takes %d round trips, want 1", n)
	}
	transaction := func() error {
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return nil })
	}
	if n := trips(transaction); n != 2 {
		t.Errorf("an empty transaction takes %d round trips, want 2", n)
	}
}
