package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/deal"
)

// Act is one party's commitment or reveal.
type Act struct {
	DealID     string
	Party      int
	Commitment [32]byte // the commitment to store, or the commitment that a reveal opens
	AttestedBy *string  // commitment only: the party's attested_by in the certificate; nil if no seat key signed the commitment
	Sealed     []byte   // reveal only: the encrypted input and salt
	Secret     []byte   // fingerprint of the server secret that encrypted Sealed or Seal
	Seal       *NewSeal // commitment only: the seal that came with it; nil: none
	BySeal     bool     // reveal only: the input comes from the party's seal, so the reveal counts also after the deadline
	// First is a hint: as far as the caller knows, all parties before First have acted. The search
	// for a missing party starts there, so that n parties cost about n lookups, not n².
	First  int
	Replay *Replay
}

// NewSeal is a timelock seal to store.
type NewSeal struct {
	Hash      [32]byte // SHA-256 of the seal's text
	Sealed    []byte   // the encrypted text
	RoundTime int64    // when the round of the seal is due, in unix seconds
}

// ActResult is the outcome of storing an Act.
type ActResult struct {
	Done bool // the act was stored; false if the party has acted already or the deal does not accept this act
	All  bool // every party has acted; always false if the deal does not accept this act
	// Missing is the index of the first party, from Act.First on, that has not acted. It is also 0
	// if no such party exists, or if the deal does not accept this act.
	Missing int
	// Snapshot has the inputs (WithInputs). It is set if every party has revealed and the deal has no beacon
	// round. It may be nil if the deal has more than SmallRead bytes of inputs, or if one statement
	// would return more than maxGroupSize bytes of inputs. If one statement stores several reveals of
	// a deal, only one of the callers gets Snapshot.
	Snapshot *Snapshot

	At       int64  // commitment only: when it was stored, in unix seconds; 0 if it was not
	SealTime *int64 // commitment only: when the round of the deal's seals is due, if All is true and the deal has seals

	locked, secretReplaced bool
}

// Commit stores a commitment with its seal. The last one moves the deal to REVEALING in the same
// transaction. It returns ErrSecretReplaced if the secret of the seal is not in force.
func (s *Store) Commit(ctx context.Context, a Act) (ActResult, error) {
	return inForce(s.commits.do(ctx, a))
}

// Reveal stores a reveal if a.Commitment is the party's stored commitment. It returns
// ErrSecretReplaced if a.Secret or a.Replay.Secret is not in force.
func (s *Store) Reveal(ctx context.Context, a Act) (ActResult, error) {
	return inForce(s.reveals.do(ctx, a))
}

func inForce(done ActResult, err error) (ActResult, error) {
	if err == nil && done.secretReplaced {
		err = ErrSecretReplaced
	}
	return done, err
}

// Commitment returns a party's commitment, or ErrNotFound.
func (s *Store) Commitment(ctx context.Context, dealID string, party int) (commitment [32]byte, err error) {
	var raw []byte
	err = s.pool.QueryRow(ctx, sql("commitment"), dealID, party).Scan(&raw)
	if err == nil && len(raw) != len(commitment) {
		return commitment, fmt.Errorf("store: the commitment of party %d of deal %s has %d bytes, want %d", party, dealID, len(raw), len(commitment))
	}
	copy(commitment[:], raw)
	return commitment, translate(err)
}

func (s *Store) newActs(statement string, columns func([]Act) []any, scan func(*ActResult, pgx.CollectableRow) error) *coalescer[Act, ActResult] {
	c := &coalescer[Act, ActResult]{
		row:  func(a Act) string { return a.DealID + " " + strconv.Itoa(a.Party) },
		deal: func(a Act) string { return a.DealID },
		size: func(a Act) int {
			size := len(a.Sealed) + 256
			if a.Seal != nil {
				size += len(a.Seal.Sealed)
			}
			return size
		},
		skipped: func(a ActResult) bool { return !a.locked },
	}
	c.run = func(ctx context.Context, acts []Act, wait bool) ([]ActResult, error) {
		done := make([]ActResult, 0, len(acts))
		err := s.locked(ctx, dealsOf(acts), wait, statement, columns(acts), func(row pgx.CollectableRow) error {
			var a ActResult
			err := scan(&a, row)
			done = append(done, a)
			return err
		})
		return done, err
	}
	return c.start(s.slots)
}

// scan reads the columns that commit.sql and reveal.sql share; `more` receives the others.
func (a *ActResult) scan(row pgx.CollectableRow, more ...any) error {
	var missing *int
	var locked *bool
	err := row.Scan(append([]any{&locked, &a.Done, &missing}, more...)...)
	a.secretReplaced, a.locked = locked == nil, locked == nil || *locked
	if a.All = missing == nil; !a.All {
		a.Missing = *missing
	}
	return err
}

