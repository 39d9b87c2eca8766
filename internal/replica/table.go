package replica

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/announce.sql
	announceSQL string
	//go:embed sql/leave.sql
	leaveSQL string
	//go:embed sql/forget.sql
	forgetSQL string
)

// member is a process as the others see it.
type member struct {
	name      string
	kind      string
	signsWith string
	accepts   []string
}

// opponent is a live member that disagrees with the one who asked.
type opponent struct {
	Name        string
	Kind        string
	SignsWith   string
	AcceptsMine bool
	Age         float64 // seconds since it was last seen
}

// table is replica.members.
type table struct {
	pool     *pgxpool.Pool
	lifetime time.Duration // of a row that is not written anew
}

// announce writes the member's row and gives nobody, or gives the live members
// that disagree with it and writes nothing; where it is not to write it only
// looks. It is one transaction and one round trip: no lock is held while a process
// is paused.
func (t table) announce(ctx context.Context, m member, write bool) (against []opponent, err error) {
	batch := &pgx.Batch{}
	batch.Queue(lockSQL)
	batch.Queue(announceSQL, m.name, m.kind, m.signsWith, m.accepts, t.lifetime.Seconds(), write).Query(func(rows pgx.Rows) error {
		against, err = pgx.CollectRows(rows, pgx.RowToStructByPos[opponent])
		return err
	})
	err = t.pool.SendBatch(ctx, batch).Close()
	return against, err
}

// leave deletes the member's row, after whatever it still has under way.
func (t table) leave(ctx context.Context, m member) error {
	batch := &pgx.Batch{}
	batch.Queue(lockSQL)
	batch.Queue(leaveSQL, m.name)
	return t.pool.SendBatch(ctx, batch).Close()
}

// forget deletes rows that nobody has written for a day.
func (t table) forget(ctx context.Context) error {
	_, err := t.pool.Exec(ctx, forgetSQL)
	return err
}
