package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

// never lists queries that must return no row once a stack has converged ([DB.Converged]),
// whichever processes were killed before.
var never = []struct{ what, query string }{
	{"a COMPUTED or VOID deal without exactly one certificate", `SELECT deal_id FROM deals d WHERE phase IN ('COMPUTED', 'VOID')
		AND (SELECT count(*) FROM certificates c WHERE c.deal_id = d.deal_id AND c.cert_id = d.cert_id) <> 1`},
	{"a certificate whose deal is neither COMPUTED nor VOID, or whose cert_id belongs to no deal", `SELECT cert_id FROM certificates c JOIN deals d USING (deal_id, cert_id)
		WHERE phase NOT IN ('COMPUTED', 'VOID') UNION ALL SELECT cert_id FROM certificates WHERE cert_id NOT IN (SELECT cert_id FROM deals WHERE cert_id IS NOT NULL)`},
	{"a certificate without signature or leaf index", `SELECT cert_id FROM certificates WHERE signature IS NULL OR leaf_index IS NULL`},
	{"a certificate without a leaf at its leaf_index, or with a leaf at another index", `SELECT cert_id FROM certificates c
		WHERE (SELECT array_agg(leaf_index) FROM translog.leaves l WHERE l.entry = sha256(c.payload)) IS DISTINCT FROM ARRAY[c.leaf_index]`},
	{"a certificate whose leaf does not have the deal's tag", `SELECT cert_id FROM certificates c WHERE c.leaf_index IS DISTINCT FROM
		(SELECT leaf_index FROM translog.leaves WHERE tag = sha256('fairpact deal\000'::bytea || convert_to(c.deal_id, 'UTF8')))`},
	{"a leaf that is neither of a certificate nor the closing of a deal with seals", `SELECT leaf_index FROM translog.leaves WHERE entry NOT IN (SELECT sha256(payload) FROM certificates)
		AND tag NOT IN (SELECT sha256('fairpact closing\000'::bytea || convert_to(deal_id, 'UTF8')) FROM deals WHERE seal_time IS NOT NULL)`},
	{"a closing without its leaf", `SELECT deal_id FROM deals d WHERE closing_leaf IS NOT NULL AND closing_leaf IS DISTINCT FROM
		(SELECT leaf_index FROM translog.leaves WHERE tag = sha256('fairpact closing\000'::bytea || convert_to(d.deal_id, 'UTF8')))`},
	{"a gap in the leaves", `SELECT count(*) FROM translog.leaves HAVING count(*) > 0 AND (min(leaf_index) <> 0 OR max(leaf_index) <> count(*) - 1)`},
	{"a log_head size that differs from the number of leaves or from the newest published tree_size", `SELECT size FROM translog.log_head
		WHERE size <> (SELECT count(*) FROM translog.leaves) OR size <> (SELECT max(tree_size) FROM translog.tree_heads)`},
	{"a commit or reveal at or after its deadline", `SELECT deal_id FROM commitments JOIN deals USING (deal_id) WHERE committed_at >= commit_deadline
		UNION ALL SELECT deal_id FROM reveals JOIN deals USING (deal_id) WHERE revealed_at >= reveal_deadline`},
	{"a reveal after the end of its deal", `SELECT deal_id FROM reveals JOIN certificates USING (deal_id) WHERE revealed_at > certificates.created_at`},
	// Stored times are in whole seconds. A comparison of times misses a reveal that is stored after the
	// end of its deal but in the same second. This query finds such a reveal if no reveal is then
	// missing, because the certificate has no input root.
	{"a certificate that has an input root although a reveal is missing, or has none although all reveals are stored", `SELECT c.cert_id FROM certificates c JOIN deals d USING (deal_id)
		WHERE (convert_from(payload, 'UTF8')::json->>'input_root' IS NULL) <> ((SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id) < parties)`},
	{"a deal whose phase contradicts its result, void_flakers or computed_at", `SELECT deal_id FROM deals
		WHERE (phase = 'COMPUTED') <> (result IS NOT NULL) OR (phase = 'VOID') <> (void_flakers IS NOT NULL) OR (phase = 'COMPUTED') <> (computed_at IS NOT NULL)`},
	{"a deal that became VOID in phase COMMITTING, and whose flakers differ from the parties without a commit", `SELECT deal_id FROM deals d WHERE phase = 'VOID' AND commits_closed_at IS NULL
		AND void_flakers IS DISTINCT FROM (SELECT array_agg(party ORDER BY party) FROM parties p WHERE p.deal_id = d.deal_id
			AND NOT EXISTS (SELECT FROM commitments c WHERE c.deal_id = d.deal_id AND c.party = p.party))`},
	// A shapley.v1 deal also becomes VOID if a party rejects. void_flakers then has only this party,
	// whose reveal is stored.
	{"a deal that became VOID in phase REVEALING, and whose flakers are neither the parties without a reveal nor the one rejector", `SELECT deal_id FROM deals d WHERE phase = 'VOID' AND commits_closed_at IS NOT NULL
		AND void_flakers IS DISTINCT FROM (SELECT array_agg(party ORDER BY party) FROM parties p WHERE p.deal_id = d.deal_id
			AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = p.party))
		AND NOT (algorithm = 'shapley.v1' AND cardinality(void_flakers) = 1 AND void_flakers[1] IN (SELECT party FROM reveals r WHERE r.deal_id = d.deal_id))`},
	{"a deal whose stored inputs contradict its retention or phase", `SELECT deal_id FROM reveals JOIN deals USING (deal_id)
		WHERE (sealed IS NULL) <> (retention = 'purge' AND phase NOT IN ('COMMITTING', 'REVEALING'))`},
}

