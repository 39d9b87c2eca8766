//go:build cluster

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// overdue finds deals that have not ended a minute after their deadline, and split.v1 deals that became
// VOID before their deadline. A shapley.v1 deal may become VOID earlier, by a rejection.
const overdue = `
SELECT 'a deal that its deadline has not ended', deal_id FROM deals
	WHERE phase = 'COMMITTING' AND commit_deadline < extract(epoch FROM clock_timestamp()) - 60
	OR phase = 'REVEALING' AND reveals_closed_at IS NULL AND reveal_deadline < extract(epoch FROM clock_timestamp()) - 60
UNION ALL SELECT 'a VOID before its deadline', d.deal_id FROM deals d JOIN certificates c USING (deal_id) WHERE phase = 'VOID' AND algorithm = 'split.v1'
	AND c.created_at < CASE WHEN commits_closed_at IS NULL THEN commit_deadline ELSE reveal_deadline END`

var planted = map[string]string{
	"a certificate without signature or leaf index": "UPDATE certificates SET signature = NULL WHERE cert_id = (SELECT min(cert_id) FROM certificates)",
	"a deal that its deadline has not ended":        "UPDATE deals SET phase = 'COMMITTING', commit_deadline = 0 WHERE deal_id = (SELECT min(deal_id) FROM deals)",
	"a VOID before its deadline":                    "UPDATE certificates SET created_at = created_at - 600",
}

func psql(t *testing.T, query string) string {
	t.Helper()
	return strings.TrimSpace(postgres(t, "psql", needed(t, "FAIRPACT_E2E_DATABASE"), "-qAt", "-v", "ON_ERROR_STOP=1", "-c", query))
}

// invariants runs the queries for violations of the database's invariants. They must find no
// violation, and must find each planted corruption.
func invariants(t *testing.T, c *cluster) {
	never := overdue + "\nUNION ALL " + e2e.NeverQuery()
	var found string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if found = psql(t, never); found == "" {
			break
		}
	}
	if found != "" {
		t.Errorf("the database holds:\n%.2000s", found)
	}
	for what, plant := range planted {
		if found := psql(t, "BEGIN; "+plant+"; "+never+"; ROLLBACK"); !strings.Contains(found, what+"|") {
			t.Errorf("the queries did not find the planted %q. They found:\n%.500s", what, found)
		}
	}
	c.shows(t, "deals by phase: %s; certificates, leaves: %s",
		psql(t, `SELECT string_agg(phase || ' ' || n, ', ' ORDER BY phase) FROM (SELECT phase, count(*) n FROM deals GROUP BY 1) x`),
		psql(t, `SELECT (SELECT count(*) FROM certificates), (SELECT count(*) FROM translog.leaves)`))
}
