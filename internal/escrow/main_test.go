package escrow_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/ephemeral"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

const window = 7 * 24 * time.Hour

// house is an escrow over a real database and a real Redis.
type house struct {
	store  *store.Store
	sql    *pgxpool.Pool
	server *localservers.Redis
	redis  *ephemeral.Redis
	secret *sealing.Secret
	pen    *pen
	keys   *signing.KeySet
	log    *ledger
	well   *well
}

func newHouse(t *testing.T) *house {
	t.Helper()
	return newHouseOn(t, servertest.Postgres(t))
}

func newHouseOn(t *testing.T, url string) *house {
	t.Helper()
	h := &house{server: servertest.StartRedis(t), pen: newPen(t), well: newWell()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store.Migrate(t.Context(), url))
	var err error
	h.store, err = store.Open(t.Context(), url, 8)
	must(err)
	t.Cleanup(h.store.Close)
	h.sql, err = pgxpool.New(t.Context(), url)
	must(err)
	t.Cleanup(h.sql.Close)
	h.redis, err = ephemeral.Open(h.server.URL() + servertest.PatientRedis)
	must(err)
	t.Cleanup(func() { _ = h.redis.Close() })
	h.secret, err = sealing.New(make([]byte, 32))
	must(err)
	h.keys, err = signing.NewKeySet(h.pen.PublicKey(), nil)
	must(err)
	h.log = &ledger{pen: h.pen.Signer}
	return h
}

// replica is another process of the escrow: it knows only what is stored.
func (h *house) replica() *escrow.Service {
	return escrow.New(h.store, h.redis, h.secret, h.pen, h.keys, h.log, h.well, escrow.Options{EntropyWindow: window}, slog.New(slog.DiscardHandler))
}

func (h *house) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := h.sql.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (h *house) text(t *testing.T, query string, args ...any) (s string) {
	t.Helper()
	if err := h.sql.QueryRow(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}
