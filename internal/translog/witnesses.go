package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// The replica that holds an advisory lock asks the witnesses (c2sp.org/tlog-witness). The lock
// only saves requests. No append, head or checkpoint waits for a witness.
//
// A quorum must cosign the same size, but witnesses answer at different speeds. So the
// replica asks all witnesses for one checkpoint, the target. When the target has its
// quorum, or after the duration `patience`, the newest checkpoint becomes the target.

const (
	witnessTimeout = 10 * time.Second
	patience       = 10 * time.Second
	lockTimeout    = 5 * time.Second // for each of lock and ping
	firstRetry     = 500 * time.Millisecond
	lastRetry      = time.Minute
)

// CheckWitnessURL returns an error if prefix cannot be a submission prefix (c2sp.org/tlog-witness).
func CheckWitnessURL(prefix string) error {
	u, err := url.Parse(prefix)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not the submission prefix of a witness: write https://HOST/PATH, without user, query or fragment", prefix)
	}
	return nil
}

// cosigning is the state of asking, while this replica holds the lock.
type cosigning struct {
	*checkpoints
	client *http.Client

	mu sync.Mutex
	// mu guards the fields below.
	target *signedCheckpoint // nil until there is a checkpoint with leaves
	since  time.Time
	moved  chan struct{} // closed when target changes
}

// witnessEndpoint is one URL, and the policy's witnesses that have it.
type witnessEndpoint struct {
	url       string
	witnesses []checkpoint.Witness
	size      int64     // the tree size that the witness last cosigned; 0: none or unknown, so a status 409 will name it
	done      int64     // the largest checkpoint size for which no further request is needed; -1: none
	conflict  int64     // size of the checkpoint that the witness last refused with status 409; 0: none
	owes      time.Time // since when a cosignature is due; zero: none is due
}

func (s *witnessEndpoint) name() string { return s.witnesses[0].Name }

func (c *checkpoints) askWitnesses(ctx context.Context) {
	if len(c.submissions()) == 0 {
		return
	}
	for pause(ctx, checkpointEvery) {
		if err := c.askLocked(ctx); err != nil && ctx.Err() == nil {
			c.log.checks.logger.WarnContext(ctx, "asking the witnesses failed, retrying", "err", err)
		}
	}
}

// submissions groups the policy's witnesses by URL. A witness without a URL is not asked.
func (c *checkpoints) submissions() (all []*witnessEndpoint) {
	if c.Policy == nil {
		return nil
	}
	by := map[string]*witnessEndpoint{}
	for _, w := range c.Policy.Witnesses {
		if w.URL == "" {
			continue
		}
		if by[w.URL] == nil {
			by[w.URL] = &witnessEndpoint{url: strings.TrimRight(w.URL, "/"), done: -1}
			all = append(all, by[w.URL])
		}
		by[w.URL].witnesses = append(by[w.URL].witnesses, w)
	}
	return all
}

// lock takes the lock on a connection outside the pool. It returns nil if another replica has it.
func (c *checkpoints) lock(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	pooled, err := c.log.store.pool.Acquire(ctx)
	if err != nil {
		return nil, fromDatabase(err)
	}
	var mine bool
	if err := pooled.QueryRow(ctx, sqlLockWitnesses).Scan(&mine); err != nil || !mine {
		pooled.Release()
		return nil, fromDatabase(err)
	}
	conn := pooled.Hijack()
	// If this node dies, Postgres (from 14 on) ends the idle session, which releases the lock.
	_, _ = conn.Exec(ctx, "SET idle_session_timeout = '15s'")
	// This session outlives a change of the key set, which its application_name would not show.
	if _, err := conn.Exec(ctx, "SET application_name = 'fairpact witnesses'"); err != nil {
		_ = conn.Close(ctx)
		return nil, fromDatabase(err)
	}
	return conn, nil
}

