package database_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/database"
)

// additive lists the forms of statement that a migration after the first may use. The first
// migration of a schema may use any statement. During an upgrade or a rollback the previous
// release runs on the same database, and the listed statements do not disturb that release.
// Add a form only if MIGRATIONS.md allows it.
var additive = []*regexp.Regexp{
	regexp.MustCompile(`^CREATE TABLE [^\s(]+ \(.*\)$`),
	regexp.MustCompile(`^CREATE INDEX CONCURRENTLY `),
	regexp.MustCompile(`^DROP INDEX CONCURRENTLY IF EXISTS `), // drops the invalid index that an interrupted migration left
	// Adds a column that is null or has a literal default, because the previous release does not
	// write the column. Postgres stores a literal default once. Any other default may rewrite
	// each row under a lock.
	regexp.MustCompile(`^ALTER TABLE \S+ ADD COLUMN \w+ (TEXT|INT|BIGINT|BYTEA|BOOLEAN)(\[\])?( NOT NULL DEFAULT (''|[0-9]+|TRUE|FALSE))?$`),
	regexp.MustCompile(`^SET LOCAL LOCK_TIMEOUT = ''$`),
}

var (
	comment    = regexp.MustCompile(`(?m)--.*$`)
	quoted     = regexp.MustCompile(`'(?:[^']|'')*'`)
	space      = regexp.MustCompile(`\s+`)
	newTable   = regexp.MustCompile(`^CREATE TABLE ([^\s(]+) \(`)
	references = regexp.MustCompile(`\b(?:REFERENCES |INHERITS ?\()([^\s(,)]+)`)
	onTable    = regexp.MustCompile(`^(?:CREATE (?:(?:UNIQUE )?INDEX|TRIGGER) .*?\bON|INSERT INTO) (?:ONLY )?([^\s(]+)`)
)

// disturbing returns the statements that a migration must not have: statements that match no form
// in `additive`, statements with a foreign key to an older table or with INHERITS from one (both
// lock that table), and CREATE INDEX CONCURRENTLY in a transaction, which Postgres refuses. It
// accepts the indexes, triggers and rows of a table that the migration itself creates.
func disturbing(migration string) (bad []string) {
	alone := strings.HasPrefix(migration, "-- +goose NO TRANSACTION\n")
	up, _, _ := strings.Cut(migration, "-- +goose Down")
	up = strings.ToUpper(quoted.ReplaceAllString(comment.ReplaceAllString(up, ""), "''"))
	made := map[string]bool{}
	for statement := range strings.SplitSeq(up, ";") {
		statement = strings.TrimSpace(space.ReplaceAllString(statement, " "))
		if table := newTable.FindStringSubmatch(statement); table != nil {
			made[table[1]] = true
		}
		if on := onTable.FindStringSubmatch(statement); statement == "" || on != nil && made[on[1]] {
			continue // this migration creates the table, so no release uses the table yet
		}
		known := slices.ContainsFunc(additive, func(form *regexp.Regexp) bool { return form.MatchString(statement) })
		if strings.HasPrefix(statement, "CREATE INDEX CONCURRENTLY ") && !alone {
			known = false // Postgres refuses this statement in a transaction
		}
		for _, other := range references.FindAllStringSubmatch(statement, -1) { // a reference to an older table locks that table
			known = known && made[other[1]]
		}
		if !known {
			bad = append(bad, statement)
		}
	}
	return bad
}

func TestOneVersionBackAndForward(t *testing.T) {
	url := servertest.Postgres(t)
	files := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE versions.a ();")}}
	old := database.Schema{Name: "versions", Migrations: maps.Clone(files)}
	files["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE versions.a ADD COLUMN b text;")}
	current := database.Schema{Name: "versions", Migrations: files}
	pool := open(t, url)

	const none = "the database's schema is too old: there is no schema versions: run `fairpactctl migrate`"
	if err := old.Current(t.Context(), pool); err == nil || err.Error() != none {
		t.Errorf("Current without a schema: got error %v, want %s", err, none)
	}
	check(t, old.Migrate(t.Context(), url))
	if err := old.Current(t.Context(), pool); err != nil {
		t.Errorf("Current of the old binary on its own schema: %v, want no error", err)
	}
	const want = "the database's schema is too old: versions is at version 1 and this binary needs 2: run `fairpactctl migrate`"
	if err := current.Current(t.Context(), pool); err == nil || err.Error() != want {
		t.Errorf("Current on an older schema: got error %v, want %s", err, want)
	}
	for name, schema := range map[string]database.Schema{"its own": current, "a newer": old} {
		check(t, current.Migrate(t.Context(), url))
		if err := schema.Migrate(t.Context(), url); err != nil {
			t.Errorf("Migrate of %s schema: %v, want no error", name, err)
		}
		if err := schema.Current(t.Context(), pool); err != nil {
			t.Errorf("Current on %s schema: %v, want no error", name, err)
		}
	}
	if err := current.Current(t.Context(), pool); err != nil {
		t.Errorf("Current after Migrate of the older release: %v, want no error", err)
	}
}