// Invariants checks the invariants of the database after [DB.Converged]. They must hold after any
// crash. Every leaf of the log must belong to a certificate or a closing of this stack.
func Invariants(t testing.TB, stack *localstack.Stack) {
	t.Helper()
	InvariantsUnder(t, stack, Trusted(t, stack))
}

// InvariantsUnder is Invariants for a stack in which only the given keys may have signed.
func InvariantsUnder(t testing.TB, stack *localstack.Stack, trusted keys.List) {
	t.Helper()
	w := OpenDB(t, stack)
	for _, n := range never {
		if found := w.Column(n.query); len(found) > 0 {
			t.Errorf("the database holds %s: %.300q", n.what, found)
		}
	}
	w.certificatesHold(trusted)
	w.headsHold(trusted)
}

// Trusted returns the keys that /v1/status publishes.
func Trusted(t testing.TB, stack *localstack.Stack) keys.List {
	t.Helper()
	var status KeysOfStatus
	NewClient(t, stack.BaseURL()).Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	return status.Keys()
}

func (w DB) certificatesHold(trusted keys.List) {
	w.T.Helper()
	w.each(`SELECT c.cert_id, deal_id, phase, result, void_flakers, payload, coalesce(signature, '') FROM certificates c JOIN deals USING (deal_id)`, nil, func(rows pgx.Rows) error {
		var certID, dealID, phase, signature string
		var result, payload []byte
		var flakers []int
		if err := rows.Scan(&certID, &dealID, &phase, &result, &flakers, &payload, &signature); err != nil {
			return err
		}
		if _, err := trusted.SignerOf(payload, signature); err != nil {
			w.T.Errorf("signature of certificate %s: %v", certID, err)
		}
		var signed struct {
			CertID  string `json:"cert_id"`
			DealID  string `json:"deal_id"`
			Outcome string
			Result  json.RawMessage
			Flakers []int `json:"void_flakers"`
		}
		if err := json.Unmarshal(payload, &signed); err != nil {
			return err
		}
		if bytes.Equal(signed.Result, []byte("null")) {
			signed.Result = nil
		}
		if signed.CertID != certID || signed.DealID != dealID || signed.Outcome != phase || !slices.Equal(signed.Flakers, flakers) || !bytes.Equal(signed.Result, result) {
			w.T.Errorf("certificate %s is %.300s, want deal %s, outcome %s, result %s, flakers %v", certID, payload, dealID, phase, result, flakers)
		}
		if tree, err := canon.ParseObject(payload); err != nil || !bytes.Equal(canon.Encode(tree), payload) {
			w.T.Errorf("certificate %s is not stored in RFC 8785 form: %.300s", certID, payload)
		}
		return nil
	})
}

// headsHold recomputes every published root from the leaves (RFC 6962 2.1) and
// checks every head's signature.
func (w DB) headsHold(trusted keys.List) {
	w.T.Helper()
	var leaves [][]byte
	w.each(`SELECT entry FROM translog.leaves ORDER BY leaf_index`, nil, func(rows pgx.Rows) error {
		var entry []byte
		err := rows.Scan(&entry)
		leaves = append(leaves, Hashed(0, entry))
		return err
	})
	w.each(`SELECT tree_size, encode(root, 'hex'), signature FROM translog.tree_heads`, nil, func(rows pgx.Rows) error {
		var size int
		var root, signature string
		if err := rows.Scan(&size, &root, &signature); err != nil {
			return err
		}
		if size > len(leaves) {
			w.T.Errorf("a head of size %d is published, but the log has only %d leaves", size, len(leaves))
		} else if computed := hex.EncodeToString(TreeRoot(leaves[:size])); computed != root {
			w.T.Errorf("the head of size %d has root %s, want %s as computed from its leaves", size, root, computed)
		}
		if _, err := trusted.SignerOf(fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, root, size), signature); err != nil {
			w.T.Errorf("signature of the head of size %d: %v", size, err)
		}
		return nil
	})
}

// Hashed returns a leaf hash (prefix 0) or a node hash (prefix 1) of RFC 6962.
func Hashed(prefix byte, parts ...[]byte) []byte {
	sum := sha256.Sum256(append([]byte{prefix}, bytes.Join(parts, nil)...))
	return sum[:]
}

// TreeRoot returns the root of the Merkle tree (RFC 6962 2.1) with these leaf hashes.
func TreeRoot(leaves [][]byte) []byte {
	switch len(leaves) {
	case 0:
		empty := sha256.Sum256(nil)
		return empty[:]
	case 1:
		return leaves[0]
	}
	split := 1 << (bits.Len(uint(len(leaves)-1)) - 1)
	return Hashed(1, TreeRoot(leaves[:split]), TreeRoot(leaves[split:]))
}

// NeverQuery returns one SQL query that selects no row after [DB.Converged] unless an invariant is
// violated. A row has the description of a violation and the value found, usually an id.
func NeverQuery() string {
	var selects []string
	for _, n := range never {
		selects = append(selects, fmt.Sprintf("SELECT '%s', found::text FROM (%s) AS x(found)", strings.ReplaceAll(n.what, "'", "''"), n.query))
	}
	return strings.Join(selects, "\nUNION ALL ")
}
