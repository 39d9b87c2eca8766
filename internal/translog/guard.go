package translog

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairpact/fairpact/internal/forkguard"
)

// Guard is the record of the biggest head ever signed, kept apart from the
// database and shared by all publishers. Every Store is a compare-and-swap;
// after an error other than forkguard.ErrMoved the outcome may be either.
type Guard interface {
	Load(ctx context.Context) (forkguard.Record, error)
	Store(ctx context.Context, loaded, next forkguard.Record) error
}

// Option changes how a replica is opened.
type Option func(*Log)

// WithGuard lets a head be signed only after the guard has moved to it. adopt is
// nil, or the size of the newest published head, by an operator who knows that
// the database is whole: at this size alone an empty guard takes its word.
func WithGuard(guard Guard, adopt *int64) Option {
	return func(l *Log) { l.publisher.guard, l.publisher.adopt = guard, adopt }
}

var guardRefusals = promauto.NewCounter(prometheus.CounterOpts{
	Name: "fairpact_log_guard_refusals_total",
	Help: "Heads that the fork guard refused: the database is older than, or differs from, what was signed.",
})

// guardAttempts bounds how often one round loses the race for the guard.
const guardAttempts = 5

// errBehind: another publisher of the same database was faster, or somebody else
// wrote the guard; the database has to be read again.
var errBehind = fmt.Errorf("%w: the race for the fork guard was lost", ErrUnavailable)

// pass moves the guard to r, which may be signed then, or refuses.
//
// The guard holds (S, R), the biggest head ever signed or about to be. A size
// above S must extend it, which tree proves; S itself must be R
// (signing again after a crash is harmless); below S, the database has lost what
// was signed.
func (p *publisher) pass(ctx context.Context, r root, tree *tree) error {
	if p.guard == nil {
		return nil
	}
	for range guardAttempts {
		loaded, err := p.guard.Load(ctx)
		if err != nil {
			return fmt.Errorf("%w: no head is signed without the fork guard: %w", ErrUnavailable, err)
		}
		there, err := p.compare(ctx, loaded, r, tree)
		if err != nil || there {
			return err
		}
		err = p.guard.Store(ctx, loaded, forkguard.Record{Size: r.size, Root: r.head("").RootHash})
		if err == nil {
			return nil
		}
		if !errors.Is(err, forkguard.ErrMoved) {
			return fmt.Errorf("%w: the fork guard was not advanced: %w", ErrUnavailable, err)
		}
	}
	return fmt.Errorf("%w: its record was written by somebody else before each of %d attempts to move it: only log-servers of this log may write it (runbooks/fork-guard.md)", errBehind, guardAttempts)
}

// compare reports whether the guard is at r already. An error says that it may
// not be moved there.
func (p *publisher) compare(ctx context.Context, loaded forkguard.Record, r root, tree *tree) (there bool, err error) {
	if loaded.Empty() {
		return false, p.mayAdopt(ctx, r)
	}
	hash, err := parseHash(loaded.Root)
	if err != nil {
		return false, fmt.Errorf("%w: the fork guard's root: %w", ErrUnavailable, err)
	}
	held := root{size: loaded.Size, hash: hash[:]}
	switch {
	case r.size == held.size && r.head("").RootHash == loaded.Root:
		return true, nil
	case r.size == held.size:
		return false, refuse("two roots of size %d: %s was signed, %s is in the database", r.size, loaded.Root, r.head("").RootHash)
	case r.size < held.size:
		// Every publisher commits before it moves the guard, so the database, read
		// after the guard, is at least as far, unless it lost something.
		committed, _, err := p.store.heads(ctx)
		if err != nil {
			return false, err
		}
		if committed.size < held.size {
			return false, refuse("the database is older than what was signed: it has %d leaves, and a head of size %d was signed", committed.size, held.size)
		}
		return false, fmt.Errorf("%w: another replica has signed a bigger head meanwhile", errBehind)
	case held.size == 0:
		if loaded.Root != emptyRoot.head("").RootHash {
			return false, refuse("its record of size 0 is not the empty tree")
		}
		return false, nil // extends has led the leaves to the root
	}
	if _, err := tree.consistency(ctx, held, r); err != nil {
		if errors.Is(err, ErrInconsistent) {
			return false, refuse("the database's tree of size %d does not extend the signed one of size %d: %v", r.size, held.size, err)
		}
		return false, err
	}
	return false, nil
}

// mayAdopt: an empty guard takes a new log as it is. Where heads were published
// the record has been lost, or the guard is new to the log, and a person decides.
func (p *publisher) mayAdopt(ctx context.Context, r root) error {
	_, newest, err := p.store.heads(ctx)
	if err != nil {
		return err
	}
	if newest == nil || newest.TreeSize == 0 {
		return nil
	}
	if p.adopt == nil {
		return refuse("it has no record, and a head of size %d is published: make sure that the database is the newest one, then start with FAIRPACT_FORK_GUARD_INIT=%[1]d", newest.TreeSize)
	}
	if *p.adopt != newest.TreeSize {
		return refuse("it has no record, a head of size %d is published, and FAIRPACT_FORK_GUARD_INIT=%d is the word for another size: the record was lost since; make sure that the database is the newest one, then start with FAIRPACT_FORK_GUARD_INIT=%[1]d", newest.TreeSize, *p.adopt)
	}
	p.checks.logger.Warn("the fork guard had no record and takes the database's word, as FAIRPACT_FORK_GUARD_INIT says", "size", r.size, "published", newest.TreeSize)
	return nil
}

func refuse(format string, args ...any) error {
	guardRefusals.Inc()
	return fmt.Errorf("%w: %w: %s (runbooks/fork-guard.md)", ErrInconsistent, errGuarded, fmt.Sprintf(format, args...))
}

// errGuarded marks a refusal of the guard's: it contradicts nothing that was
// published, which is the very thing that it sees to.
var errGuarded = errors.New("the fork guard refuses to have a head signed")
