package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

// This is the only file of the benchmark that depends on the product's tables.

// fillTables has the statements that fill the product's tables from a temporary table named
// filler. That table has one row for each ended deal, with the columns number (the leaf index,
// from 0), digest and id. The inserted values are as long as those of a real two-party
// split.v1 deal.
var fillTables = []string{
	`INSERT INTO api_keys VALUES (sha256('filler'), 1)`,
	`INSERT INTO deals
		SELECT 'd_' || id, sha256('filler'), 'split.v1', '{"items":["house","car","piano"]}', 'sealed', 'standard', 2,
			1700000600, 1700001200, 1700000000, NULL, NULL, NULL, 'COMPUTED', 1700000010, 1700000020, 1700000021,
			convert_to(repeat('result', 50), 'UTF8'), NULL, 'c_' || id FROM filler`,
	`INSERT INTO parties
		SELECT 'd_' || id, party, 'Ana', substr(digest, 1, 31) || ('\x0' || party)::bytea FROM filler, generate_series(0, 1) party`,
	`INSERT INTO commitments SELECT 'd_' || id, party, digest, 1700000010 FROM filler, generate_series(0, 1) party`,
	`INSERT INTO reveals SELECT 'd_' || id, party, convert_to(repeat('s', 140), 'UTF8'), 1700000020 FROM filler, generate_series(0, 1) party`,
	`INSERT INTO certificates
		SELECT 'c_' || id, 'd_' || id, convert_to(repeat('payload', 140), 'UTF8'), digest, 'es256:' || repeat('0', 128), number, 1700000021 FROM filler`,
	`INSERT INTO translog.leaves SELECT number, digest, digest FROM filler`,
}

// certified returns how many of the deals have a published certificate.
func certified(ctx context.Context, conn *pgx.Conn, dealIDs []string) (n int, err error) {
	err = conn.QueryRow(ctx, `SELECT count(*) FROM certificates WHERE deal_id = ANY ($1) AND leaf_index IS NOT NULL`, dealIDs).Scan(&n)
	return n, err
}

// fill puts n ended deals and their leaves into the database, which must be empty. The
// certificates do not verify. fill writes a correct tree for the log, because log-server refuses
// to start on a wrong tree.
func (b *bench) fill(n int) error {
	say("filling the database with %d ended deals", n)
	return b.restartServices(func() error {
		conn, err := pgx.Connect(b.ctx, b.stack.DatabaseURL())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(b.ctx))
		digests := sortedDigests(n)
		if err := fillDeals(b.ctx, conn, digests); err != nil {
			return err
		}
		if err := fillTree(b.ctx, conn, digests); err != nil {
			return err
		}
		// Do now what autovacuum and the checkpointer would otherwise do during a measurement.
		for _, statement := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
			if _, err := conn.Exec(b.ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}, noEnv)
}

// sortedDigests returns n digests in ascending order. Consecutive rows then have neighbouring
// keys in the indexes of the tables, which makes the inserts many times faster.
func sortedDigests(n int) [][]byte {
	digests := make([][]byte, n)
	for i := range digests {
		sum := sha256.Sum256(fmt.Append(nil, i))
		digests[i] = sum[:]
	}
	slices.SortFunc(digests, bytes.Compare)
	return digests
}

func fillDeals(ctx context.Context, conn *pgx.Conn, digests [][]byte) error {
	statements := []string{
		`SET session_replication_role = replica`, // skips the checks of foreign keys
		`CREATE TEMP TABLE filler (number bigint, digest bytea, id text GENERATED ALWAYS AS
			(left(translate(encode(digest, 'base64'), '+/', '-_'), 22)) STORED)`,
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"filler"}, []string{"number", "digest"},
		pgx.CopyFromSlice(len(digests), func(i int) ([]any, error) { return []any{int64(i), digests[i]}, nil }))
	if err != nil {
		return err
	}
	for _, statement := range fillTables {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%.40s: %w", statement, err)
		}
	}
	return nil
}

// fillTree writes the committed head of the log and the nodes that log-server stores:
// those of the levels 8, 16 and so on.
func fillTree(ctx context.Context, conn *pgx.Conn, digests [][]byte) error {
	const tileHeight = 8
	tree := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	var nodes [][]any
	for _, digest := range digests {
		err := tree.Append(rfc6962.DefaultHasher.HashLeaf(digest), func(id compact.NodeID, hash []byte) {
			if id.Level > 0 && id.Level%tileHeight == 0 {
				nodes = append(nodes, []any{int16(id.Level), int64(id.Index), hash})
			}
		})
		if err != nil {
			return err
		}
	}
	root, err := tree.GetRootHash(nil)
	if err != nil {
		return err
	}
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"translog", "nodes"}, []string{"level", "node_index", "hash"}, pgx.CopyFromRows(nodes)); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `UPDATE translog.log_head SET size = $1, root = $2, hashes = $3`, int64(tree.End()), root, tree.Hashes())
	return err
}