func TestThePreviousReleaseNoticesNoMigration(t *testing.T) {
	files, err := filepath.Glob("../../*/migrations/*.sql") // the log's
	more, _ := filepath.Glob("../../*/*/migrations/*.sql")  // the deals'
	files = append(files, more...)
	if err != nil || len(files) < 2 {
		t.Fatalf("found the migrations %v (%v), want at least 2", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		if strings.HasPrefix(filepath.Base(file), "00001_") {
			continue // no release ran before the first migration
		}
		for _, statement := range disturbing(string(text)) {
			t.Errorf("%s has a statement that disturbs the previous release; split it over two releases as MIGRATIONS.md says:\n  %s", file, statement)
		}
	}
}

func TestDisturbingStatementsAreFound(t *testing.T) {
	for migration, found := range map[string]int{
		`CREATE TABLE a (b text NOT NULL UNIQUE); CREATE UNIQUE INDEX ON a (b); INSERT INTO a (b) VALUES ('x');`:      0,
		`CREATE TABLE s.a (b text); CREATE TRIGGER t BEFORE UPDATE OR DELETE ON s.a EXECUTE FUNCTION f();`:            0,
		`CREATE TABLE a (b text PRIMARY KEY); CREATE TABLE c (b text REFERENCES a(b), FOREIGN KEY (b) REFERENCES a);`: 0,
		`ALTER TABLE deals ADD COLUMN note text; ALTER TABLE deals ADD COLUMN n int NOT NULL DEFAULT 0;`:              0,
		"-- +goose NO TRANSACTION\n-- +goose Up\ncreate index concurrently deals_note on deals (note);":               0,
		"-- +goose Up\nCREATE TABLE a (\n b int -- DROP\n);\n-- +goose Down\nDROP TABLE a;":                           0,

		`DROP TABLE deals;`:                                                                        1,
		`INSERT INTO deals DEFAULT VALUES;`:                                                        1,
		`ALTER TABLE deals DROP COLUMN mode;`:                                                      1,
		`ALTER TABLE deals ADD COLUMN note text NOT NULL;`:                                         1,
		`ALTER TABLE deals ADD COLUMN note text UNIQUE;`:                                           1,
		`ALTER TABLE deals ADD COLUMN owner bytea REFERENCES api_keys (key_hash);`:                 1,
		`ALTER TABLE deals ADD COLUMN a text, DROP COLUMN mode;`:                                   1,
		`ALTER TABLE deals ADD COLUMN n bigint NOT NULL DEFAULT nextval('s');`:                     1, // rewrites each row
		`CREATE INDEX deals_note ON deals (note);`:                                                 1, // blocks writes to deals while Postgres builds the index
		"-- +goose Up\nCREATE INDEX CONCURRENTLY deals_note ON deals (note);":                      1,
		`CREATE TABLE notes (deal_id text REFERENCES deals (deal_id));`:                            1, // blocks writes to deals while Postgres adds the foreign key
		`CREATE TABLE later PARTITION OF deals FOR VALUES IN ('x');`:                               1, // a read of deals also reads the new partition
		`CREATE TABLE later (a text) INHERITS(deals);`:                                             1,
		`CREATE TABLE IF NOT EXISTS deals (a text); INSERT INTO deals (a) VALUES ('x');`:           2, // the table may exist already
		`CREATE TABLE s.a (b text); CREATE TRIGGER t BEFORE UPDATE ON deals EXECUTE FUNCTION f();`: 1,
		"-- +goose StatementBegin\nDO $$ BEGIN EXECUTE 'DROP TABLE deals'; END $$;":                2,
	} {
		if bad := disturbing(migration); len(bad) != found {
			t.Errorf("disturbing statements of %s: got %q, want %d", migration, bad, found)
		}
	}
}
