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

// In a rolling upgrade the migration runs first, and then two versions share
// the database for a while, in a rollback for longer: see MIGRATIONS.md. So a
// migration after a schema's first may only be made of these, in which the
// version before it sees no difference.
var additive = []*regexp.Regexp{
	regexp.MustCompile(`^CREATE (TABLE|SEQUENCE|TYPE) `),
	regexp.MustCompile(`^CREATE INDEX CONCURRENTLY `),
	regexp.MustCompile(`^DROP INDEX CONCURRENTLY IF EXISTS `), // of the same migration, interrupted
	regexp.MustCompile(`^COMMENT ON `),
	// A new column that old writers leave out: null, or filled by its default.
	regexp.MustCompile(`^ALTER TABLE \S+ ADD COLUMN `),
	// A foreign key that refuses nothing that any release writes.
	regexp.MustCompile(`^SET LOCAL LOCK_TIMEOUT = ''$`),
	regexp.MustCompile(`^ALTER TABLE \S+ DROP CONSTRAINT IF EXISTS \S+_FKEY$`),
}

var (
	comment = regexp.MustCompile(`(?m)--.*$`)
	quoted  = regexp.MustCompile(`'(?:[^']|'')*'`)
	space   = regexp.MustCompile(`\s+`)
	// newTable finds a table that surely is new: one that may be there is not.
	newTable   = regexp.MustCompile(`^CREATE TABLE (IF NOT EXISTS )?([^\s(]+)`)
	references = regexp.MustCompile(`\bREFERENCES ([^\s(,)]+)`)
	// partOf ties a new table to another, which is then read or locked with it.
	partOf = regexp.MustCompile(`\b(PARTITION OF|INHERITS)\b`)
	// A literal default is kept beside the table; another may write each row again, under a lock.
	anyDefault = regexp.MustCompile(` DEFAULT\b`)
	literal    = regexp.MustCompile(` DEFAULT (''|[-+]?[0-9.]+|TRUE|FALSE|NULL)(::[A-Z0-9_.\[\]]+)? `)
	serial     = regexp.MustCompile(` (SMALL|BIG)?SERIAL[248]? `)
	// onTable finds the table that an index, a trigger or a row is for.
	onTable = regexp.MustCompile(`^(?:CREATE (?:(?:UNIQUE )?INDEX|TRIGGER) .*?\bON|INSERT INTO) (?:ONLY )?([^\s(]+)`)
	// brackets hold commas that part no clauses, as in NUMERIC(10, 2)
	brackets = regexp.MustCompile(`\([^()]*\)`)
)

// disturbs gives the statements of a migration, not its schema's first, that
// the version before it would notice.
func disturbs(migration string) (bad []string) {
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
			continue // nobody writes to it yet
		}
		concurrently := strings.HasPrefix(statement, "CREATE INDEX CONCURRENTLY ")
		if !isAdditive(statement) || table != nil && isTied(statement, made) || concurrently && !alone {
			bad = append(bad, statement)
		}
	}
	return bad
}

// isTied reports whether a new table takes hold of one that is not of this migration.
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

// A binary works on its own schema and on a newer one, and says what is wrong
// with an older one. The migration of a version that is rolled back to changes
// nothing.
func TestOneVersionBackAndForward(t *testing.T) {
	url := servertest.Postgres(t)
	files := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE versions.a ();")}}
	old := database.Schema{Name: "versions", Migrations: maps.Clone(files)}
	files["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE versions.a ADD COLUMN b text;")}
	current := database.Schema{Name: "versions", Migrations: files}
	pool := open(t, url)

	if err := old.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if err := old.Current(t.Context(), pool); err != nil {
		t.Errorf("its own schema: %v", err)
	}
	const want = "the schema versions is at version 1 and this binary needs 2: run `fairpactctl migrate`"
	if err := current.Current(t.Context(), pool); err == nil || err.Error() != want {
		t.Errorf("an older schema: %v, want %s", err, want)
	}
	for name, schema := range map[string]database.Schema{"its own": current, "a newer": old} {
		if err := current.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
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

func TestMigrationsDisturbNobody(t *testing.T) {
	files, err := filepath.Glob("../*/migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("found only the migrations %v: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(file), "00001_") {
			continue // there was nothing before it
		}
		for _, statement := range disturbs(string(text)) {
			t.Errorf("%s: the version before it would notice\n  %s\nMIGRATIONS.md says how it is done in two releases", file, statement)
		}
	}
}

