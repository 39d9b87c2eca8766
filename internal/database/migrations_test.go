package database_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

// additive are the statements that a migration after a schema's first may have. The
// previous release notices none of them, and shares the database with this one
// during an upgrade or a rollback: see MIGRATIONS.md.
var additive = []*regexp.Regexp{
	regexp.MustCompile(`^CREATE (TABLE|SEQUENCE|TYPE) `),
	regexp.MustCompile(`^CREATE INDEX CONCURRENTLY `),
	regexp.MustCompile(`^DROP INDEX CONCURRENTLY IF EXISTS `), // of an interrupted run of the same migration
	regexp.MustCompile(`^COMMENT ON `),
	// A new column, which old writers leave null or at its default.
	regexp.MustCompile(`^ALTER TABLE \S+ ADD COLUMN `),
	regexp.MustCompile(`^SET LOCAL LOCK_TIMEOUT = ''$`),
	// A foreign key that no release relies on.
	regexp.MustCompile(`^ALTER TABLE \S+ DROP CONSTRAINT IF EXISTS \S+_FKEY$`),
}

var (
	comment = regexp.MustCompile(`(?m)--.*$`)
	quoted  = regexp.MustCompile(`'(?:[^']|'')*'`)
	space   = regexp.MustCompile(`\s+`)
	// newTable finds a created table. With IF NOT EXISTS it does not count as new.
	newTable   = regexp.MustCompile(`^CREATE TABLE (IF NOT EXISTS )?([^\s(]+)`)
	references = regexp.MustCompile(`\bREFERENCES ([^\s(,)]+)`)
	// partOf finds a new table that is read or locked together with another one.
	partOf = regexp.MustCompile(`\b(PARTITION OF|INHERITS)\b`)
	// Postgres stores a literal default once. Any other may rewrite each row under a lock.
	anyDefault = regexp.MustCompile(` DEFAULT\b`)
	literal    = regexp.MustCompile(` DEFAULT (''|[-+]?[0-9.]+|TRUE|FALSE|NULL)(::[A-Z0-9_.\[\]]+)? `)
	serial     = regexp.MustCompile(` (SMALL|BIG)?SERIAL[248]? `)
	// onTable finds the table of an index, a trigger or an INSERT.
	onTable = regexp.MustCompile(`^(?:CREATE (?:(?:UNIQUE )?INDEX|TRIGGER) .*?\bON|INSERT INTO) (?:ONLY )?([^\s(]+)`)
	// brackets are removed because their commas separate no clauses, as in NUMERIC(10, 2).
	brackets = regexp.MustCompile(`\([^()]*\)`)
)

// disturbing returns the statements of a migration that the previous release would
// notice. It is not for a schema's first migration.
func disturbing(migration string) (bad []string) {
	alone := strings.HasPrefix(migration, "-- +goose NO TRANSACTION\n")
	up, _, _ := strings.Cut(migration, "-- +goose Down")
	up = strings.ToUpper(quoted.ReplaceAllString(comment.ReplaceAllString(up, ""), "''"))
	made := map[string]bool{}
	for statement := range strings.SplitSeq(up, ";") {
		statement = strings.TrimSpace(space.ReplaceAllString(statement, " "))
		if statement == "" {
			continue
		}
		table := newTable.FindStringSubmatch(statement)
		if table != nil && table[1] == "" {
			made[table[2]] = true
		}
		if on := onTable.FindStringSubmatch(statement); on != nil && made[on[1]] {
			continue // no release writes to a new table yet
		}
		concurrently := strings.HasPrefix(statement, "CREATE INDEX CONCURRENTLY ")
		if !isAdditive(statement) || table != nil && isTied(statement, made) || concurrently && !alone {
			bad = append(bad, statement)
		}
	}
	return bad
}

// isTied reports whether a new table refers to a table that existed before.
func isTied(statement string, made map[string]bool) bool {
	for _, table := range references.FindAllStringSubmatch(statement, -1) {
		if !made[table[1]] {
			return true
		}
	}
	return partOf.MatchString(statement)
}

