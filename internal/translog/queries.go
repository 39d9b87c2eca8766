package translog

import _ "embed"

// The statements, one a file.
var (
	//go:embed queries/append_batch.sql
	sqlAppendBatch string
	//go:embed queries/newest_head_and_leaves.sql
	sqlNewestHeadAndLeaves string
	//go:embed queries/lock_head.sql
	sqlLockHead string
	//go:embed queries/find_entries.sql
	sqlFindEntries string
	//go:embed queries/find_head_digests.sql
	sqlFindHeadDigests string
	//go:embed queries/insert_leaves.sql
	sqlInsertLeaves string
	//go:embed queries/insert_nodes.sql
	sqlInsertNodes string
	//go:embed queries/move_head.sql
	sqlMoveHead string
	//go:embed queries/committed_head.sql
	sqlCommittedHead string
	//go:embed queries/newest_head.sql
	sqlNewestHead string
	//go:embed queries/head_at.sql
	sqlHeadAt string
	//go:embed queries/insert_head.sql
	sqlInsertHead string
	//go:embed queries/leaves_between.sql
	sqlLeavesBetween string
	//go:embed queries/nodes_between.sql
	sqlNodesBetween string
)
