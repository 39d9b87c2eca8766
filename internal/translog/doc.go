// Package translog is the transparency log: an RFC 6962 Merkle tree over 32-byte
// entries, kept in Postgres, whose heads are signed by the deployment key.
//
// An append takes two steps. The sequencer gives a batch of entries their
// indexes in one transaction that holds the row lock of log_head; any replica
// may do it. The publisher then signs the head that was committed, outside that
// lock, and stores the signature; an append is answered once a stored head
// covers it. An entry is in the log at most once, so an append may always be
// repeated, and the answer to every fault below is to repeat it.
//
// # Tags
//
// An entry may come with a tag, a hash of the id of the deal that it certifies.
// The log takes one entry with a tag and refuses every other one for ever
// (ErrTagTaken): so a deal has one certificate, whatever happens to the tables of
// the deals. The transaction that appends the leaf inserts its tag, and the primary
// key of the table decides between transactions. An entry that the log has gets the
// tag that it comes with later. The release before this one sends no tags and this
// one takes entries without; `fairpactctl migrate` tags their leaves (TagLeaves).
// So run it again when no process of that release is left.
//
// # What is in memory
//
// A process that is the only one to append keeps the committed head, and makes
// one statement for a batch, one for its head and one for the proofs that are
// asked for at the same moment. Memory saves reads; it decides nothing:
//
//   - The sequencer sends the batch with the head that it left. The statement
//     appends it only where the table holds that very head and none of the entries
//     and tags.
//     Otherwise, after an error and at the start, the batch takes the locked way:
//     lock the head, look the entries up, append what is new by the same statement.
//     So does every batch while another replica appends.
//   - The publisher proves from tiles in memory that the new tree extends the one
//     of its last round, and the head is stored only where the last leaf is. The
//     first round, a round after another replica appended or after a failure, and
//     one with nothing new read both heads and the tiles from the tables.
//   - A proof or the newest head reads the head and the leaf's row at each call.
//     The path is computed from tiles in memory and verified against the head. If it
//     does not lead there, the tables are read and decide.
//
// Only leaf rows and the roots of complete subtrees at levels 8, 16, … are
// stored, and never changed. A tile that is read is verified once, against the
// signed head or the node above it. So a tampered leaf row is found whenever that
// leaf is asked for; any other tampered row when a process reads its tile, which
// after a start it does before the first proof from it.
//
// # Faults
//
// What each outside step leaves behind when it fails, and how it is repaired.
//
//	step                    fails and did not persist           fails but persisted
//	----------------------  ----------------------------------  ----------------------------------
//	append in one           nothing happened; memory is         the locked way finds every entry
//	statement               forgotten, and the same batch       in leaves and answers its index
//	                        takes the locked way
//	— moves nothing         another head, a known entry or a    (not possible)
//	                        taken tag was met; the locked way
//	— a tag is taken while  the primary key fails the           (not possible)
//	it runs                 statement; the locked way
//	— still waits for the   (not possible)                      the retry waits behind it and finds
//	lock after its caller                                       its entries, or is first, and it
//	gave up                                                     then moves nothing
//	locked:  lock, read     nothing happened; batch retried     (reads only)
//	locked:  append         the transaction is rolled back,     not possible before the commit
//	                        or by the server when the
//	                        connection is gone; batch retried
//	— a tag was taken since the same                            (not possible)
//	the look-up
//	locked:  commit         as above                            retried; every entry is found in
//	                                                            leaves and answered with its index
//	read tiles into memory  proofs and rounds read them when    (reads only)
//	                        they need them
//	move the fork guard     publisher retries with backoff,     the retry finds it there already;
//	                        and reads the guard again; nothing   a head that extends it, or is the
//	                        is signed meanwhile                 very same, may be signed
//	sign the head           publisher retries with backoff;     an unused signature; another one
//	                        appends are told at once, and their is made (ECDSA signs differently
//	                        leaves stay; nothing is lost        each time)
//	store the head          publisher retries; the signature    the retry finds it stored, checks
//	                        is dropped, it was shown to nobody  it and answers that one
//	— stores nothing        the size has a head, which stands;  (not possible)
//	                        or the database lost the last leaf:
//	                        the round reads it and refuses
//	answer the append       (no effect of its own)              the caller repeats: same index
//
// A process that dies between two steps leaves the same states: leaves without a
// head are published at the next start of any replica, or by the next append.
//
// A contradiction needs a person: a stored root that its compact range does not
// lead to, a committed head that does not extend the newest published one or
// what the fork guard holds, a head whose signature verifies under no trusted
// key. The log then answers ErrInconsistent, counts it (Log.ProofFailures), signs
// nothing, and waits.
package translog
