package escrow_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

const window = 7 * 24 * time.Hour

// house is an escrow over a real database.
type house struct {
	store   *store.Store
	sql     *pgxpool.Pool
	secret  *sealing.Secret
	secrets *sealing.Secrets // secret alone
	pen     *pen
	keys    *signing.KeySet
	log     *ledger
	well    *well
	origin  string // of the deployment; "": not known
}

func newHouse(t *testing.T) *house {
	t.Helper()
	return newHouseOn(t, servertest.Postgres(t))
}

func newHouseOn(t *testing.T, url string) *house {
	t.Helper()
	h := &house{pen: newPen(t), well: newWell()}
	h.log = &ledger{pen: h.pen.Signer}
	check(t, store.Migrate(t.Context(), url))
	h.store = openStore(t, url)
	var err error
	h.sql, err = pgxpool.New(t.Context(), url)
	check(t, err)
	t.Cleanup(h.sql.Close)
	h.secret, err = sealing.New(make([]byte, 32))
	check(t, err)
	h.secrets, err = sealing.NewSecrets(h.secret)
	check(t, err)
	h.keys, err = signing.NewKeySet(h.pen.PublicKey(), nil)
	check(t, err)
	return h
}

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, 8)
	check(t, err)
	t.Cleanup(s.Close)
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replica is another process of the escrow: it knows only what is stored.
func (h *house) replica() *escrow.Service { return h.replicaOn(h.store) }

func (h *house) replicaOn(s *store.Store) *escrow.Service {
	return escrow.New(s, h.secrets, h.pen, h.keys, h.log, h.well, escrow.Options{EntropyWindow: window}, slog.New(slog.DiscardHandler))
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
