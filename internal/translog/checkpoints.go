package translog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/platform/batch"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

// Once a second, each replica signs a checkpoint (c2sp.org/tlog-checkpoint) of the newest published head
// with the log's Ed25519 key and the deployment key. Only the first stored checkpoint of a size counts.

// Checkpoints configures the checkpoints of a log and the witnesses that cosign them.
type Checkpoints struct {
	Origin     string
	Key        *signing.LogKey
	Retired    []checkpoint.Key   // former Ed25519 keys of the log
	Policy     *checkpoint.Policy // nil if there are no witnesses
	PolicyText []byte
}

const (
	checkpointEvery   = time.Second // the same interval is in sqlDueCheckpoint and sqlInsertCheckpoint
	checkpointTimeout = 10 * time.Second
)

type checkpoints struct {
	Checkpoints
	log        *Log
	own        checkpoint.Key
	deployment map[string]checkpoint.Key // the verifier key of each deployment key, by PublicKey
	known      []checkpoint.Key          // all keys that may have signed a stored note
	reads      *batch.Group[struct{}, *signedCheckpoint]
	bundles    *budget.Budget // of entry bundles that are read
	reading    *budget.Budget // of the other public reads with a statement of their own

	latest    atomic.Pointer[signedCheckpoint] // the newest checkpoint at the last read; nil until one is read
	certified atomic.Int64                     // the largest size whose quorum was verified, or 0; never falls
}

func newCheckpoints(l *Log, config Checkpoints) (*checkpoints, error) {
	c := &checkpoints{Checkpoints: config, log: l, deployment: map[string]checkpoint.Key{}, bundles: budget.New(budget.Options{Size: maxBundles}), reading: budget.New(budget.Options{Size: maxReading})}
	c.reads = newGroup(maxReads, maxAsked, c.readNewest)
	if err := checkpoint.CheckOrigin(c.Origin); err != nil {
		return nil, err
	}
	var err error
	if c.own, err = checkpoint.Ed25519Key(c.Origin, c.Key.Public()); err != nil {
		return nil, err
	}
	c.known = append(c.known, c.own)
	for _, retired := range c.Retired {
		if retired.Type() != checkpoint.TypeEd25519 || retired.Name() != c.Origin {
			return nil, fmt.Errorf("the retired log key %s is not an Ed25519 key with the origin %s as its name: correct FAIRPACT_LOG_RETIRED_KEYS", retired, c.Origin)
		}
		if retired.ID() != c.own.ID() {
			c.known = append(c.known, retired)
		}
	}
	for _, key := range l.checks.keys.Keys() {
		public, err := key.ES256()
		if err != nil {
			continue // an old ed25519 deployment key, which never signed a checkpoint
		}
		of, err := checkpoint.ECDSAKey(c.Origin, public)
		if err != nil {
			return nil, err
		}
		c.deployment[key.Label] = of
		c.known = append(c.known, of)
	}
	l.checks.logger.Info("log key", "vkey", c.own.String(), "custody", c.Key.Custody())
	if c.Policy == nil {
		return c, nil
	}
	if slices.ContainsFunc(c.Policy.Logs, func(listed checkpoint.Key) bool { return listed.String() == c.own.String() }) {
		return c, nil
	}
	return nil, fmt.Errorf("the witness policy does not list this log: add the line \"log %s\"", c.own)
}

type signedCheckpoint struct {
	checkpoint.Checkpoint
	note  string   // the note with the log's signatures
	lines []string // the witnesses' signature lines
	// witnessed is the largest size that met the quorum, according to the database; -1: none did.
	witnessed int64
}

func (s *signedCheckpoint) text() []byte { return []byte(s.note + strings.Join(s.lines, "")) }

func (c *checkpoints) run(ctx context.Context) {
	var asking sync.WaitGroup
	asking.Go(func() { c.askWitnesses(ctx) })
	defer asking.Wait()
	demands := c.Policy != nil && c.Policy.Demands()
	var waiting quorumWait
	defer quorumBehind.Set(0)
	for first := true; ; first = false {
		if err := c.signDue(ctx); err != nil && ctx.Err() == nil {
			checkpointFailures.Inc()
			c.log.checks.logger.WarnContext(ctx, "publishing a checkpoint failed, retrying", "err", c.log.checks.recordFailure(ctx, err))
		}
		if (first || demands) && ctx.Err() == nil { // at start, reads the checkpoint that an earlier process stored
			if _, err := c.newest(ctx); err != nil && !errors.Is(err, errNoCheckpoint) && ctx.Err() == nil {
				c.log.checks.logger.WarnContext(ctx, "reading the newest checkpoint failed, retrying", "err", err)
			}
		}
		if demands { // even after an error, because the checkpoint still waits for its witnesses
			quorumBehind.Set(waiting.follow(c.latestSize(), c.certified.Load(), time.Now()).Seconds())
		}
		if !pause(ctx, checkpointEvery) {
			return
		}
	}
}

func (c *checkpoints) signDue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	rows, _ := c.log.store.pool.Query(ctx, sqlDueCheckpoint)
	head, err := pgx.CollectExactlyOneRow(rows, scanHead)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fromDatabase(err)
	}
	if err := c.log.checks.head(head); err != nil {
		return err
	}
	signed := checkpoint.Checkpoint{Origin: c.Origin, Size: head.TreeSize, Root: [32]byte(treeOf(head).hash)}
	note, err := c.sign(ctx, signed)
	if err != nil {
		return fmt.Errorf("the checkpoint of size %d is not signed: %w", signed.Size, err)
	}
	digest := signed.Digest()
	if _, err := c.log.store.pool.Exec(ctx, sqlInsertCheckpoint, signed.Size, digest[:], note); err != nil {
		return fromDatabase(err)
	}
	_, err = c.newest(ctx)
	return err
}

