package e2e

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// What the tests know of the schema, besides the invariants and the statements
// of the tampering tests.

// APIKeys counts all API keys.
func (w Witness) APIKeys() int64 { return w.Number(`SELECT count(*) FROM api_keys`) }

// Records counts the idempotency records.
func (w Witness) Records() int64 { return w.Number(`SELECT count(*) FROM idempotency`) }

// Rows counts what any accepted call adds to.
func (w Witness) Rows() int64 {
	return w.Number(`SELECT (SELECT count(*) FROM deals) + (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM commitments) + (SELECT count(*) FROM reveals)`)
}

// KeptInputs counts the inputs of a deal that are still stored.
func (w Witness) KeptInputs(dealID string) int64 {
	return w.Number(`SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL`, dealID)
}

// Published returns the id of a deal's published certificate, empty before that.
func (w Witness) Published(dealID string) string {
	return Value[string](w, `SELECT coalesce(max(cert_id), '') FROM certificates WHERE deal_id = $1 AND leaf_index IS NOT NULL`, dealID)
}

// Heads counts the published tree heads.
func (w Witness) Heads() int64 { return w.Number(`SELECT count(*) FROM translog.tree_heads`) }

// HoldDeal locks a deal's row, as a call that cannot finish does, until the
// transaction that it returns ends.
func (w Witness) HoldDeal(dealID string) pgx.Tx {
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

// Patience bounds a wait for something that is not timed: it ends as soon as
// the thing is there.
const Patience = 3 * time.Minute

// Witness reads and moves a stack's database beside the service.
type Witness struct {
	T    testing.TB
	Pool *pgxpool.Pool
}

func Database(t testing.TB, stack *localstack.Stack) Witness {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), stack.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return Witness{t, pool}
}

// Number is the single integer that a query answers.
func (w Witness) Number(query string, args ...any) int64 {
	w.T.Helper()
	return Value[int64](w, query, args...)
}

// Value is the single value that a query answers.
func Value[T any](w Witness, query string, args ...any) (v T) {
	w.T.Helper()
	if err := w.Pool.QueryRow(w.T.Context(), query, args...).Scan(&v); err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
	return v
}

// Exec changes rows and requires that it changed as many as said.
func (w Witness) Exec(rows int64, query string, args ...any) {
	w.T.Helper()
	tag, err := w.Pool.Exec(w.T.Context(), query, args...)
	if err != nil || tag.RowsAffected() != rows {
		w.T.Fatalf("%s: %d rows, want %d: %v", query, tag.RowsAffected(), rows, err)
	}
}

// Phase is the stored phase of a deal, which reading it here does not move.
func (w Witness) Phase(d *Dealt) string {
	w.T.Helper()
	return Value[string](w, "SELECT phase FROM deals WHERE deal_id = $1", d.ID)
}

// Pass waits until the database's clock, which is the service's, has passed a
// deadline.
func (w Witness) Pass(deadline int64) {
	w.T.Helper()
	Eventually(w.T, "the deadline passes", Patience, func() bool {
		return Value[bool](w, "SELECT extract(epoch FROM clock_timestamp()) >= $1", deadline)
	})
}

// Exactly requires these many deals, certificates and leaves in the whole
// database, once every certificate is published.
func (w Witness) Exactly(deals, certificates int64) {
	w.T.Helper()
	Eventually(w.T, "every certificate is published", Patience, func() bool {
		return w.Number("SELECT count(*) FROM certificates WHERE leaf_index IS NULL") == 0
	})
	for table, want := range map[string]int64{"deals": deals, "certificates": certificates, "translog.leaves": certificates} {
		if have := w.Number("SELECT count(*) FROM " + table); have != want {
			w.T.Errorf("%s has %d rows, want %d", table, have, want)
		}
	}
	if n := w.Number("SELECT count(DISTINCT leaf_index) FROM certificates JOIN translog.leaves USING (leaf_index)"); n != certificates {
		w.T.Errorf("%d certificates have a leaf of their own, want %d", n, certificates)
	}
}

// unfinished are deals and certificates on which the worker or the next call has
// yet to act, now or at a deadline in the next half minute.
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

// Converged waits until nothing is unfinished.
func (w Witness) Converged() {
	w.T.Helper()
	Eventually(w.T, "nothing unfinished", Patience, func() bool { return len(w.Column(unfinished)) == 0 })
}

// Column is the first column of a query's rows, as text.
func (w Witness) Column(query string, args ...any) (all []string) {
	w.T.Helper()
	w.each(query, args, func(rows pgx.Rows) error {
		values, err := rows.Values()
		if err == nil {
			all = append(all, fmt.Sprint(values[0]))
		}
		return err
	})
	return all
}