func isAdditive(statement string) bool {
	known := false
	for _, form := range additive {
		known = known || form.MatchString(statement)
	}
	if !strings.HasPrefix(statement, "ALTER TABLE ") {
		return known
	}
	for strings.Contains(statement, "(") {
		without := brackets.ReplaceAllString(statement, "")
		if without == statement {
			return false
		}
		statement = without
	}
	for i, clause := range strings.Split(statement, ",") {
		if i > 0 && !strings.HasPrefix(strings.TrimSpace(clause), "ADD COLUMN ") {
			return false
		}
		words := " " + clause + " "
		if strings.Contains(words, " NOT NULL ") && !strings.Contains(words, " DEFAULT ") {
			return false
		}
		if anyDefault.MatchString(words) && !literal.MatchString(words) || serial.MatchString(words) {
			return false
		}
		for _, rule := range []string{" UNIQUE ", " PRIMARY KEY ", " REFERENCES ", " CHECK ", " GENERATED "} {
			if strings.Contains(words, rule) {
				return false
			}
		}
	}
	return known
}

// A binary works on its own schema and on a newer one, and says what to do about an
// older or a missing one. Migrate of an older release leaves a newer schema as it is.
func TestOneVersionBackAndForward(t *testing.T) {
	url := servertest.Postgres(t)
	files := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE versions.a ();")}}
	old := database.Schema{Name: "versions", Migrations: maps.Clone(files)}
	files["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE versions.a ADD COLUMN b text;")}
	current := database.Schema{Name: "versions", Migrations: files}
	pool := open(t, url)

	const none = "the database has no schema versions of Fairpact: run `fairpactctl migrate`"
	if err := old.Current(t.Context(), pool); err == nil || err.Error() != none {
		t.Errorf("no schema: %v, want %s", err, none)
	}
	check(t, old.Migrate(t.Context(), url))
	if err := old.Current(t.Context(), pool); err != nil {
		t.Errorf("its own schema: %v", err)
	}
	const want = "the schema versions is at version 1 and this binary needs 2: run `fairpactctl migrate`"
	if err := current.Current(t.Context(), pool); err == nil || err.Error() != want {
		t.Errorf("an older schema: %v, want %s", err, want)
	}
	for name, schema := range map[string]database.Schema{"its own": current, "a newer": old} {
		check(t, current.Migrate(t.Context(), url))
		if err := schema.Migrate(t.Context(), url); err != nil {
			t.Errorf("migrate %s schema: %v", name, err)
		}
		if err := schema.Current(t.Context(), pool); err != nil {
			t.Errorf("%s schema: %v", name, err)
		}
	}
	if err := current.Current(t.Context(), pool); err != nil {
		t.Errorf("after the older migration: %v", err)
	}
}

func TestThePreviousReleaseNoticesNoMigration(t *testing.T) {
	files, err := filepath.Glob("../*/migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("found only the migrations %v: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		if strings.HasPrefix(filepath.Base(file), "00001_") {
			continue // no release precedes it
		}
		for _, statement := range disturbing(string(text)) {
			t.Errorf("%s: the previous release would notice\n  %s\nMIGRATIONS.md says how to do this in two releases", file, statement)
		}
	}
}