// askLocked asks the witnesses until ctx ends or the lock's connection fails.
func (c *checkpoints) askLocked(ctx context.Context) error {
	conn, err := c.lock(ctx)
	if err != nil || conn == nil {
		return err
	}
	defer func() { // closing the connection releases the lock
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	ctx, cancel := context.WithCancel(ctx)
	a := &cosigning{checkpoints: c, moved: make(chan struct{}), client: &http.Client{
		Timeout:       witnessTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	for _, endpoint := range c.submissions() {
		loops.Go(func() { a.serve(ctx, endpoint) })
	}
	for {
		newest, err := c.newest(ctx)
		if err == nil {
			a.aim(newest, time.Now())
		}
		if !pause(ctx, checkpointEvery) {
			return nil
		}
		if err := ping(ctx, conn); err != nil {
			return fromDatabase(err)
		}
	}
}

// ping resets the idle timeout of the session that holds the lock.
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

func (a *cosigning) aim(newest *signedCheckpoint, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if newest.Size == 0 || a.target != nil && newest.Size <= a.target.Size {
		return
	}
	if a.target != nil && a.target.Size > a.certified.Load() && now.Sub(a.since) < patience {
		return
	}
	a.target, a.since = newest, now
	close(a.moved)
	a.moved = make(chan struct{})
}

func (a *cosigning) serve(ctx context.Context, endpoint *witnessEndpoint) {
	behind := witnessBehind.WithLabelValues(endpoint.name())
	defer behind.Set(0)
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = firstRetry, lastRetry
	for ctx.Err() == nil {
		a.mu.Lock()
		target, moved := a.target, a.moved
		a.mu.Unlock()
		if target == nil || target.Size <= endpoint.done {
			endpoint.owes = time.Time{}
			behind.Set(0)
			select {
			case <-moved:
			case <-ctx.Done():
			}
			continue
		}
		if endpoint.owes.IsZero() {
			endpoint.owes = time.Now()
		}
		outcome, err := a.ask(ctx, endpoint, target)
		if ctx.Err() != nil {
			return
		}
		witnessRequests.WithLabelValues(endpoint.name(), outcome).Inc()
		if outcome == outcomeCosigned {
			endpoint.owes = time.Now() // the next cosignature is due from now on
		}
		behind.Set(time.Since(endpoint.owes).Seconds())
		if err == nil {
			retry.Reset()
			continue
		}
		wait := retry.NextBackOff()
		a.log.checks.logger.WarnContext(ctx, "a witness did not cosign", "witness", endpoint.name(), "outcome", outcome, "tree_size", target.Size, "err", err, "retry_in", wait.String())
		pause(ctx, wait)
	}
}

const (
	outcomeCosigned    = "cosigned"
	outcomeConflict    = "conflict"
	outcomeRefused     = "refused"
	outcomeInvalid     = "invalid"
	outcomeUnreachable = "unreachable"
)

// ask submits the target once. An answer with status 409 names the size that the witness has
// cosigned, and the next request starts from that size. So the first 409 for a target is no error.
func (a *cosigning) ask(ctx context.Context, endpoint *witnessEndpoint, target *signedCheckpoint) (outcome string, err error) {
	if endpoint.size > target.Size { // the witness has cosigned a newer checkpoint and refuses older ones
		endpoint.done = target.Size
		return outcomeConflict, nil
	}
	request := checkpoint.AddCheckpoint{Old: endpoint.size, Note: []byte(target.note)}
	if request.Proof, err = a.proof(ctx, endpoint.size, target); err != nil {
		endpoint.size = 0 // the next request starts from size 0, so that the witness names the size that it has cosigned
		return outcomeRefused, err
	}
	status, answer, err := a.post(ctx, endpoint.url+checkpoint.AddCheckpointPath, request.Marshal())
	switch {
	case err != nil:
		return outcomeUnreachable, err
	case status == http.StatusConflict:
		size, err := checkpoint.ParseSize(strings.TrimSuffix(answer, "\n"))
		if err == nil && size == request.Old {
			err = fmt.Errorf("the witness says that it last cosigned size %d, but the request started from that size", size)
		}
		if err == nil && size > a.latestSize() {
			err = fmt.Errorf("the witness has cosigned size %d, but the newest checkpoint of this log is of size %d: the log forked, or its database is an older copy", size, a.latestSize())
		}
		if err != nil {
			return outcomeRefused, fmt.Errorf("the witness answered status 409: %w", err)
		}
		again := endpoint.conflict == target.Size
		endpoint.size, endpoint.conflict = size, target.Size
		if again {
			return outcomeConflict, fmt.Errorf("the witness named a size and got a proof from that size, but now names size %d", size)
		}
		return outcomeConflict, nil
	case status == http.StatusForbidden, status == http.StatusNotFound, status == http.StatusUnprocessableEntity, status == http.StatusBadRequest:
		return outcomeRefused, fmt.Errorf("the witness answered status %d: %.200q", status, answer)
	case status != http.StatusOK:
		return outcomeUnreachable, fmt.Errorf("the witness answered status %d", status)
	}
	keys := make([]checkpoint.Key, len(endpoint.witnesses))
	for i, w := range endpoint.witnesses {
		keys[i] = w.Key
	}
	lines, err := checkpoint.Cosignatures(target.Text(), answer, keys)
	if err == nil && len(lines) == 0 {
		err = errors.New("the answer has no cosignature by a key of the policy: compare the vkey in the policy with the one that the witness publishes")
	}
	if err != nil {
		return outcomeInvalid, err
	}
	endpoint.size = target.Size
	if err := a.keep(ctx, target, lines); err != nil {
		return outcomeCosigned, err
	}
	endpoint.done = target.Size
	return outcomeCosigned, nil
}

// proof returns the consistency proof from the size `old`, which is 0 or that of a published head.
func (a *cosigning) proof(ctx context.Context, old int64, target *signedCheckpoint) ([][32]byte, error) {
	if old == 0 || old == target.Size {
		return nil, nil
	}
	head, err := a.log.TreeHeadAt(ctx, old)
	if err != nil {
		return nil, fmt.Errorf("cannot read the head of size %d, which the witness has cosigned: %w", old, err)
	}
	path, err := a.log.tree.consistency(ctx, treeOf(head), root{target.Size, target.Root[:]})
	if err != nil {
		return nil, a.log.checks.recordFailure(ctx, err)
	}
	proof := make([][32]byte, len(path))
	for i, hash := range path {
		proof[i] = [32]byte(hash)
	}
	return proof, nil
}

func (a *cosigning) post(ctx context.Context, address string, body []byte) (status int, answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	response, err := a.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, checkpoint.MaxNote))
	return response.StatusCode, string(text), err
}

// keep stores verified cosignatures, and the size of the target once a quorum has cosigned it.
func (a *cosigning) keep(ctx context.Context, target *signedCheckpoint, lines map[string]string) error {
	var ids, texts []string
	for id, line := range lines {
		ids, texts = append(ids, id), append(texts, line)
	}
	if _, err := a.log.store.pool.Exec(ctx, sqlInsertCosignatures, target.Size, ids, texts); err != nil {
		return fromDatabase(err)
	}
	now, err := a.at(ctx, target.Size)
	if err != nil {
		return err
	}
	if !a.met(now) {
		return nil
	}
	if _, err := a.log.store.pool.Exec(ctx, sqlInsertWitnessed, target.Size); err != nil {
		return fromDatabase(err)
	}
	raise(&a.certified, target.Size)
	certifiedSize.Set(float64(a.certified.Load()))
	return nil
}
