// Package translog is the transparency log: an RFC 6962 Merkle tree over 32-byte
// entries, kept in Postgres, whose heads are signed by the deployment key.
//
// An append goes two steps. The sequencer gives a batch of entries their
// indexes in one transaction that holds the row lock of log_head; any replica
// may do it. The publisher then signs the head that was committed, outside that
// lock, and stores the signature; what was appended is answered once a stored
// head covers it. An entry is in the log at most once, so an append may always
// be repeated, and every fault below is mended by repeating it.
//
// Only leaf rows and the roots of complete subtrees at levels 8, 16, … are
// stored, and never changed. Proofs are computed from them at each request and
// checked against the signed head before they are answered: no cache stands
// between a tampered row and its discovery.
//
// # Faults
//
// What each outside step leaves behind when it fails, and what mends it.
//
//	step                    fails and did not persist           fails but persisted
//	----------------------  ----------------------------------  ----------------------------------
//	lock, read the head     nothing happened; batch retried     (reads only)
//	insert leaves, nodes,   the transaction is rolled back,     not possible before the commit
//	move the head           or by the server when the
//	                        connection is gone; batch retried
//	commit                  as above                            retried; every entry is found in
//	                                                            leaves and answered with its index
//	move the fork guard     publisher retries with backoff,     the retry finds it there already;
//	                        and reads the guard anew; nothing   a head that extends it, or is the
//	                        is signed meanwhile                 very same, may be signed
//	sign the head           publisher retries with backoff;     an unused signature; another one
//	                        appends are told at once, and their is made (ECDSA signs differently
//	                        leaves stay; nothing is lost        each time)
//	store the head          publisher retries; the signature    the retry finds it stored, checks
//	                        is dropped, it was shown to nobody  it and answers that one
//	answer the append       (no effect of its own)              the caller repeats: same index
//
// A process that dies between two steps leaves the same states: leaves without a
// head are published at the next start of any replica, or by the next append.
//
// What is never mended by itself is a contradiction: a stored root that its
// compact range does not lead to, a committed head that does not extend the
// newest published one or what the fork guard holds, a head whose signature
// verifies under no trusted key.
// The log then answers ErrInconsistent, counts it (Log.ProofFailures), signs
// nothing, and waits for a person.
package translog
