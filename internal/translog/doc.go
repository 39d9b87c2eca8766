// Package translog is the transparency log: an RFC 6962 Merkle tree over 32-byte
// entries, kept in Postgres. The deployment key signs its heads.
//
// An append takes two steps. First the sequencer, on any replica, assigns indexes to a
// batch of entries, in one transaction that holds the row lock of log_head. Then the
// publisher signs the committed head outside that lock and stores the signature. The
// append is answered once a stored head covers its leaf. An entry is in the log at most
// once, so a caller may always repeat an append, and does so after each of the faults
// below.
//
// # Order of reading
//
//	appendapi.go    the private HTTP port: appends, and proofs for the deployment
//	log.go          Log: its parts; Append
//	sequencer.go    batches the entries (group.go) and appends each batch
//	commit.go       places of a batch's entries (growth.go: the new tree); the locked path
//	publisher.go    lets appends wait, runs the rounds and retries them
//	round.go        one round: verifies the committed head, signs and stores it
//	guard.go        moves the fork guard's record before a head is signed
//	schema.go       all SQL; the tables are in migrations/
//	tables.go       reads and writes heads, reads tiles
//	reads.go, prove.go, proofs.go, tree.go, tile.go    reads and proofs, from tiles
//	checkpoints.go, witnesses.go    checkpoints and their cosignatures
//	readapi.go      the public HTTP port; client.go calls both ports
//
// # Tags
//
// An entry may have a tag, which is a hash of a deal's id. The log takes one entry with
// each tag and refuses every other entry with that tag for ever (ErrTagTaken).
// So a deal has one certificate, whatever happens to the tables of the deals. The
// transaction that appends the leaf inserts its tag, and the primary key of the table
// decides between concurrent transactions. If an entry without a tag is sent again with
// one, its leaf gets that tag. The previous release sends no tags, and this one accepts
// that. `fairpactctl migrate` tags the leaves that have no tag (TagLeaves). Run it again
// once no process of the previous release is left.
//
// # What is in memory
//
// A process that is the only one to append keeps the committed head in memory. It needs
// one statement for a batch, one for its head, and one for all proofs that are asked for at
// the same moment. The memory only saves reads; the tables decide:
//
//   - The sequencer sends the batch with the head in memory. The statement appends it only
//     if the table has this very head and none of the entries and tags. Otherwise, after an
//     error and at the start, the batch takes the locked path: lock the head, look the
//     entries up, append the new ones by the same statement. While another replica appends,
//     every batch takes the locked path.
//   - The publisher proves from tiles in memory that the new tree extends the one of its last
//     round, and stores the head only if the database has the last leaf. The first round, a
//     round after another replica's append or a failure, and a round without new leaves
//     read both heads and the tiles from the tables.
//   - Each call for a proof or the newest head reads the head and the leaf's row. The path is
//     computed from tiles in memory and verified against the head. If it does not lead to
//     the head, the tables are read and decide.
//
// Only leaf rows and the roots of complete subtrees at levels 8, 16, … are stored, and they
// never change. A tile is verified once, when it is read, against the signed head or the
// node above it. So a tampered leaf row is found whenever a client asks for that leaf. Any
// other tampered row is found when a process reads its tile, at the latest for its first
// proof from that tile.
//
// # Faults
//
// The table shows what each step leaves behind when it fails, and what repairs it.
//
//	step                    fails and did not persist           fails but persisted
//	----------------------  ----------------------------------  ----------------------------------
//	append in one           no change; the memory is dropped    the locked path finds every entry
//	statement               and the same batch takes the        in leaves and answers its index
//	                        locked path
//	— appends nothing       another head, a known entry or a    (not possible)
//	                        taken tag; the locked path
//	— a tag is taken while  the primary key fails the           (not possible)
//	it runs                 statement; the locked path
//	— still waits for the   (not possible)                      the retry waits behind it and finds
//	lock after its caller                                       its entries; or the retry is first,
//	gave up                                                     and the statement appends nothing
//	locked:  lock, read     no change; batch retried            (reads only)
//	locked:  append         rolled back, by the server if the   not possible before the commit
//	                        connection is gone; batch retried
//	— a tag was taken since the same                            (not possible)
//	the look-up
//	locked:  commit         as above                            retried; every entry is found in
//	                                                            leaves and answered with its index
//	read tiles into memory  proofs and rounds read them when    (reads only)
//	                        they need them
//	move the fork guard     publisher backs off, reads the      the retry finds it there; the same
//	                        guard again and retries; signs      head or one that extends it may be
//	                        nothing until then                  signed
//	sign the head           publisher retries with backoff;     an unused signature; the retry makes
//	                        appends get an error at once, and   another one (ECDSA signatures differ)
//	                        their leaves stay
//	store the head          publisher retries; the signature    the retry finds the stored head,
//	                        is dropped, no client has seen it   checks it and answers with it
//	— stores nothing        the size has a head, which counts;  (not possible)
//	                        or the database lost the last leaf:
//	                        the round reads it and refuses
//	answer the append       (changes nothing)                   the caller repeats: same index
//
// A process that dies between two steps leaves the same states. Leaves without a head are
// published by the next append, or when any replica starts.
//
// An operator must resolve a contradiction: a stored root that does not match its compact
// range, a committed head that does not extend the newest published one or the fork
// guard's record, or a head with a signature by no trusted key. The log then answers
// ErrInconsistent, signs nothing, and waits. Log.ProofFailures counts each contradiction
// except a refusal by the fork guard.
package translog
