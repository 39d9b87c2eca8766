package translog

import (
	"context"
	"embed"

	"github.com/fairpact/fairpact/internal/platform/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

var schema = database.NewSchema("translog", migrations)

// Migrate brings the schema up to this binary's version. Several processes may run it at once.
func Migrate(ctx context.Context, databaseURL string) error {
	return schema.Migrate(ctx, databaseURL)
}

const (
	sqlCommittedHead = `SELECT size, root, hashes FROM translog.log_head WHERE singleton`
	sqlLockHead      = sqlCommittedHead + ` FOR UPDATE`

	sqlHeads      = `SELECT tree_size, root, signature FROM translog.tree_heads `
	sqlNewestHead = sqlHeads + `ORDER BY tree_size DESC LIMIT 1`
	sqlHeadAt     = sqlHeads + `WHERE tree_size = $1`
	sqlHeadsAbove = sqlHeads + `WHERE tree_size > $1 ORDER BY tree_size LIMIT $2`

	sqlLeavesBetween = `SELECT leaf_index, entry FROM translog.leaves WHERE leaf_index >= $1 AND leaf_index < $2 ORDER BY leaf_index`
	sqlNodesBetween  = `SELECT node_index, hash FROM translog.nodes WHERE level = $3 AND node_index >= $1 AND node_index < $2 ORDER BY node_index`
)

// sqlReplicated makes a transaction that otherwise only reads write a commit record. Its commit
// then waits until the synchronous standby has the data that was read.
const sqlReplicated = `SELECT pg_logical_emit_message(true, 'fairpact', '')`

// sqlAppendBatch appends a batch. $1 to $3 are the size, root and compact range that the caller
// expects of the committed head, $4 to $6 those of the new head. $7 are the entries, $8 their
// tags, and $9 to $11 the nodes.
//
// The statement changes nothing in these cases:
//   - The committed head is not the expected one.
//   - An entry is already in the log, or is the digest of a head or checkpoint.
//   - A tag is taken.
//
// If the UPDATE waits for the row lock, it compares the expected head with the row as it is
// after the wait. The NOT EXISTS checks still see the other tables as before the wait. This is
// safe: if the head is unchanged, no leaf was added during the wait.
const sqlAppendBatch = `
WITH moved AS (
    UPDATE translog.log_head SET size = $4, root = $5, hashes = $6
    WHERE singleton AND size = $1 AND root = $2 AND hashes = $3
      AND NOT EXISTS (SELECT FROM translog.tree_heads WHERE digest = ANY ($7::bytea[]))
      AND NOT EXISTS (SELECT FROM translog.checkpoints WHERE digest = ANY ($7::bytea[]))
      AND NOT EXISTS (SELECT FROM translog.leaves WHERE entry = ANY ($7::bytea[]))
      AND NOT EXISTS (SELECT FROM translog.leaves WHERE tag = ANY ($8::bytea[]))
    RETURNING true
), added AS (
    INSERT INTO translog.leaves (leaf_index, entry, tag)
    SELECT $1 + n - 1, entry, tag FROM moved, unnest($7::bytea[], $8::bytea[]) WITH ORDINALITY AS t (entry, tag, n)
), completed AS (
    INSERT INTO translog.nodes (level, node_index, hash)
    SELECT level, node_index, hash FROM moved, unnest($9::smallint[], $10::bigint[], $11::bytea[]) AS t (level, node_index, hash)
)
SELECT EXISTS (SELECT FROM moved)`

// sqlLookUp returns -1 (refused) for the digest of a head or a checkpoint.
const sqlLookUp = `
SELECT entry, leaf_index FROM translog.leaves WHERE entry = ANY ($1::bytea[])
UNION ALL
SELECT digest, -1 FROM translog.tree_heads WHERE digest = ANY ($1::bytea[])
UNION ALL
SELECT digest, -1 FROM translog.checkpoints WHERE digest = ANY ($1::bytea[])`

const sqlLookUpTags = `SELECT tag, leaf_index FROM translog.leaves WHERE tag = ANY ($1::bytea[])`

// sqlHeadsAndLeaves selects the newest head, the heads of the sizes $1, and the leaves with an
// index in $2 or an entry in $3. Only heads have a signature.
const sqlHeadsAndLeaves = `
(SELECT tree_size AS at, root AS value, signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1)
UNION ALL
SELECT tree_size, root, signature FROM translog.tree_heads WHERE tree_size = ANY ($1::bigint[])
UNION ALL
SELECT leaf_index, entry, NULL FROM translog.leaves WHERE leaf_index = ANY ($2::bigint[])
UNION ALL
SELECT leaf_index, entry, NULL FROM translog.leaves WHERE entry = ANY ($3::bytea[])`

// sqlGuard selects the identity of the log's fork guard, or an empty text if it has none.
const sqlGuard = `SELECT coalesce((SELECT identity FROM translog.guards ORDER BY number DESC LIMIT 1), '')`

// sqlMoveGuard replaces the guard $1 with the guard $2, and inserts nothing if another one is in force.
const sqlMoveGuard = `
INSERT INTO translog.guards (number, identity)
SELECT coalesce((SELECT max(number) FROM translog.guards), 0) + 1, $2
WHERE (` + sqlGuard + `) = $1
ON CONFLICT DO NOTHING`

// sqlInsertHead stores nothing if a head of the same size is stored, if $6 is not the log's fork guard, or
// if the database is an older copy: $5, unless NULL, is not the entry of the last leaf under the head.
// ON CONFLICT names no index, because tree_size and digest each have a unique index.
const sqlInsertHead = `
INSERT INTO translog.tree_heads (tree_size, root, digest, signature)
SELECT $1, $2, $3, $4
WHERE ($5::bytea IS NULL OR EXISTS (SELECT FROM translog.leaves WHERE leaf_index = $1::bigint - 1 AND entry = $5))
  AND (` + sqlGuard + `) = $6
ON CONFLICT DO NOTHING`

// sqlDueCheckpoint returns the newest published head, unless the newest checkpoint covers that
// head or was signed in the last second (checkpointEvery).
const sqlDueCheckpoint = `
SELECT h.tree_size, h.root, h.signature
FROM (SELECT tree_size, root, signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1) h
WHERE NOT EXISTS (
    SELECT FROM (SELECT tree_size, signed_at FROM translog.checkpoints ORDER BY tree_size DESC LIMIT 1) c
    WHERE c.tree_size >= h.tree_size OR c.signed_at > clock_timestamp() - interval '1 second')`

// sqlInsertCheckpoint repeats the condition of sqlDueCheckpoint, because another replica
// may have stored a checkpoint after sqlDueCheckpoint ran.
const sqlInsertCheckpoint = `
INSERT INTO translog.checkpoints (tree_size, digest, note)
SELECT $1, $2, $3
WHERE NOT EXISTS (
    SELECT FROM (SELECT tree_size, signed_at FROM translog.checkpoints ORDER BY tree_size DESC LIMIT 1) c
    WHERE c.tree_size >= $1 OR c.signed_at > clock_timestamp() - interval '1 second')
ON CONFLICT DO NOTHING`

const (
	// The last column is the size of the largest checkpoint that met the quorum; -1: none did.
	sqlCheckpoints = `
SELECT c.tree_size, c.note,
       ARRAY(SELECT s.line FROM translog.cosignatures s WHERE s.tree_size = c.tree_size ORDER BY s.witness),
       coalesce((SELECT w.tree_size FROM translog.witnessed w ORDER BY w.tree_size DESC LIMIT 1), -1)
FROM translog.checkpoints c `
	sqlNewestCheckpoint = sqlCheckpoints + `ORDER BY c.tree_size DESC LIMIT 1`
	sqlCheckpointAt     = sqlCheckpoints + `WHERE c.tree_size = $1`
)

const sqlInsertCosignatures = `
INSERT INTO translog.cosignatures (tree_size, witness, line)
SELECT $1, witness, line FROM unnest($2::text[], $3::text[]) AS t (witness, line)
ON CONFLICT DO NOTHING`

// sqlFirstWitnessed returns the smallest size over the leaf $1 that met the quorum.
const sqlFirstWitnessed = `SELECT tree_size FROM translog.witnessed WHERE tree_size > $1 ORDER BY tree_size LIMIT 1`

const sqlInsertWitnessed = `INSERT INTO translog.witnessed (tree_size) VALUES ($1) ON CONFLICT DO NOTHING`

const sqlLockWitnesses = `SELECT pg_try_advisory_lock(hashtextextended('fairpact witnesses', 0))`

// sqlReturned records the leaves from $1 to $2 - 1.
const sqlReturned = `INSERT INTO translog.returned (leaf_index) SELECT generate_series($1::bigint, $2::bigint - 1)`

const sqlHasLeaf = `SELECT EXISTS (SELECT FROM translog.leaves WHERE leaf_index = $1 AND entry = $2 AND tag = $3)`

const (
	sqlFsckHeads       = `SELECT tree_size, root, digest, signature FROM translog.tree_heads WHERE tree_size > $1 AND tree_size <= $2 ORDER BY tree_size`
	sqlFsckCheckpoints = `SELECT tree_size, digest, note FROM translog.checkpoints WHERE tree_size > $1 AND tree_size <= $2 ORDER BY tree_size`

	// sqlFsckNodes returns the nodes whose stored hash is missing or differs from the given one.
	sqlFsckNodes = `
SELECT w.level, w.node_index, w.hash, n.hash
FROM unnest($1::smallint[], $2::bigint[], $3::bytea[]) AS w (level, node_index, hash)
LEFT JOIN translog.nodes n USING (level, node_index)
WHERE n.hash IS DISTINCT FROM w.hash ORDER BY w.level, w.node_index`

	// sqlFsckBeyond returns, for each table, the smallest index or size that is too large for a
	// tree of $1 leaves, or NULL. For nodes it returns the number of rows if that is not $2.
	sqlFsckBeyond = `
SELECT 'leaves', min(leaf_index) FROM translog.leaves WHERE leaf_index >= $1
UNION ALL SELECT 'tree_heads', min(tree_size) FROM translog.tree_heads WHERE tree_size > $1
UNION ALL SELECT 'checkpoints', min(tree_size) FROM translog.checkpoints WHERE tree_size > $1
UNION ALL SELECT 'nodes', count(*) FROM translog.nodes HAVING count(*) <> $2`
)