// each reads a query's rows.
func (w Witness) each(query string, args []any, read func(pgx.Rows) error) {
	w.T.Helper()
	rows, err := w.Pool.Query(w.T.Context(), query, args...)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = read(rows)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
}

// never lists what must not be found in the database of a stack that has
// converged, whatever was killed on the way. An active deal has no certificate.
var never = []struct{ what, query string }{
	{"a COMPUTED or VOID deal without its one certificate", `SELECT deal_id FROM deals d WHERE phase IN ('COMPUTED', 'VOID')
		AND (SELECT count(*) FROM certificates c WHERE c.deal_id = d.deal_id AND c.cert_id = d.cert_id) <> 1`},
	{"a certificate of a deal that did not end in it", `SELECT cert_id FROM certificates c JOIN deals d USING (deal_id, cert_id)
		WHERE phase NOT IN ('COMPUTED', 'VOID') UNION ALL SELECT cert_id FROM certificates WHERE cert_id NOT IN (SELECT cert_id FROM deals WHERE cert_id IS NOT NULL)`},
	{"a certificate without signature or leaf index", `SELECT cert_id FROM certificates WHERE signature IS NULL OR leaf_index IS NULL`},
	{"a certificate whose entry is not one leaf, at its index", `SELECT cert_id FROM certificates c
		WHERE (SELECT array_agg(leaf_index) FROM translog.leaves l WHERE l.entry = sha256(c.payload)) IS DISTINCT FROM ARRAY[c.leaf_index]`},
	{"a leaf that is no certificate", `SELECT leaf_index FROM translog.leaves WHERE entry NOT IN (SELECT sha256(payload) FROM certificates)`},
	{"a gap in the leaves", `SELECT count(*) FROM translog.leaves HAVING count(*) > 0 AND (min(leaf_index) <> 0 OR max(leaf_index) <> count(*) - 1)`},
	{"a committed or newest published size that is not the count of leaves", `SELECT size FROM translog.log_head
		WHERE size <> (SELECT count(*) FROM translog.leaves) OR size <> (SELECT max(tree_size) FROM translog.tree_heads)`},
	{"an action at or after its deadline", `SELECT deal_id FROM commitments JOIN deals USING (deal_id) WHERE committed_at >= commit_deadline
		UNION ALL SELECT deal_id FROM reveals JOIN deals USING (deal_id) WHERE revealed_at >= reveal_deadline`},
	{"a reveal after the end", `SELECT deal_id FROM reveals JOIN certificates USING (deal_id) WHERE revealed_at > certificates.created_at`},
	// So that a reveal in the very second of the end is seen, too.
	{"an input root without all reveals, or all reveals without one", `SELECT c.cert_id FROM certificates c JOIN deals d USING (deal_id)
		WHERE (convert_from(payload, 'UTF8')::json->>'input_root' IS NULL) <> ((SELECT count(*) FROM reveals r WHERE r.deal_id = d.deal_id) < parties)`},
	{"result and flakers that do not fit the end", `SELECT deal_id FROM deals
		WHERE (phase = 'COMPUTED') <> (result IS NOT NULL) OR (phase = 'VOID') <> (void_flakers IS NOT NULL) OR (phase = 'COMPUTED') <> (computed_at IS NOT NULL)`},
	{"a VOID by commit that does not name exactly those that did not commit", `SELECT deal_id FROM deals d WHERE phase = 'VOID' AND commits_closed_at IS NULL
		AND void_flakers IS DISTINCT FROM (SELECT array_agg(party ORDER BY party) FROM parties p WHERE p.deal_id = d.deal_id
			AND NOT EXISTS (SELECT FROM commitments c WHERE c.deal_id = d.deal_id AND c.party = p.party))`},
	// A rejector has revealed, and nobody else is named.
	{"a VOID by reveal that does not name exactly those that did not reveal, or the one rejector", `SELECT deal_id FROM deals d WHERE phase = 'VOID' AND commits_closed_at IS NOT NULL
		AND void_flakers IS DISTINCT FROM (SELECT array_agg(party ORDER BY party) FROM parties p WHERE p.deal_id = d.deal_id
			AND NOT EXISTS (SELECT FROM reveals r WHERE r.deal_id = d.deal_id AND r.party = p.party))
		AND NOT (algorithm = 'shapley.v1' AND cardinality(void_flakers) = 1 AND void_flakers[1] IN (SELECT party FROM reveals r WHERE r.deal_id = d.deal_id))`},
	{"an ended deal whose inputs are not kept or purged as declared", `SELECT deal_id FROM reveals JOIN deals USING (deal_id)
		WHERE (sealed IS NULL) <> (retention = 'purge' AND phase NOT IN ('COMMITTING', 'REVEALING'))`},
}