func (a *ActResult) scanCommit(row pgx.CollectableRow) error {
	var at *int64
	err := a.scan(row, &at, &a.SealTime)
	if at != nil {
		a.At = *at
	}
	return err
}

func (a *ActResult) scanReveal(row pgx.CollectableRow) error {
	var now, last, closed *int64
	var opened *bool
	var commitments, sealed [][]byte
	var attested []*string
	err := a.scan(row, &now, &last, &closed, &opened, &commitments, &attested, &sealed)
	if err != nil || now == nil {
		return err
	}
	n := len(sealed)
	a.Snapshot = &Snapshot{
		Snapshot:        deal.Snapshot{Phase: deal.Revealing, Commits: n, Reveals: n, LastReveal: *last},
		CommitsClosedAt: closed, Now: *now, NowMilli: 1000 * *now, Opened: *opened, Parts: make([]PartyStatus, n), Sealed: sealed, AttestedBy: attested,
	}
	for _, one := range sealed {
		a.Snapshot.InputBytes += len(one)
	}
	for i, raw := range commitments {
		a.Snapshot.Parts[i] = PartyStatus{Commitment: new(CommitmentText(raw)), Revealed: true}
	}
	return nil
}

func dealsOf(acts []Act) []string {
	deals := make([]string, len(acts))
	for i, a := range acts {
		deals[i] = a.DealID
	}
	return deals
}

func commitColumns(acts []Act) []any {
	n := len(acts)
	parties, values, first, attested := make([]int, n), make([][]byte, n), make([]int, n), make([]*string, n)
	for i := range acts {
		parties[i], values[i], first[i], attested[i] = acts[i].Party, acts[i].Commitment[:], acts[i].First, acts[i].AttestedBy
	}
	seals, hashes, rounds, secrets := make([][]byte, n), make([][]byte, n), make([]*int64, n), make([][]byte, n)
	for i, a := range acts {
		if a.Seal != nil {
			seals[i], hashes[i], rounds[i], secrets[i] = a.Seal.Sealed, a.Seal.Hash[:], &a.Seal.RoundTime, a.Secret
		}
	}
	return append(append([]any{dealsOf(acts), parties, values, first}, replayColumns(acts)...), attested, seals, hashes, rounds, secrets)
}

func revealColumns(acts []Act) []any {
	n := len(acts)
	parties, sealed, commitments, first := make([]int, n), make([][]byte, n), make([][]byte, n), make([]int, n)
	secrets, bySeal := make([][]byte, 0, 2*n), make([]bool, n)
	for i := range acts {
		parties[i], sealed[i], commitments[i], first[i] = acts[i].Party, acts[i].Sealed, acts[i].Commitment[:], acts[i].First
		bySeal[i] = acts[i].BySeal
		secrets = append(secrets, acts[i].Secret, acts[i].Replay.secret())
	}
	return append(append([]any{dealsOf(acts), parties, sealed, commitments, first}, replayColumns(acts)...), maxGroupSize, secrets, bySeal, SmallRead)
}

func replayColumns(acts []Act) []any {
	n := len(acts)
	scopes, bodies, lifetimes := make([][]byte, n), make([][]byte, n), make([]int64, n)
	for i := range acts {
		scopes[i], bodies[i], _, lifetimes[i] = acts[i].Replay.columns()
	}
	return []any{scopes, bodies, lifetimes}
}

// locked locks the deals and then runs a statement, in one implicit transaction and one round trip.
// If another transaction has locked a deal, `wait` says whether to wait or to skip the deal.
func (s *Store) locked(ctx context.Context, deals []string, wait bool, statement string, args []any, scan func(pgx.CollectableRow) error) error {
	lock := sql("lock")
	if wait {
		lock = sql("lock_wait")
	}
	batch := &pgx.Batch{}
	batch.Queue(lock, deals)
	batch.Queue(statement, args...).Query(each(scan))
	return s.pool.SendBatch(ctx, batch).Close()
}

// each returns a function that calls `scan` for each row of a query's result. The function turns
// a panic in `scan` into an error. Otherwise a panic would leave a pgx.Batch open, and its
// connection would never return to the pool.
func each(scan func(pgx.CollectableRow) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		defer recovered(&err)
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, scan(row) })
		return err
	}
}

// Disclose stores that a party shows its revealed input to the other parties of the deal.
func (s *Store) Disclose(ctx context.Context, dealID string, party int) error {
	_, err := s.pool.Exec(ctx, sql("disclose"), dealID, party)
	return translate(err)
}

// Undisclosed lists the parties that have revealed but do not show their inputs, in ascending order.
func (s *Store) Undisclosed(ctx context.Context, dealID string) ([]int, error) {
	return rows(ctx, s.pool, pgx.RowTo[int], sql("undisclosed"), dealID)
}
