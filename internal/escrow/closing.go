package escrow

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/translog"
)

// tryClose closes the commitments of a deal with seals within the call that brought the last one. After a
// failure, the worker closes them later.
func (s *Service) tryClose(ctx context.Context, d *Deal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timelimits.Issue)
	defer cancel()
	if err := s.closeCommits(ctx, d); err != nil {
		s.logger.WarnContext(ctx, "closing pending", "err", err)
	}
}

// closes reports whether the closing of the deal can still come before the round of its seals. A later one
// proves nothing. A deal that ended before, because its parties revealed by hand, still needs its closing.
func closes(now *store.Snapshot) bool { return now.CommitsClosedAt != nil && now.Now < now.SealTime }

// closeCommits puts the digest of all commitments and seals of a deal into the log (timelock.Closing).
//
//	interrupted after   the next process
//	the signature       signs again; nobody saw the first signature
//	the append          signs again and appends: the log finds the entry and returns the same leaf
//
// The entry depends only on the commitments and seals, which never change once all parties have committed.
// So several processes can do this at once.
func (s *Service) closeCommits(ctx context.Context, d *Deal) error {
	if err := hold(ctx, store.ClosingParty*len(d.Labels)); err != nil {
		return err
	}
	_, err := once(ctx, &s.issues, "closing "+d.DealID, func() (any, error) {
		stored, err := s.store.Closing(ctx, d.DealID, len(d.Labels))
		if err != nil || stored.Leaf != nil {
			return nil, err
		}
		if len(stored.Commitments) < len(d.Labels) { // after a restore, fairpactctl certificate adopt ended the deal without them
			return nil, s.store.SetClosing(ctx, d.DealID, store.NoClosing)
		}
		closing, err := s.closing(d, stored)
		if err != nil {
			return nil, err
		}
		entry := closing.Entry()
		signature, err := s.signer.Sign(ctx, entry)
		if err != nil {
			return nil, fmt.Errorf("signing: %w", err)
		}
		index, err := s.log.Append(ctx, entry, signature, timelock.ClosingTag(d.DealID))
		if errors.Is(err, translog.ErrTagTaken) { // a commitment or a seal was changed or restored, so a retry does not help
			s.logger.ErrorContext(ctx, "the log has another closing of this deal", "deal_id", d.DealID, "err", err)
			index, err = store.NoClosing, nil
		}
		if err != nil {
			return nil, fmt.Errorf("transparency log: %w", err)
		}
		crash.Point("escrow.closed")
		return nil, s.store.SetClosing(ctx, d.DealID, index)
	})
	return err
}

// closing returns what the log states of the deal's commitments.
func (s *Service) closing(d *Deal, stored store.Closing) (c timelock.Closing, err error) {
	round, err := s.sealRound(&d.Terms)
	if err != nil {
		return c, err
	}
	digest, err := d.digest()
	if err != nil {
		return c, err
	}
	if len(stored.Commitments) != len(d.Labels) {
		return c, fmt.Errorf("deal %s has %d of %d commitments", d.DealID, len(stored.Commitments), len(d.Labels))
	}
	c = timelock.Closing{DealID: d.DealID, Declaration: digest, Chain: s.beacon.Chain().Hash, Round: round}
	for i, commitment := range stored.Commitments {
		c.Commitments = append(c.Commitments, timelock.ClosedCommitment{Commitment: store.CommitmentText(commitment), SealHash: hex.EncodeToString(stored.Seals[i])})
	}
	return c, nil
}

// Closing proves in a bundle when the commitments of a deal with seals were fixed.
type Closing struct {
	Chain     drand.Chain
	Seals     []*string // hash of each party's seal, in party order; nil: the party did not seal
	TLogProof []byte    // leads to the first checkpoint over the leaf that met the quorum of witnesses
}

// addClosing sets b.Closing if the log has the closing and a checkpoint covers it.
func (s *Service) addClosing(ctx context.Context, d *Deal, b *Bundle) error {
	stored, err := s.store.Closing(ctx, d.DealID, len(d.Labels))
	if err != nil || stored.Leaf == nil || *stored.Leaf == store.NoClosing {
		return err
	}
	closing, err := s.closing(d, stored)
	if err != nil {
		return nil // the deployment uses another beacon chain since: what the closing states is not known here
	}
	proof, err := s.log.TLogProof(ctx, closing.Entry(), *stored.Leaf, true)
	if err != nil {
		return logTrouble(err)
	}
	if proof == nil {
		return nil
	}
	b.Closing = &Closing{Chain: s.beacon.Chain(), TLogProof: proof, Seals: make([]*string, len(closing.Commitments))}
	for i, one := range closing.Commitments {
		if one.SealHash != "" {
			b.Closing.Seals[i] = &one.SealHash
		}
	}
	return nil
}