// Invariants holds a converged database against the promises that no crash may
// break. Every leaf of the log must be a certificate of this stack.
func Invariants(t testing.TB, stack *localstack.Stack) {
	t.Helper()
	InvariantsUnder(t, stack, Trusted(t, stack))
}

func InvariantsUnder(t testing.TB, stack *localstack.Stack, keys *signing.KeySet) {
	t.Helper()
	w := Database(t, stack)
	for _, n := range never {
		if found := w.Column(n.query); len(found) > 0 {
			t.Errorf("the database holds %s: %.300q", n.what, found)
		}
	}
	w.certificatesHold(keys)
	w.headsHold(keys)
}

// Trusted are the keys that /v1/status publishes.
func Trusted(t testing.TB, stack *localstack.Stack) *signing.KeySet {
	t.Helper()
	var status KeysOfStatus
	NewClient(t, stack.BaseURL()).Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	keys, err := status.Keys()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// certificatesHold checks each signature, and that what is signed is what the
// deal's row says.
func (w Witness) certificatesHold(keys *signing.KeySet) {
	w.T.Helper()
	w.each(`SELECT c.cert_id, deal_id, phase, result, void_flakers, payload, coalesce(signature, '') FROM certificates c JOIN deals USING (deal_id)`, nil, func(rows pgx.Rows) error {
		var certID, dealID, phase, signature string
		var result, payload []byte
		var flakers []int
		if err := rows.Scan(&certID, &dealID, &phase, &result, &flakers, &payload, &signature); err != nil {
			return err
		}
		if err := keys.Verify(payload, signature); err != nil {
			w.T.Errorf("%s: %v", certID, err)
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
			w.T.Errorf("%s signs %.300s, its deal says %s %s %v", certID, payload, phase, result, flakers)
		}
		if tree, err := canon.ParseObject(payload); err != nil || !bytes.Equal(canon.Encode(tree), payload) {
			w.T.Errorf("%s is stored in a form that is not canonical", certID)
		}
		return nil
	})
}

// headsHold recomputes every published root from the leaves (RFC 6962 2.1) and
// checks every head's signature.
func (w Witness) headsHold(keys *signing.KeySet) {
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
			w.T.Errorf("a head of size %d is published over %d leaves", size, len(leaves))
		} else if computed := hex.EncodeToString(TreeRoot(leaves[:size])); computed != root {
			w.T.Errorf("the head of size %d has root %s, its leaves lead to %s", size, root, computed)
		}
		if err := keys.Verify(fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, root, size), signature); err != nil {
			w.T.Errorf("the head of size %d: %v", size, err)
		}
		return nil
	})
}

// Hashed is a leaf hash (prefix 0) or a node hash (prefix 1) of RFC 6962.
func Hashed(prefix byte, parts ...[]byte) []byte {
	sum := sha256.Sum256(append([]byte{prefix}, bytes.Join(parts, nil)...))
	return sum[:]
}

// TreeRoot is MTH of RFC 6962 2.1 over leaf hashes.
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

// Nonces commits and reveals a random.v1 deal whose round was out long ago.
func (c *Client) Nonces(chain interface{ RoundAt(int64) int64 }, commitDeadline, revealDeadline int64) (d *Dealt, inTime bool) {
	c.T.Helper()
	d = c.Create(Timed(RandomBody(2, chain.RoundAt(time.Now().Unix())-60, 0, 0), commitDeadline, revealDeadline))
	s := Seal(c.T, Body{"nonce": "c0ffee"})
	for _, action := range []string{"commit", "reveal"} {
		for p := range d.Tokens {
			if !d.Attempt(action, p, s.Act(action)) {
				return d, false
			}
		}
	}
	return d, true
}

// RevealedEarlier takes seconds off the times at which a deal of two was revealed.
func (w Witness) RevealedEarlier(d *Dealt, seconds int) {
	w.T.Helper()
	w.Exec(2, "UPDATE reveals SET revealed_at = revealed_at - $2::bigint WHERE deal_id = $1", d.ID, seconds)
	w.Exec(1, "UPDATE deals SET reveals_closed_at = reveals_closed_at - $2::bigint WHERE deal_id = $1 AND reveals_closed_at IS NOT NULL", d.ID, seconds)
}

