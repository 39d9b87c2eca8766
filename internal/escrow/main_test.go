package escrow_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

const window = 7 * 24 * time.Hour

// fixture is a deployment for tests: a real database, and fakes of signer, log and beacon.
type fixture struct {
	store   *store.Store
	sql     *pgxpool.Pool
	secret  *sealing.Secret
	secrets *sealing.Secrets // contains only the field secret
	signer  *fakeSigner
	keys    *signing.KeySet
	log     *fakeLog
	beacon  *fakeBeacon
	origin  string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, servertest.Postgres(t))
}

func newFixtureOn(t *testing.T, url string) *fixture {
	t.Helper()
	h := &fixture{signer: newPen(t), beacon: newWell()}
	h.log = &fakeLog{signer: h.signer.Signer, tags: map[translog.Tag][32]byte{}}
	check(t, store.Migrate(t.Context(), url))
	h.store = openStore(t, url)
	h.sql = of(pgxpool.New(t.Context(), url)).ok(t)
	t.Cleanup(h.sql.Close)
	h.secret = of(sealing.New(make([]byte, 32))).ok(t)
	h.secrets = of(sealing.NewSecrets(h.secret)).ok(t)
	h.keys = signing.NewKeySet(of(keys.OneSigner(h.signer.PublicKey(), "dev://key", nil, keys.Margin)).ok(t))
	return h
}

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	s := of(store.Open(t.Context(), url, 8)).ok(t)
	t.Cleanup(s.Close)
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *fixture) replica() *escrow.Service { return h.replicaOn(h.store, escrow.Options{}) }

func (h *fixture) replicaOn(s *store.Store, o escrow.Options) *escrow.Service {
	o.EntropyWindow = window
	return escrow.New(s, h.secrets, h.signer, h.keys, h.log, h.beacon, o, slog.New(slog.DiscardHandler))
}

func (h *fixture) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := h.sql.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("statement %s: %v", statement, err)
	}
}

func (h *fixture) text(t *testing.T, query string, args ...any) (s string) {
	t.Helper()
	if err := h.sql.QueryRow(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatalf("query %s: %v", query, err)
	}
	return s
}
