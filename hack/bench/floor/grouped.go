package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

const document = `{"id":"x","algorithm":{"name":"sealed-bid","params":{"reserve":1000}},
"parties":{"p1":{"commit":null,"reveal":null},"p2":{"commit":null,"reveal":null}},"state":"open",
"pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`

// The values of the column actions.kind (see schema.sql).
const (
	committed = 1
	revealed  = 2
)

const (
	maxGroup        = 256
	workersPerGroup = 2 // workers that insert deals; as many other workers insert actions
)

// grouped stores deals and actions (commits and reveals). Concurrent calls share one INSERT.
type grouped struct {
	deals   *group[int64]
	actions *group[action]
	sign    *signer
}

type action struct {
	call
	kind int
}

func newGrouped(pool *pgxpool.Pool, sign *signer) *grouped {
	return &grouped{
		deals: newGroup(workersPerGroup, func(ids []int64) error {
			_, err := pool.Exec(context.Background(),
				`INSERT INTO deals SELECT id, 'open', $2::jsonb FROM unnest($1::bigint[]) id`, ids, document)
			return err
		}),
		actions: newGroup(workersPerGroup, func(list []action) error {
			n := len(list)
			deals, parties, kinds, hashes := make([]int64, n), make([]int, n), make([]int, n), make([][]byte, n)
			for i, a := range list {
				deals[i], parties[i], kinds[i], hashes[i] = a.Deal, a.Party, a.kind, []byte(a.Hash)
			}
			_, err := pool.Exec(context.Background(), `INSERT INTO actions (deal, party, kind, hash)
				SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[], $4::bytea[])
				ON CONFLICT DO NOTHING`, deals, parties, kinds, hashes)
			return err
		}),
		sign: sign,
	}
}

func (g *grouped) create(_ context.Context, deal int64) error { return g.deals.do(deal) }

func (g *grouped) commit(_ context.Context, c call) error { return g.actions.do(action{c, committed}) }

// reveal stores a reveal. The benchmark reveals for party 2 last, so a reveal of party 2
// also makes the certificate.
func (g *grouped) reveal(ctx context.Context, c call) error {
	if err := g.actions.do(action{c, revealed}); err != nil || c.Party != 2 {
		return err
	}
	return g.sign.certify(ctx, c)
}

// group collects items while its workers are busy and flushes them together.
// There is no timer: an item that finds a free worker is flushed immediately.
type group[T any] struct{ queue chan waiting[T] }

type waiting[T any] struct {
	item T
	done chan error
}

func newGroup[T any](workers int, flush func([]T) error) *group[T] {
	g := &group[T]{make(chan waiting[T], 8192)}
	for range workers {
		go g.work(flush)
	}
	return g
}

func (g *group[T]) do(item T) error {
	w := waiting[T]{item, make(chan error, 1)}
	g.queue <- w
	return <-w.done
}

func (g *group[T]) work(flush func([]T) error) {
	for first := range g.queue {
		batch := []waiting[T]{first}
		items := []T{first.item}
	drain:
		for len(batch) < maxGroup {
			select {
			case next := <-g.queue:
				batch, items = append(batch, next), append(items, next.item)
			default:
				break drain
			}
		}
		err := flush(items)
		for _, w := range batch {
			w.done <- err
		}
	}
}