// Vault changes rows past every trigger, and puts them back.
type Vault struct{ W Witness }

var vaultTables = []string{"certificates", "translog.leaves", "translog.nodes", "translog.tree_heads"}

func (v *Vault) Change(t *testing.T, statements []string) (undo func()) {
	t.Helper()
	var keep, restore []string
	for i, table := range vaultTables {
		copied := fmt.Sprintf("kept_%d", i)
		keep = append(keep, `DROP TABLE IF EXISTS `+copied, `CREATE TABLE `+copied+` AS TABLE `+table)
		restore = append(restore, `DELETE FROM `+table, `INSERT INTO `+table+` TABLE `+copied)
	}
	v.At(t, keep, false)
	v.At(t, statements, true)
	return func() { v.At(t, restore, false) }
}

// At runs statements in one transaction; must requires each to change a row.
func (v *Vault) At(t *testing.T, statements []string, must bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), v.W.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		for _, statement := range statements {
			tag, err := tx.Exec(t.Context(), statement)
			if err != nil || must && tag.RowsAffected() != 1 {
				return fmt.Errorf("%s: %s, %w", statement, tag, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// HighS is the other signature that ECDSA has for the same r: (r, n-s).
func (v *Vault) HighS(t *testing.T, query string) string {
	t.Helper()
	return HighS(t, Value[string](v.W, query))
}

func HighS(t *testing.T, signature string) string {
	t.Helper()
	s, ok := new(big.Int).SetString(signature[len("es256:")+64:], 16)
	if !ok {
		t.Fatalf("no signature: %q", signature)
	}
	s.Sub(elliptic.P256().Params().N, s)
	return signature[:len("es256:")+64] + hex.EncodeToString(s.FillBytes(make([]byte, 32)))
}

// Marker is a planted secret.
type Marker struct{ Name, Text string }

// needles are all the ways in which a marker may show: as it is, in hex, in
// base64 of either alphabet at any offset, each of these in hex once more, as a
// dump shows bytea, and the same for the bytes that a credential or a hex text
// stands for.
func (m Marker) needles() (all [][]byte) {
	plain := [][]byte{[]byte(m.Text)}
	_, payload, _ := strings.Cut(m.Text, "_") // fp_…, it_…
	if raw, err := base64.RawURLEncoding.DecodeString(payload); err == nil && len(raw) >= 16 {
		plain = append(plain, raw)
	}
	if raw, err := hex.DecodeString(m.Text); err == nil {
		plain = append(plain, raw)
	}
	for _, p := range plain {
		shown := [][]byte{p, []byte(hex.EncodeToString(p)), bytes.ToUpper([]byte(hex.EncodeToString(p)))}
		for offset := range 3 {
			// The characters that also hold bits of the neighbours are left out.
			for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				text := alphabet.EncodeToString(append(make([]byte, offset), p...))
				shown = append(shown, []byte(text[(offset*8+5)/6:(offset+len(p))*8/6]))
			}
		}
		for _, s := range shown {
			all = append(all, s, []byte(hex.EncodeToString(s)))
		}
	}
	return all
}

// ShownIn lists the places that show a marker.
func (m Marker) ShownIn(places map[string][]byte) (found []string) {
	needles := m.needles()
	for name, place := range places {
		for _, needle := range needles {
			if bytes.Contains(place, needle) {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

// Dumped is every table of every schema as COPY shows it, and everything in
// Redis.
func Dumped(t testing.TB, stack *localstack.Stack) map[string][]byte {
	t.Helper()
	w := Database(t, stack)
	places := map[string][]byte{}
	conn, err := w.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, table := range w.Column(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`) {
		var rows bytes.Buffer
		if _, err := conn.Conn().PgConn().CopyTo(t.Context(), &rows, "COPY (SELECT * FROM "+table+") TO STDOUT"); err != nil {
			t.Fatal(err)
		}
		places["table "+table] = rows.Bytes()
	}
	client := Cache(t, stack)
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		value, err := client.Get(t.Context(), key).Bytes()
		if err != nil && err != redis.Nil { // another type than a string
			var text string
			text, err = client.Dump(t.Context(), key).Result()
			value = []byte(text)
		}
		if err != nil && err != redis.Nil {
			t.Fatalf("Redis key %s: %v", key, err)
		}
		places["Redis "+key] = append([]byte(key+"\x00"), value...)
	}
	return places
}

// Cache is a client of the stack's Redis.
func Cache(t testing.TB, stack *localstack.Stack) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(stack.RedisURL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
