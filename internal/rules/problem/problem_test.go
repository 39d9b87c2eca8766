package problem_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

var (
	path = regexp.MustCompile(`/v1/|\b(GET|POST) |Idempotency-Key`)
	tool = regexp.MustCompile(`\b(create_key|list_algorithms|create_deal|compute_commitment_tool|commit_input|reveal_input|get_deal|get_certificate|verify_certificate|idempotency_key)\b`)
)

func shout(c problem.Call) string { return "<" + strings.ToUpper(c.String()) + ">" }

func TestCallsAreRenderedInTheWordsOfTheSurface(t *testing.T) {
	e := problem.New(problem.CommitsMissing, "party %d has not committed: call %s with %s", 3,
		problem.Call{Op: problem.Commit, DealID: "d_1"}, problem.KeyHeader)
	if got, want := e.In(shout), "COMMITS_MISSING: party 3 has not committed: call <COMMIT D_1> with <IDEMPOTENCY KEY>"; got != want {
		t.Errorf("In returns %s\nwant %s", got, want)
	}
	if got, want := e.Fix(shout), "party 3 has not committed: call <COMMIT D_1> with <IDEMPOTENCY KEY>"; got != want {
		t.Errorf("Fix returns %s\nwant %s", got, want)
	}
	if got, want := e.Error(), "COMMITS_MISSING: party 3 has not committed: call commit d_1 with idempotency key"; got != want {
		t.Errorf("Error returns %s\nwant %s", got, want)
	}
}

func TestNeutralWordsNameNoSurface(t *testing.T) {
	for _, op := range problem.Ops {
		if text := (problem.Call{Op: op, DealID: "d_1"}).String(); op.Name == "" || path.MatchString(text) || tool.MatchString(text) {
			t.Errorf("operation %v has the neutral name %q, which is empty or names a REST path or an MCP tool", op, text)
		}
	}
}

func TestChangesReturnCopies(t *testing.T) {
	cause := errors.New("the cause")
	e := problem.New(problem.LogUnavailable, "deal %s", problem.Call{Op: problem.ReadDeal})
	before := e.Error()
	after, because := e.WithRetryAfter(7), e.WithCause(cause)
	one, other := e.WithHint("; and %d", 1), e.WithHint("; or %d", 2)
	switch {
	case e.Error() != before || e.RetryAfter != 0 || e.Unwrap() != nil:
		t.Errorf("the original changed to %v, retry after %d, cause %v", e, e.RetryAfter, e.Unwrap())
	case after.RetryAfter != 7 || after.Error() != before:
		t.Errorf("After(7): got %v, retry after %d, want %s, 7", after, after.RetryAfter, before)
	case !errors.Is(because, cause) || because.Error() != before:
		t.Errorf("Because: got %v with cause %v, want %s with cause %v", because, because.Unwrap(), before, cause)
	case one.Error() != before+"; and 1" || other.Error() != before+"; or 2":
		t.Errorf("Also: got %v and %v, want the original with \"; and 1\" and with \"; or 2\"", one, other)
	}
	if all := e.WithRetryAfter(7).WithCause(cause).WithHint("; then"); all.RetryAfter != 7 || !errors.Is(all, cause) || all.Error() != before+"; then" {
		t.Errorf("After(7).Because(cause).Also(\"; then\"): got %v, retry after %d, cause %v", all, all.RetryAfter, all.Unwrap())
	}
}

func TestAForeignErrorBecomesInternal(t *testing.T) {
	cause := errors.New("secret detail")
	p := problem.From(cause)
	if p.Code != problem.Internal || p.Status() != 500 || !errors.Is(p, cause) || strings.Contains(p.Error(), "secret") {
		t.Errorf("From(%q): got %v with status %d, want INTERNAL with 500 and without the cause's text", cause, p, p.Status())
	}
	refusal := problem.New(problem.Forbidden, "no")
	wrapped := fmt.Errorf("outer: %w", refusal)
	if problem.From(wrapped) != refusal || !problem.Is(wrapped, problem.Forbidden) || problem.Is(wrapped, problem.NotFound) || problem.Is(cause, problem.Internal) {
		t.Errorf("From(%q): got %v, want the wrapped FORBIDDEN itself", wrapped, problem.From(wrapped))
	}
}

func TestEveryCodeHasOneRowAndAStatus(t *testing.T) {
	seen := map[problem.Code]bool{}
	for _, row := range problem.Table {
		if seen[row.Code] || row.Status < 400 || row.Status > 599 || row.When == "" || problem.New(row.Code, "x").Status() != row.Status {
			t.Errorf("row %+v: want a unique code, a status of 400 to 599 and a condition", row)
		}
		seen[row.Code] = true
	}
	if status := problem.New("UNKNOWN", "x").Status(); status != 500 {
		t.Errorf("a code that is not in the table has status %d, want 500", status)
	}
}

// Some packages serve both REST and MCP. Their texts name calls by problem.Call, and contain
// no REST path and no MCP tool.
func TestRulesNameNoSurface(t *testing.T) {
	for _, pattern := range []string{"escrow/*", "rules/deal/*", "escrow/store/*", "rules/algorithm/*", "rules/canon/*", "rules/certificate/*", "api/ops/*", "platform/caller/*", "platform/budget/*"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern+".go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s.go matches %d files (error %v), want some", pattern, len(files), err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				checkTexts(t, file)
			}
		}
	}
}

func checkTexts(t *testing.T, file string) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field: // skip import paths and struct tags
			return false
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "sql" { // skip the name of an SQL file
				return false
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && (path.MatchString(n.Value) || tool.MatchString(n.Value)) {
				t.Errorf("%s: the text %s names a REST path or an MCP tool; use a problem.Call", set.Position(n.Pos()), n.Value)
			}
		}
		return true
	})
}
