package database

import (
	"context"
	"database/sql"
	"errors"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tracer records a span for each statement that runs inside another span. The span omits the
// parameters, because they contain inputs and hashes. For a failed statement, the span shows
// the SQLSTATE but not the message.
type tracer struct{ *otelpgx.Tracer }

// failure replaces an error in a span, because Postgres messages quote values and connection
// errors name the user.
type failure struct{ pg *pgconn.PgError } // pg is nil if the error does not come from Postgres

func redacted(err error) error {
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
		return "no answer from Postgres"
	}
	return "SQLSTATE " + f.pg.Code
}

// As lets otelpgx read the SQLSTATE for the span.
func (f failure) As(target any) bool {
	pg, ok := target.(**pgconn.PgError)
	if ok = ok && f.pg != nil; ok {
		*pg = f.pg
	}
	return ok
}

func (t tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceQueryEnd(ctx, conn, data)
}

func (t tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceBatchQuery(ctx, conn, data)
}

func (t tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceBatchEnd(ctx, conn, data)
}

func (t tracer) TraceCopyFromEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceCopyFromEnd(ctx, conn, data)
}

func (t tracer) TracePrepareEnd(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TracePrepareEnd(ctx, conn, data)
}

func (t tracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	data.Err = redacted(data.Err)
	t.Tracer.TraceConnectEnd(ctx, data)
}
