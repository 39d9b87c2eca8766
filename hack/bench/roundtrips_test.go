package main

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localservers"
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
	statement := func() error {
		_, err := conn.Exec(t.Context(), "SELECT $1::int", 1)
		return err
	}
	for _, c := range []struct {
		what string
		want int64
		do   func() error
	}{
		{"the first use of a statement", 2, statement},
		{"a prepared statement", 1, statement},
		{"a batch of three", 1, func() error {
			b := &pgx.Batch{}
			for range 3 {
				b.Queue("SELECT $1::int", 1)
			}
			return conn.SendBatch(t.Context(), b).Close()
		}},
		{"an empty transaction", 2, func() error { return pgx.BeginFunc(t.Context(), conn, func(pgx.Tx) error { return nil }) }},
	} {
		before := counter.count.Load()
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if n := counter.count.Load() - before; n != c.want {
			t.Errorf("%s takes %d round trips, want %d", c.what, n, c.want)
		}
	}
}
