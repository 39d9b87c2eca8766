package replica

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

// refusal says who disagrees and which step of a rotation was left out.
func (g *Gate) refusal(against []opponent) error {
	other := against[0]
	more := ""
	if len(against) > 1 {
		more = fmt.Sprintf(" (and %d more disagree)", len(against)-1)
	}
	return fmt.Errorf("this process signs nothing, as its key set does not fit that of a process that runs: %s %s, seen %.0f s ago, signs with %s%s; this one signs with %s. %s. The order of a rotation is in the runbook of the signing keys, keys.md",
		other.Kind, other.Name, other.Age, other.SignsWith, more, g.me.signsWith, g.remedy(other))
}

// remedy says what is wrong between the two, and what to do next. The other's
// row says which keys it accepts and not why; the states of the keys are those
// of this process's own set.
func (g *Gate) remedy(other opponent) string {
	const (
		early  = "Start this process with the key that the others sign with, roll a key set with its new key as a next one out to all of them (fairpactctl keys add-next; without a key set file, add it to FAIRPACT_LEGACY_KEYS), and only then sign with it (fairpactctl keys promote)"
		behind = "Give this process the key set and the signing key that the others have (GET /v1/pubkeys): its own are older"
	)
	theirs, known := g.state(other.SignsWith)
	switch {
	case !other.AcceptsMine && known && theirs.State == signing.StateNext:
		return "The other no longer accepts the key of this one, and signs with what is only the next key here. " + behind
	case !other.AcceptsMine && known:
		return "The other does not accept the key of this one: it was to sign before all had it. " + early
	case !other.AcceptsMine:
		return "Neither accepts the key of the other. If this process has the newer key set, a step was left out: " + lower(early) + ". If it has the older one: " + lower(behind)
	case known: // closed
		return "The key of the other is closed here: it was closed while a process still signed with it. Start this process with the key set of before (that key retired, without a tree_size), and close the key when nothing signs with it any more (fairpactctl keys close)"
	default:
		return "The key of the other is not in the key set of this one. " + behind + ", or leave a key out, which is never to be done"
	}
}

func lower(sentence string) string { return string(sentence[0]|0x20) + sentence[1:] }

func (g *Gate) state(label string) (signing.Key, bool) {
	for _, key := range g.keys.Keys() {
		if key.PublicKey == label {
			return key, true
		}
	}
	return signing.Key{}, false
}

// report is what the log was told of disagreements and outages.
type report struct {
	since, last time.Time // of the disagreement; zero: there is none
	silent      bool
}

// tell logs what has changed, and a disagreement again from time to time. One
// that a dead process left is over after the lifetime of its row, and a warning;
// one that lasts is an error.
func (r *report) tell(g *Gate, against int, err error) {
	switch {
	case err != nil:
		if !r.silent {
			g.logger.Warn("this process could not announce itself to the other replicas; it is tried again", "error", err.Error())
		}
		r.silent = true
		return
	case against == 0:
		if r.silent || !r.since.IsZero() {
			g.logger.Info("this process is announced and agrees with all that run")
		}
		*r = report{}
		return
	}
	r.silent = false
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	lasts := now.Sub(r.since) > g.times.lifetime
	escalated := lasts && r.last.Sub(r.since) <= g.times.lifetime
	if r.last.IsZero() || escalated || now.Sub(r.last) >= g.times.remind {
		level := slog.LevelWarn
		if lasts {
			level = slog.LevelError
		}
		g.mu.Lock()
		message := g.refused
		g.mu.Unlock()
		g.logger.Log(g.closed, level, "the replicas disagree", "members", against, "error", message.Error())
		r.last = now
	}
}
