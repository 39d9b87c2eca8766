//go:build cluster

package cluster

import (
	"strings"
	"testing"
	"time"
)

// What must never be in the database, whatever was killed on the way. What is
// overdue has a minute to end.
const never = `
SELECT 'a deal that has ended without its one certificate', deal_id FROM deals d WHERE phase IN ('COMPUTED', 'VOID')
	AND (SELECT count(*) FROM certificates c WHERE c.deal_id = d.deal_id AND c.cert_id = d.cert_id) <> 1
UNION ALL SELECT 'a certificate without signature or leaf', deal_id FROM certificates WHERE signature IS NULL OR leaf_index IS NULL
UNION ALL SELECT 'an entry that is not one leaf, at its index', deal_id FROM certificates c
	WHERE (SELECT array_agg(leaf_index) FROM translog.leaves l WHERE l.entry = sha256(c.payload)) IS DISTINCT FROM ARRAY[c.leaf_index]
UNION ALL SELECT 'a leaf that is no certificate', leaf_index::text FROM translog.leaves WHERE entry NOT IN (SELECT sha256(payload) FROM certificates)
UNION ALL SELECT 'a gap in the leaves', count(*)::text FROM translog.leaves HAVING count(*) > 0 AND (min(leaf_index) <> 0 OR max(leaf_index) <> count(*) - 1)
UNION ALL SELECT 'a deal that its deadline has not ended', deal_id FROM deals
	WHERE phase = 'COMMITTING' AND commit_deadline < extract(epoch FROM clock_timestamp()) - 60
	OR phase = 'REVEALING' AND reveals_closed_at IS NULL AND reveal_deadline < extract(epoch FROM clock_timestamp()) - 60
UNION ALL SELECT 'a VOID that does not name exactly those who failed to act', deal_id FROM deals d WHERE phase = 'VOID' AND algorithm = 'split.v1'
	AND void_flakers IS DISTINCT FROM (SELECT array_agg(party ORDER BY party) FROM parties p WHERE p.deal_id = d.deal_id AND NOT CASE
		WHEN d.commits_closed_at IS NULL THEN EXISTS (SELECT FROM commitments c WHERE c.deal_id = p.deal_id AND c.party = p.party)
		ELSE EXISTS (SELECT FROM reveals r WHERE r.deal_id = p.deal_id AND r.party = p.party) END)
UNION ALL SELECT 'a VOID before its deadline', d.deal_id FROM deals d JOIN certificates c USING (deal_id) WHERE phase = 'VOID' AND algorithm = 'split.v1'
	AND c.created_at < CASE WHEN commits_closed_at IS NULL THEN commit_deadline ELSE reveal_deadline END`

// planted are corruptions that it must find: a query that sees nothing wrong in them
// sees nothing.
var planted = map[string]string{
	"a deal that has ended without its one certificate":         "DELETE FROM certificates WHERE cert_id = (SELECT min(cert_id) FROM certificates)",
	"a certificate without signature or leaf":                   "UPDATE certificates SET signature = NULL WHERE cert_id = (SELECT min(cert_id) FROM certificates)",
	"an entry that is not one leaf, at its index":               "UPDATE certificates SET payload = payload || 'x' WHERE cert_id = (SELECT min(cert_id) FROM certificates)",
	"a leaf that is no certificate":                             "UPDATE certificates SET payload = payload || 'x' WHERE cert_id = (SELECT min(cert_id) FROM certificates)",
	"a gap in the leaves":                                       "INSERT INTO translog.leaves SELECT max(leaf_index) + 2, sha256('x') FROM translog.leaves",
	"a deal that its deadline has not ended":                    "UPDATE deals SET phase = 'COMMITTING', commit_deadline = 0 WHERE deal_id = (SELECT min(deal_id) FROM deals)",
	"a VOID that does not name exactly those who failed to act": "UPDATE deals SET void_flakers = '{0,2}' WHERE phase = 'VOID' AND algorithm = 'split.v1'",
	"a VOID before its deadline":                                "UPDATE certificates SET created_at = created_at - 600",
}

func psql(t *testing.T, query string) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, "exec", "deployment/postgres", "--", "psql", needed(t, "FAIRPACT_E2E_DATABASE"), "-qAt", "-v", "ON_ERROR_STOP=1", "-c", query))
}

// books counts what all the phases have left: every deal has its end, its
// certificate and its leaf, once.
func books(t *testing.T, c *cluster) {
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
			t.Errorf("planted and not found: %s\n%.500s", what, found)
		}
	}
	c.shows(t, "deals by phase: %s; certificates, leaves: %s",
		psql(t, `SELECT string_agg(phase || ' ' || n, ', ' ORDER BY phase) FROM (SELECT phase, count(*) n FROM deals GROUP BY 1) x`),
		psql(t, `SELECT (SELECT count(*) FROM certificates), (SELECT count(*) FROM translog.leaves)`))
}
