package e2e

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// This file has the SQL statements that several test packages share.

// APIKeys counts all API keys.
func (w DB) APIKeys() int64 { return w.Number(`SELECT count(*) FROM api_keys`) }

// Records counts the idempotency records.
func (w DB) Records() int64 { return w.Number(`SELECT count(*) FROM idempotency`) }

// Rows counts the deals, API keys, commitments and reveals together.
func (w DB) Rows() int64 {
	return w.Number(`SELECT (SELECT count(*) FROM deals) + (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM commitments) + (SELECT count(*) FROM reveals)`)
}

// KeptInputs counts the inputs of a deal that are still stored.
func (w DB) KeptInputs(dealID string) int64 {
	return w.Number(`SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL`, dealID)
}

// Published returns the id of a deal's published certificate, or "" if there is none yet.
func (w DB) Published(dealID string) string {
	return Value[string](w, `SELECT coalesce(max(cert_id), '') FROM certificates WHERE deal_id = $1 AND leaf_index IS NOT NULL`, dealID)
}

// Heads counts the published tree heads.
func (w DB) Heads() int64 { return w.Number(`SELECT count(*) FROM translog.tree_heads`) }

// Checkpoints counts the signed checkpoints.
func (w DB) Checkpoints() int64 { return w.Number(`SELECT count(*) FROM translog.checkpoints`) }

// Checkpointed reports whether a checkpoint of the newest tree head is signed.
func (w DB) Checkpointed() bool {
	return w.Number(`SELECT count(*) FROM translog.checkpoints WHERE tree_size = (SELECT max(tree_size) FROM translog.tree_heads)`) == 1
}

// HoldDeal locks a deal's row until the returned transaction ends. Until then, neither a call nor
// the worker can change the deal.
func (w DB) HoldDeal(dealID string) pgx.Tx {
	w.T.Helper()
	held, err := w.Pool.Begin(w.T.Context())
	if err == nil {
		_, err = held.Exec(w.T.Context(), `SELECT FROM deals WHERE deal_id = $1 FOR UPDATE`, dealID)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return held
}

// Phase returns the stored phase of a deal. A call to deal-api could advance the deal, but this
// query does not.
func (w DB) Phase(d *CreatedDeal) string {
	w.T.Helper()
	return Value[string](w, "SELECT phase FROM deals WHERE deal_id = $1", d.ID)
}

// Pass waits until the database's clock reaches a deadline. The service uses the same clock.
func (w DB) Pass(deadline int64) {
	w.T.Helper()
	Eventually(w.T, fmt.Sprintf("the deadline %d passes", deadline), DefaultTimeout, func() bool {
		return Value[bool](w, "SELECT extract(epoch FROM clock_timestamp()) >= $1", deadline)
	})
}

// Exactly waits until every certificate is published. It then requires the given numbers of deals
// and certificates in the database, and one leaf for each certificate.
func (w DB) Exactly(deals, certificates int64) {
	w.T.Helper()
	Eventually(w.T, "every certificate is published", DefaultTimeout, func() bool {
		return w.Number("SELECT count(*) FROM certificates WHERE leaf_index IS NULL") == 0
	})
	for table, want := range map[string]int64{"deals": deals, "certificates": certificates, "translog.leaves": certificates} {
		if have := w.Number("SELECT count(*) FROM " + table); have != want {
			w.T.Errorf("%s has %d rows, want %d", table, have, want)
		}
	}
	if n := w.Number("SELECT count(DISTINCT leaf_index) FROM certificates JOIN translog.leaves USING (leaf_index)"); n != certificates {
		w.T.Errorf("%d certificates have their own leaf, want %d", n, certificates)
	}
}

// unfinished selects the deals with an unpublished certificate. It also selects the deals whose
// next step is due now, or at a deadline within 30 seconds. It leaves out random.v1 deals that wait
// only for their draw.
const unfinished = `
SELECT deal_id FROM certificates WHERE leaf_index IS NULL
UNION ALL
SELECT deal_id FROM deals d WHERE phase = 'COMMITTING'
  AND (commit_deadline <= extract(epoch FROM clock_timestamp()) + 30
    OR parties = (SELECT count(*) FROM commitments c WHERE c.deal_id = d.deal_id))
UNION ALL
SELECT deal_id FROM deals d WHERE phase = 'REVEALING'
  AND CASE WHEN parties = (SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id) THEN algorithm <> 'random.v1'
      ELSE reveal_deadline <= extract(epoch FROM clock_timestamp()) + 30 END`

// Converged waits until no certificate is pending and no step is due within 30 s, except draws (see unfinished).
func (w DB) Converged() {
	w.T.Helper()
	Eventually(w.T, "every due step is taken and every certificate is published", DefaultTimeout, func() bool { return len(w.Column(unfinished)) == 0 })
}

// RevealedEarlier moves the times of both reveals of a two-party deal, and the deal's
// reveals_closed_at, back by the given number of seconds.
func (w DB) RevealedEarlier(d *CreatedDeal, seconds int) {
	w.T.Helper()
	w.Exec(2, "UPDATE reveals SET revealed_at = revealed_at - $2::bigint WHERE deal_id = $1", d.ID, seconds)
	w.Exec(1, "UPDATE deals SET reveals_closed_at = reveals_closed_at - $2::bigint WHERE deal_id = $1 AND reveals_closed_at IS NOT NULL", d.ID, seconds)
}
