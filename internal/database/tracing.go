package database

import (
	"context"
	"database/sql"
	"errors"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tracer makes a span of each statement inside a span: its SQL, never a
// parameter, which are inputs and hashes, and of an error the SQLSTATE alone.
type tracer struct{ *otelpgx.Tracer }

// failure is what a span may hold of an error. Postgres' own words quote the
// values that it minds, and those of a connection that fails name the user.
type failure struct{ pg *pgconn.PgError } // nil: the answer is none of Postgres'

func told(err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failure{&pgconn.PgError{Code: pg.Code}}
	}
	return failure{}
}

func (f failure) Error() string {
	if f.pg == nil {
		return "no answer of Postgres"
	}
	return "SQLSTATE " + f.pg.Code
}

// As gives otelpgx the SQLSTATE, for an attribute.
func (f failure) As(target any) bool {
	pg, ok := target.(**pgconn.PgError)
	if ok = ok && f.pg != nil; ok {
		*pg = f.pg
	}
	return ok
}

func (t tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	data.Err = told(data.Err)
	t.Tracer.TraceQueryEnd(ctx, conn, data)
}

func (t tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	data.Err = told(data.Err)
	t.Tracer.TraceBatchQuery(ctx, conn, data)
}

func (t tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	data.Err = told(data.Err)
	t.Tracer.TraceBatchEnd(ctx, conn, data)
}

func (t tracer) TraceCopyFromEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromEndData) {
	data.Err = told(data.Err)
	t.Tracer.TraceCopyFromEnd(ctx, conn, data)
}

func (t tracer) TracePrepareEnd(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareEndData) {
	data.Err = told(data.Err)
	t.Tracer.TracePrepareEnd(ctx, conn, data)
}

func (t tracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	data.Err = told(data.Err)
	t.Tracer.TraceConnectEnd(ctx, data)
}
