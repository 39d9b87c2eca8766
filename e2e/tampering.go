package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// RowEditor tampers with rows of the database, with triggers off.
type RowEditor struct{ W DB }

var vaultTables = []string{"certificates", "translog.leaves", "translog.nodes", "translog.tree_heads"}

// Update runs SQL statements, each of which must change exactly one row. The returned function
// restores all rows of the tables in vaultTables.
func (v *RowEditor) Update(t *testing.T, statements []string) (undo func()) {
	t.Helper()
	var keep, restore []string
	for i, table := range vaultTables {
		copied := fmt.Sprintf("kept_%d", i)
		keep = append(keep, `DROP TABLE IF EXISTS `+copied, `CREATE TABLE `+copied+` AS TABLE `+table)
		restore = append(restore, `DELETE FROM `+table, `INSERT INTO `+table+` TABLE `+copied)
	}
	v.Exec(t, keep, false)
	v.Exec(t, statements, true)
	return func() { v.Exec(t, restore, false) }
}

// RewriteAsMissedReveal deletes the certificate of a two-party deal, and rewrites the deal as if party 1 had missed
// the reveal deadline.
func (v *RowEditor) RewriteAsMissedReveal(t *testing.T, d *CreatedDeal) {
	t.Helper()
	v.Exec(t, []string{
		`DELETE FROM certificates WHERE deal_id = '` + d.ID + `'`,
		`DELETE FROM reveals WHERE party = 1 AND deal_id = '` + d.ID + `'`,
		`UPDATE deals SET phase = 'REVEALING', cert_id = NULL, result = NULL, computed_at = NULL, reveals_closed_at = NULL,
			commit_deadline = created_at - 2, reveal_deadline = created_at - 1 WHERE deal_id = '` + d.ID + `'`,
	}, true)
}

// Exec runs statements in one transaction with triggers off. If `must` is true, each statement has to
// change exactly one row.
func (v *RowEditor) Exec(t *testing.T, statements []string, must bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), v.W.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		for _, statement := range statements {
			tag, err := tx.Exec(t.Context(), statement)
			if err != nil || must && tag.RowsAffected() != 1 {
				return fmt.Errorf("%s: %d rows changed, want 1: %v", statement, tag.RowsAffected(), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Forge appends false entry number n to the log, as a thief who has the key and the append secret can.
func Forge(t testing.TB, stack *localstack.Stack, key *signing.Signer, n int) (index int64, err error) {
	t.Helper()
	secret, err := os.ReadFile(stack.AppendSecretFile())
	Must(t, err)
	entry := sha256.Sum256(fmt.Appendf(nil, "a false certificate, number %d", n))
	signature, err := key.Sign(t.Context(), entry)
	Must(t, err)
	log := translog.NewClient(stack.LogAppendURL(localstack.LogServer), stack.LogReadURL(localstack.LogServer), strings.TrimSpace(string(secret)))
	return log.Append(t.Context(), entry, signature, translog.Tag(entry))
}

// ForeignLeaves returns the query of runbooks/stolen-key.md for the leaves of a thief.
func ForeignLeaves(t testing.TB) string {
	t.Helper()
	_, query, _ := strings.Cut(Read(t, "runbooks/stolen-key.md"), `psql "${DATABASE_URL:?}" -c "`)
	query, _, found := strings.Cut(query, `"`)
	if !found {
		t.Fatal("runbooks/stolen-key.md has no query for the leaves of a thief")
	}
	return query
}
