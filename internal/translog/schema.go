package translog

import (
	"context"
	"embed"

	"github.com/fairpact/fairpact/internal/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

var schema = database.NewSchema("translog", migrations)

// Migrate brings the schema translog up to this binary's version. It may be run
// again, and by several processes at once.
func Migrate(ctx context.Context, databaseURL string) error {
	return schema.Migrate(ctx, databaseURL)
}

//go:embed queries/*.sql
var queries embed.FS

var (
	sqlAppendBatch         = statement("append_batch")
	sqlLockHead            = statement("lock_head")
	sqlLookUp              = statement("look_up")
	sqlLookUpTags          = statement("look_up_tags")
	sqlUntagged            = statement("untagged")
	sqlTagLeaves           = statement("tag_leaves")
	sqlNotTagged           = statement("not_tagged")
	sqlCommittedHead       = statement("committed_head")
	sqlNewestHead          = statement("newest_head")
	sqlReplicated          = statement("replicated")
	sqlNewestHeadAndLeaves = statement("newest_head_and_leaves")
	sqlHeadAt              = statement("head_at")
	sqlHeadsAbove          = statement("heads_above")
	sqlInsertHead          = statement("insert_head")
	sqlFsckHead            = statement("fsck_head")
	sqlFsckHeads           = statement("fsck_heads")
	sqlFsckCheckpoints     = statement("fsck_checkpoints")
	sqlFsckBeyond          = statement("fsck_beyond")
	sqlFsckTags            = statement("fsck_tags")
	sqlLeavesBetween       = statement("leaves_between")
	sqlNodesBetween        = statement("nodes_between")
	sqlDueCheckpoint       = statement("due_checkpoint")
	sqlInsertCheckpoint    = statement("insert_checkpoint")
	sqlNewestCheckpoint    = statement("newest_checkpoint")
	sqlCheckpointAt        = statement("checkpoint_at")
	sqlInsertCosignatures  = statement("insert_cosignatures")
	sqlInsertWitnessed     = statement("insert_witnessed")
	sqlCosigned            = statement("cosigned")
	sqlLockWitnesses       = statement("lock_witnesses")
)

func statement(name string) string {
	text, err := queries.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(err) // the file is not in the tree that was built
	}
	return string(text)
}
