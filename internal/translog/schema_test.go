package translog

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

func TestMigrate(t *testing.T) {
	url := servertest.Postgres(t)
	pool := openPool(t, url)
	if err := SchemaCurrent(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("no schema: %v, want a word on fairpactctl migrate", err)
	}
	if _, err := Open(t.Context(), pool, nil, nil, quiet); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("open without a schema: %v", err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := Migrate(t.Context(), url); err != nil {
				t.Errorf("migrate beside another: %v", err)
			}
		})
	}
	group.Wait()
	if err := SchemaCurrent(t.Context(), pool); err != nil {
		t.Error(err)
	}
	set := func(version int64) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "UPDATE translog.goose_db_version SET version_id = $1 WHERE version_id = (SELECT max(version_id) FROM translog.goose_db_version)", version); err != nil {
			t.Fatal(err)
		}
	}
	set(wantVersion + 1)
	if err := SchemaCurrent(t.Context(), pool); err != nil {
		t.Errorf("a newer schema: %v", err)
	}
	set(wantVersion - 1)
	if err := SchemaCurrent(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an older schema: %v, want a word on fairpactctl migrate", err)
	}
}

// A server that acknowledges commits before they are durable is told otherwise,
// and no plan scans a table that has grown since.
func TestSessionSettings(t *testing.T) {
	url := servertest.Postgres(t)
	for setting, want := range map[string]string{"off": "on", "on": "on", "remote_write": "remote_write"} {
		first := openPool(t, url)
		if _, err := first.Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = "+setting+"', current_database()); END $$"); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := openPool(t, url).QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != want {
			t.Errorf("synchronous_commit %s becomes %s (%v), want %s", setting, got, err, want)
		}
	}
	var scans string
	if err := openPool(t, url).QueryRow(t.Context(), "SHOW enable_seqscan").Scan(&scans); err != nil || scans != "off" {
		t.Errorf("enable_seqscan is %s (%v), want off", scans, err)
	}
}

func TestAdminPort(t *testing.T) {
	d := newDeployment(t)
	signer := &failingSigner{Signer: d.signer}
	signer.down.Store(true)
	l := d.open(t, d.pool, signer)
	server := httptest.NewServer(AdminHandler(l.Ready))
	defer server.Close()
	status := func(path string) (int, string) {
		response, body := call(t, "GET", server.URL+path)
		return response.StatusCode, body
	}
	if code, body := status("/readyz"); code != 503 || !strings.Contains(body, "no head is published") {
		t.Errorf("readyz before the first head: %d %s", code, body)
	}
	if code, _ := status("/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if code, _ := status("/metrics/"); code != 404 {
		t.Errorf("another path: %d", code)
	}
	signer.down.Store(false)
	waitForHead(t, l, 0)
	if code, body := status("/readyz"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	d.pool.Close()
	if code, body := status("/readyz"); code != 503 {
		t.Errorf("readyz without a database: %d %s", code, body)
	}
	if code, _ := status("/healthz"); code != 200 {
		t.Errorf("healthz without a database: %d", code)
	}
}
