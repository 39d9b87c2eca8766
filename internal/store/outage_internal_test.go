package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairpact/fairpact/internal/problem"
)

// An error that means "the database is out of reach" is a 503 that may be
// repeated; a fault of ours stays one. Codes: Postgres documentation, appendix A.
func TestOnlyAnOutageIsUnavailable(t *testing.T) {
	pg := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for what, row := range map[string]struct {
		err  error
		away bool
	}{
		"connection failure":    {pg("08006"), true},
		"too many connections":  {pg("53300"), true},
		"disk full":             {pg("53100"), true},
		"statement timeout":     {pg("57014"), true},
		"admin shutdown":        {pg("57P01"), true},
		"starting up":           {pg("57P03"), true},
		"lock timeout":          {pg("55P03"), true},
		"serialization failure": {pg("40001"), true},
		"deadlock":              {pg("40P01"), true},
		"connection closed":     {io.ErrUnexpectedEOF, true},
		"context ended":         {context.DeadlineExceeded, true},
		"unique violation":      {pg("23505"), false},
		"check violation":       {pg("23514"), false},
		"undefined table":       {pg("42P01"), false},
		"invalid byte sequence": {pg("22021"), false},
		"no rows":               {pgx.ErrNoRows, false},
		"not found":             {ErrNotFound, false},
		"replayed":              {ErrReplayed, false},
	} {
		got := outage(row.err)
		if problem.Is(got, problem.Unavailable) != row.away || !errors.Is(got, row.err) {
			t.Errorf("%s: %v", what, got)
		}
		if row.away && problem.From(got).RetryAfter <= 0 {
			t.Errorf("%s: no Retry-After", what)
		}
	}
	if readOnly := outage(pg("25006")); !problem.Is(readOnly, problem.ReadOnly) || problem.From(readOnly).RetryAfter <= 0 {
		t.Errorf("a session that is read-only, by maintenance or after a failover: %v", readOnly)
	}
	if outage(nil) != nil {
		t.Error("no error is an outage")
	}
}
