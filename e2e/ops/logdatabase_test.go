package ops

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// The log may have its own database. fairpactctl commands that need both databases reach both.
func TestLogInADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.LogDatabase = true })
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.ComputedDeal()
	e2e.RequireIndependentVerdict(t, c, d.Certified(e2e.DefaultTimeout), true)

	for url, want := range map[string]struct{ has, lacks string }{
		stack.DatabaseURL():    {"deals", "translog.leaves"},
		stack.LogDatabaseURL(): {"translog.leaves", "deals"},
	} {
		db, err := pgx.Connect(t.Context(), url)
		e2e.Must(t, err)
		defer db.Close(t.Context())
		var has, lacks bool
		if err := db.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NULL", want.has, want.lacks).Scan(&has, &lacks); err != nil || !has || !lacks {
			t.Errorf("has %s: %v, want true; lacks %s: %v, want true (%v)", want.has, has, want.lacks, lacks, err)
		}
	}

	said, err := stack.Fairpactctl(t.Context(), "log", "fsck")
	if err != nil || !strings.Contains(said, "1 leaves, ") {
		t.Errorf("fsck: %v\n%s", err, said)
	}
	for _, step := range []struct {
		says  string
		flags []string
		fails bool
	}{
		{says: "the log has no fork guard"},
		{"only one of --from and --to", []string{"--to=a"}, true},
		{`fork guard is not "b"`, []string{"--from=b", "--to=a"}, true},
		{"a\n", []string{"--from=", "--to=a"}, false},
		{"a\n", nil, false},
	} {
		said, err := stack.Fairpactctl(t.Context(), append([]string{"log", "guard"}, step.flags...)...)
		if (err != nil) != step.fails || !strings.Contains(said, step.says) && (err == nil || !strings.Contains(err.Error(), step.says)) {
			t.Errorf("log guard %v: %v\n%s, want %q", step.flags, err, said, step.says)
		}
	}
	if said, err := stack.Fairpactctl(t.Context(), "migrate"); err != nil {
		t.Errorf("a second migration: %v\n%s", err, said)
	}
	if said, err := stack.Fairpactctl(t.Context(), "signing-keys", "check", "--tree-head", "none", "--base-url", stack.BaseURL(), "--database-url", stack.DatabaseURL()); err != nil || !strings.Contains(said, "1 log-server") {
		t.Errorf("signing-keys check: %v\n%s", err, said)
	}
}