func TestDisturbingStatementsAreFound(t *testing.T) {
	for migration, found := range map[string]int{
		`CREATE TABLE a (b text NOT NULL UNIQUE); CREATE UNIQUE INDEX ON a (b); INSERT INTO a (b) VALUES ('x');`:                                                 0,
		`CREATE TABLE s.a (b text); CREATE TRIGGER t BEFORE UPDATE OR DELETE ON s.a EXECUTE FUNCTION f();`:                                                       0,
		"CREATE TABLE s.a (\n b int -- DROP\n);\nCREATE INDEX a_b ON s.a (b);":                                                                                   0,
		`CREATE TABLE a (b text PRIMARY KEY, at timestamptz DEFAULT now()); CREATE TABLE c (n bigserial, b text REFERENCES a(b), FOREIGN KEY (b) REFERENCES a);`: 0,
		`ALTER TABLE deals ADD COLUMN a jsonb DEFAULT '{"x": now()}'::jsonb, ADD COLUMN b int DEFAULT -1 NOT NULL, ADD COLUMN c bool DEFAULT false;`:             0,
		`ALTER TABLE deals ADD COLUMN note text;`:                                                                                                    0,
		`ALTER TABLE deals ADD COLUMN price numeric(10, 2) NOT NULL DEFAULT 0, ADD COLUMN x text;`:                                                   0,
		"-- +goose NO TRANSACTION\n-- +goose Up\ncreate index concurrently deals_note on deals (note); COMMENT ON TABLE deals IS 'a; DROP TABLE b';": 0,
		"-- +goose Up\nCREATE TABLE a ();\n-- +goose Down\nDROP TABLE a;":                                                                            0,

		`DROP TABLE deals;`:                                                                        1,
		`UPDATE deals SET mode = 'open';`:                                                          1,
		`INSERT INTO deals DEFAULT VALUES;`:                                                        1,
		`ALTER TABLE deals DROP COLUMN mode;`:                                                      1,
		`ALTER TABLE deals RENAME COLUMN mode TO m;`:                                               1,
		`ALTER TABLE deals ADD COLUMN note text NOT NULL;`:                                         1,
		`ALTER TABLE deals ADD COLUMN note text UNIQUE;`:                                           1,
		`ALTER TABLE deals ADD COLUMN note text CHECK (note <> '');`:                               1,
		`ALTER TABLE deals ADD COLUMN owner bytea REFERENCES api_keys (key_hash);`:                 1,
		`ALTER TABLE deals ADD CONSTRAINT short CHECK (length(mode) < 9);`:                         1,
		`ALTER TABLE deals ADD COLUMN a text, DROP COLUMN mode;`:                                   1,
		"ALTER TABLE deals\n  ADD COLUMN a text,\n  ALTER COLUMN mode DROP DEFAULT;":               1,
		`CREATE INDEX deals_note ON deals (note);`:                                                 1, // blocks writes while it is built
		"-- +goose Up\nCREATE INDEX CONCURRENTLY deals_note ON deals (note);":                      1, // fails in a transaction
		`CREATE TABLE notes (deal_id text REFERENCES deals (deal_id));`:                            1, // blocks writes while it is added
		`CREATE TABLE later PARTITION OF deals FOR VALUES IN ('x');`:                               1, // reads of deals read it too
		`CREATE TABLE later (a text) INHERITS(deals);`:                                             1,
		`CREATE TABLE IF NOT EXISTS deals (a text); INSERT INTO deals (a) VALUES ('x');`:           1, // the table may exist
		`ALTER TABLE deals ADD COLUMN at timestamptz DEFAULT clock_timestamp();`:                   1, // rewrites each row
		`ALTER TABLE deals ADD COLUMN n bigint DEFAULT nextval('s') NOT NULL;`:                     1,
		`ALTER TABLE deals ADD COLUMN n bigserial;`:                                                1,
		`CREATE UNIQUE INDEX CONCURRENTLY deals_note ON deals (note);`:                             1,
		`CREATE TRIGGER t BEFORE INSERT ON deals EXECUTE FUNCTION f();`:                            1,
		`CREATE TABLE s.a (b text); CREATE TRIGGER t BEFORE UPDATE ON deals EXECUTE FUNCTION f();`: 1,
		`CREATE TABLE a (); DROP TABLE b; /* */ ALTER TABLE b RENAME TO c;`:                        2,
		"-- +goose StatementBegin\nDO $$ BEGIN EXECUTE 'DROP TABLE deals'; END $$;":                2,
		`CREATE TABLE kept AS SELECT * FROM deals; DROP TABLE IF EXISTS deals CASCADE;`:            1,
		`ALTER TABLE deals ADD COLUMN a bigint GENERATED ALWAYS AS (parties) STORED;`:              1,
	} {
		if bad := disturbing(migration); len(bad) != found {
			t.Errorf("%s\n  found %q, want %d", migration, bad, found)
		}
	}
}