func (c *checkpoints) sign(ctx context.Context, of checkpoint.Checkpoint) (string, error) {
	text := of.Text()
	first, err := c.Key.Sign(ctx, []byte(text))
	if err != nil {
		return "", fmt.Errorf("cannot sign with the log key: %w", err)
	}
	digest := of.Digest()
	second, err := c.log.publisher.signer.Sign(ctx, digest)
	if err != nil {
		return "", fmt.Errorf("cannot sign with the deployment key: %w", err)
	}
	key, err := c.log.checks.keys.SignedBy(digest, second)
	if err != nil {
		return "", fmt.Errorf("cannot verify the deployment key's signature: %w", err)
	}
	by, ok := c.deployment[key.Label]
	if !ok || key.Closed() {
		return "", fmt.Errorf("the deployment key %s is closed or has no verifier key, so it must not sign checkpoints", key.Label)
	}
	der, err := keys.DER(second)
	if err != nil {
		return "", err
	}
	return text + "\n" + c.own.Line(first) + by.Line(der), nil
}

func (c *checkpoints) newest(ctx context.Context) (*signedCheckpoint, error) {
	newest, err := c.reads.Do(ctx, struct{}{})
	return newest, c.log.checks.recordFailure(ctx, err)
}

func (c *checkpoints) readNewest(ctx context.Context, calls []struct{}) ([]*signedCheckpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, readsBudget)
	defer cancel()
	newest, err := c.read(ctx, sqlNewestCheckpoint)
	if err != nil {
		return nil, err
	}
	c.latest.Store(newest)
	checkpointSize.Set(float64(newest.Size))
	if err := c.certify(ctx, newest); err != nil {
		return nil, err
	}
	return slices.Repeat([]*signedCheckpoint{newest}, len(calls)), nil
}

func (c *checkpoints) latestSize() int64 {
	if latest := c.latest.Load(); latest != nil {
		return latest.Size
	}
	return -1
}

func (c *checkpoints) at(ctx context.Context, size int64) (*signedCheckpoint, error) {
	return c.read(ctx, sqlCheckpointAt, size)
}

var errNoCheckpoint = errors.New("no checkpoint")

func (c *checkpoints) read(ctx context.Context, query string, args ...any) (*signedCheckpoint, error) {
	var s signedCheckpoint
	err := c.log.store.pool.QueryRow(ctx, query, args...).Scan(&s.Size, &s.note, &s.lines, &s.witnessed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNoCheckpoint
	}
	if err != nil {
		return nil, fromDatabase(err)
	}
	// Strict verifiers refuse the whole note if one line is not canonical.
	s.lines = slices.DeleteFunc(s.lines, func(line string) bool { return !checkpoint.IsSignatureLine(line) })
	size := s.Size
	if last := c.latest.Load(); last != nil && last.note == s.note {
		s.Checkpoint = last.Checkpoint
	} else {
		s.Checkpoint, _, err = checkpoint.Open([]byte(s.note), c.known, nil)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the stored checkpoint of size %d cannot be verified: %w (if the log's key was replaced, list the old one in FAIRPACT_LOG_RETIRED_KEYS)", ErrInconsistent, size, err)
	case s.Size != size:
		return nil, fmt.Errorf("%w: the stored checkpoint of size %d has a note of size %d", ErrInconsistent, size, s.Size)
	}
	return &s, nil
}

// certify raises c.certified to newest.witnessed if its stored cosignatures meet the current policy. Without
// a policy that demands any, the size counts that met the policy of its time: what was CERTIFIED stays so.
func (c *checkpoints) certify(ctx context.Context, newest *signedCheckpoint) error {
	if newest.witnessed <= c.certified.Load() {
		return nil
	}
	of := newest
	if newest.witnessed != newest.Size {
		var err error
		if of, err = c.at(ctx, newest.witnessed); err != nil {
			return err
		}
	}
	if c.Policy == nil || !c.Policy.Demands() || c.met(of) {
		raise(&c.certified, of.Size)
		certifiedSize.Set(float64(of.Size))
	}
	return nil
}

// met returns false for the policy "quorum none".
func (c *checkpoints) met(of *signedCheckpoint) bool {
	cosigned, text := map[string]bool{}, of.Text()
	for _, w := range c.Policy.Witnesses {
		for _, line := range of.lines {
			if mine, err := w.Key.Signed(text, line); mine && err == nil {
				cosigned[w.Name] = true
			}
		}
	}
	return c.Policy.Demands() && c.Policy.Met(cosigned)
}

// quorumWait measures how long a checkpoint has waited for its quorum, on every replica, because
// the one that asks the witnesses may be dead or cut off.
type quorumWait struct {
	since     time.Time
	certified int64 // at the previous call of follow
}

// follow returns how long checkpoints have waited. If certified grows, the wait starts again.
func (q *quorumWait) follow(newest, certified int64, now time.Time) time.Duration {
	if newest <= certified || q.since.IsZero() || certified > q.certified {
		q.since = now
	}
	q.certified = certified
	return now.Sub(q.since)
}

func raise(number *atomic.Int64, to int64) {
	for {
		at := number.Load()
		if to <= at || number.CompareAndSwap(at, to) {
			return
		}
	}
}