func TestDisturbancesAreFound(t *testing.T) {
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
		`drop index deals_drawing`:                                                                 1,
		`TRUNCATE deals;`:                                                                          1,
		`UPDATE deals SET mode = 'open';`:                                                          1,
		`DELETE FROM deals;`:                                                                       1,
		`INSERT INTO deals DEFAULT VALUES;`:                                                        1,
		`REVOKE ALL ON deals FROM x;`:                                                              1,
		`ALTER TABLE deals DROP COLUMN mode;`:                                                      1,
		`ALTER TABLE deals RENAME COLUMN mode TO m;`:                                               1,
		`ALTER TABLE deals RENAME TO d;`:                                                           1,
		`ALTER TABLE deals ALTER COLUMN parties TYPE bigint;`:                                      1,
		`ALTER TABLE deals ALTER mode SET NOT NULL;`:                                               1,
		`ALTER TABLE deals ADD COLUMN note text NOT NULL;`:                                         1,
		`ALTER TABLE deals ADD COLUMN note text UNIQUE;`:                                           1,
		`ALTER TABLE deals ADD COLUMN note text CHECK (note <> '');`:                               1,
		`ALTER TABLE deals ADD COLUMN owner bytea REFERENCES api_keys (key_hash);`:                 1,
		`ALTER TABLE deals ADD CONSTRAINT short CHECK (length(mode) < 9);`:                         1,
		`ALTER TABLE deals ADD COLUMN a text, DROP COLUMN mode;`:                                   1,
		"ALTER TABLE deals\n  ADD COLUMN a text,\n  ALTER COLUMN mode DROP DEFAULT;":               1,
		`ALTER TYPE kind RENAME VALUE 'a' TO 'b';`:                                                 1,
		`CREATE INDEX deals_note ON deals (note);`:                                                 1, // no write while it is built
		"-- +goose Up\nCREATE INDEX CONCURRENTLY deals_note ON deals (note);":                      1, // fails in a transaction
		`CREATE TABLE notes (deal_id text REFERENCES deals (deal_id));`:                            1, // no write while it is added, and no deal goes without its notes
		`CREATE TABLE notes (deal_id text, FOREIGN KEY (deal_id) REFERENCES deals(deal_id));`:      1,
		`CREATE TABLE later PARTITION OF deals FOR VALUES IN ('x');`:                               1, // who reads deals reads it, too
		`CREATE TABLE later (a text) INHERITS(deals);`:                                             1,
		`CREATE TABLE IF NOT EXISTS deals (a text); INSERT INTO deals (a) VALUES ('x');`:           1, // there may be one
		`ALTER TABLE deals ADD COLUMN at timestamptz DEFAULT clock_timestamp();`:                   1, // writes each row again
		`ALTER TABLE deals ADD COLUMN n bigint DEFAULT nextval('s') NOT NULL;`:                     1,
		`ALTER TABLE deals ADD COLUMN n bigserial;`:                                                1,
		`CREATE UNIQUE INDEX CONCURRENTLY deals_note ON deals (note);`:                             1,
		`CREATE TRIGGER t BEFORE INSERT ON deals EXECUTE FUNCTION f();`:                            1,
		`CREATE TABLE s.a (b text); CREATE TRIGGER t BEFORE UPDATE ON deals EXECUTE FUNCTION f();`: 1,
		`CREATE TABLE a (); DROP TABLE b; /* */ ALTER TABLE b RENAME TO c;`:                        2,
		"-- +goose StatementBegin\nDO $$ BEGIN EXECUTE 'DROP TABLE deals'; END $$;":                2,
		`CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';`:                   1,
		`WITH gone AS (DELETE FROM deals RETURNING 1) INSERT INTO a SELECT * FROM gone;`:           1,
		`CREATE TABLE kept AS SELECT * FROM deals; DROP TABLE IF EXISTS deals CASCADE;`:            1,
		`ALTER TABLE ONLY deals ADD COLUMN a text;`:                                                1,
		`ALTER TABLE deals ADD COLUMN a bigint GENERATED ALWAYS AS (parties) STORED;`:              1,
	} {
		if bad := disturbs(migration); len(bad) != found {
			t.Errorf("%s\n  found %q, want %d", migration, bad, found)
		}
	}
}
