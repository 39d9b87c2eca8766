// Package replica keeps processes whose key sets do not fit from signing beside
// each other. Every process that signs announces in one table which key it signs
// with and which keys it accepts. Two processes agree where each accepts the key
// of the other. A process passes the gate, and holds a lease to sign, while it
// agrees with every other process that runs; so no certificate and no tree head
// is signed by a key that some replica would reject, in whatever order the steps
// of a rotation are rolled out.
//
// A row is live for 15 seconds (lifetime) after it was last written, by the
// database's clock, and is written anew every 4. All writes stand in one line
// behind an advisory lock of their transaction: a process writes its row only
// where no live row disagrees. What disagrees is waited for, until it leaves or
// its row is dead; rows that agree, dead or live, cost nothing. One that was kept
// out from its start then looks on for 8 seconds (two beats) before it writes: those
// that ran go first where they have only been away. The lease that a
// written row gives ends 12 seconds after the process began to write it, by the
// process's own clocks, which is before the row is dead for others. Nothing is
// signed without a lease, and nothing that was signed is given out without one.
//
// The rows are a safety catch and never a source of trust. Which keys a process
// trusts comes from its configuration alone: who can write to the database can
// keep processes from signing and from being ready, and can make nobody accept a
// key.
//
//	what happens                        what follows
//	kill -9, a lost machine             its row is dead 15 s after it was last written; who agrees with
//	                                    it starts at once, who does not waits that long and 8 s more
//	a stop                              the row is deleted once nothing more can be signed; who was kept
//	                                    out by it waits 8 s
//	a process is paused, or cut off     its lease ends before its row is dead: it signs nothing until it
//	from the database                   has passed the gate again, in place; where others went on with
//	                                    another key meanwhile it is refused, and not ready where its own
//	                                    set does not accept that key
//	the database is away                nothing can be signed anyway, certificates and heads lie there;
//	                                    all try twice a second to pass again, every five seconds where
//	                                    connections hang. All rows are dead by then, and a process that
//	                                    was kept out before waits until those that ran are back. One that
//	                                    starts just then was not kept out yet, and may write before them:
//	                                    they sign nothing, and are not ready where they do not accept its
//	                                    key, until it is stopped
//	the answer to a write is lost       the row may live longer than the process believes: harmless
//	two disagreeing ones start at once  the lock lets one write first; the other sees its row
//	the database's clock jumps ahead,   live rows look dead for one beat, 4 s: one that was kept out does
//	or a standby takes over that lags   not pass in it. One that starts just then may, as above, and for
//	                                    that beat both sign
//	it jumps back                       by more than 15 s: as if it had jumped ahead, for rows of the future
//	                                    are dead too. Dead rows may look live again, for 30 s at most
//	a process's wall clock jumps ahead  its lease ends early: signatures wait for the next beat
//	somebody forges or deletes rows     a forged row that disagrees stops signatures for 30 s, and with a
//	                                    key that is accepted nowhere makes all processes unready as long;
//	                                    one that is written on and on raises an alert. With a row deleted
//	                                    its process is unseen until its next beat, as after a clock's jump
//	a pause of more than 3 s between    that one signature is stored late. It was made while all that ran
//	the last look at the lease and      accepted its key; only a rotation rolled out in the wrong order in
//	the write to the database           just that pause makes it one that others reject
//
// Processes are seen by each other where they share a database. Those of a
// version that has no gate announce nothing and are not seen.
package replica
