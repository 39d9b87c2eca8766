// Package translog is the transparency log: an RFC 6962 Merkle tree over 32-byte
// entries, kept in Postgres. The deployment key signs its heads.
//
// An append takes two steps. First, the sequencer of any replica assigns indexes to a batch
// of entries. It does so in one transaction that holds the row lock of log_head. Then the
// publisher signs the committed head outside that lock, and stores the signed head. The
// append is answered once a stored head covers its leaf. An entry is in the log at most
// once, so a caller may repeat an append after any of the faults below.
//
// # Order of reading
//
//	client.go       what the other binaries call
//	appendapi.go    the private HTTP port: appends, and proofs for the deployment; errors
//	log.go          Log: its parts; Append
//	sequencer.go    batches the entries and appends each batch
//	append.go       decides the leaf index of each entry; the locked path (below)
//	publisher.go    lets appends wait for a head; runs rounds (attempts to publish a head)
//	round.go        one round: verifies the committed head, moves the fork guard's record, signs
//	store.go        heads and their verification; reads tiles; all SQL is in schema.go
//	proofs.go, tree.go              reads and proofs, from tiles in memory
//	checkpoints.go, witnesses.go    checkpoints and their cosignatures
//	readapi.go, checkpointapi.go    the public HTTP port
//	fsck.go                         repair: checks all tables, appends lost leaves again
//
// # Tags
//
// Each entry has a tag, which is a hash of a deal's id. The log takes one entry with each tag
// and refuses every other entry with that tag for ever (ErrTagTaken). So the log has at most
// one certificate of a deal, whatever happens to the deals' tables.
//
// # What is in memory
//
// While a process is the only one that appends, it works from the committed head in memory.
// It then needs one statement to append a batch, one to store the batch's head, and one for
// all concurrent requests for proofs. The memory only saves reads; the tables decide:
//
//   - The sequencer sends the batch and the head in memory in one statement. The statement
//     appends the batch only if the table has the same head, and the log has none of the
//     batch's entries and tags. Otherwise the batch takes the locked path. The first batch
//     and a batch after an error also take the locked path. While another replica appends,
//     every batch does. The locked path locks the head, looks the entries up, and appends the
//     new entries by the same statement.
//   - The publisher works in rounds. A round proves from tiles in memory that the new tree
//     extends the tree of the last round. It stores the head only if the database has the
//     last leaf under that head. Some rounds read the committed head, the newest published
//     head and the tiles from the tables: the first round, a round after a failure or after
//     another replica's append, and a round without new leaves.
//   - A call for the newest head reads the head from the tables. A call for a proof also reads
//     the leaf's row. It computes the path from tiles in memory, and verifies the path against
//     the head. If the path does not lead to the head, the call reads the tiles from the
//     tables, which decide.
//
// Only leaf rows and the roots of complete subtrees at levels 8, 16, … are stored, and they
// never change. A tile (tree.go) is verified once, when it is read: it must lead to the root
// of a head or to the node above the tile. Each proof also compares the leaf's row with the
// leaf's tile. So a tampered leaf row is found whenever a client asks for a proof of that
// leaf. Any other tampered row is found when a process reads that row's tile, at the latest
// when a proof needs the tile and the memory lacks it.
//
// # Faults
//
// The table shows what a failed step leaves behind, and what happens next.
//
//	step                    fails and did not persist           fails but persisted
//	----------------------  ----------------------------------  ----------------------------------
//	append in one           no change; the head in memory is    the locked path finds every entry
//	statement               dropped, and the same batch takes   in leaves and returns its index
//	                        the locked path
//	— the statement         the head differs, an entry is       (not possible)
//	appends nothing         known or a tag is taken; the batch
//	                        takes the locked path
//	— the statement still   (not possible)                      the retry waits behind the
//	waits for the lock                                          statement and finds its entries;
//	after its caller gave                                       or the retry is first, and the
//	up                                                          statement appends nothing
//	locked: lock, read      no change; the batch is retried     (reads only)
//	locked: append          rolled back, by the server if the   (not possible before the commit)
//	                        connection is gone; the batch is
//	                        retried
//	locked: commit          rolled back; the batch is retried   the batch is retried; every entry
//	                                                            is found in leaves and answered
//	                                                            with its index
//	read tiles into memory  no change; proofs and rounds read   (reads only)
//	                        the tiles when they need them
//	move the fork guard's   the publisher signs nothing, backs  the retry finds the record at the
//	record                  off, reads the record again and     new head; that head, or one that
//	                        retries                             extends it, may be signed
//	sign the head           the publisher backs off and         the signature is not used; the
//	                        retries; appends get an error at    retry makes another one (ECDSA
//	                        once, and their leaves stay         signatures differ)
//	store the head          the publisher retries; the          the retry finds the stored head,
//	                        signature is dropped, and no        verifies it and answers with it
//	                        client has seen it
//	— the statement         the size has a stored head, which   (not possible)
//	stores nothing          counts; or the database lost the
//	                        last leaf, and the round reads the
//	                        tables instead of the memory
//	answer the append       (changes nothing)                   the caller repeats the append and
//	                                                            gets the same index
//
// A process that dies between two steps leaves one of these states. Leaves without a head
// get one from the next append, or when any replica starts.
//
// An operator must resolve a contradiction, for example:
//
//   - A stored root does not match its compact range.
//   - The committed head does not extend the newest published head or the fork guard's record.
//   - No trusted key signed a stored head.
//
// # One guard for one log
//
// Only the fork guard knows what was signed, so a log must have one guard, also if two clusters share its
// database or have copies of it. Each guard has an identity that a copy of its record lacks (package
// forkguard). The table guards names the identity of the log's guard, and every dump contains it. A publisher
// under another guard, or under none, refuses to sign, whatever Options.Adopt says. MoveGuard is the only way
// to another guard.
//
//	two publishers with two guards          what happens
//	--------------------------------------  ---------------------------------------------------
//	on one database without a guard         the first to sign claims the log, the other refuses
//	on one database with a guard            the other refuses each head
//	one of them on a restored older copy    the copy names the same guard: the other refuses, and
//	                                        that guard refuses because its record is larger
//	the record is copied to the other       still another identity: the other refuses
//	the log moves while the first signs     sqlInsertHead stores nothing under the first guard; the
//	                                        signature is dropped, and the next round refuses
//	a copy from before a move               names the first guard, which must be deleted after the
//	                                        move: its record is old, so it would sign the copy
//	a database from before this table,      the first to sign claims the copy, if its record does
//	restored                                not refuse it
//	two databases that each name their own  both sign: nothing is shared. Regions that may part
//	guard                                   need one guard outside both
//
// A call, batch or round that finds a contradiction fails with ErrInconsistent, so it appends
// and signs nothing. fairpact_log_proof_failures_total counts each contradiction that was found, except a
// refusal by the fork guard.
package translog
