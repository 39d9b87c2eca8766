package escrow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

const (
	dealPrefix = "d_"
	certPrefix = "c_"
)

// Deal is a deal as it was declared. A store.Snapshot holds its current state.
type Deal struct {
	*store.Declaration
	algorithm *algorithm.Algorithm
	params    map[string]any // algorithm_params without members that the algorithm does not know
	cautions  func() []string
	digest    func() (string, error) // returns the declaration's SHA-256 in hex (certificate.DeclarationDigest)

	// Every party with an index below firstUncommitted has committed, and every party below
	// firstUnrevealed has revealed. The store searches for a missing party from these indexes on.
	firstUncommitted, firstUnrevealed atomic.Int64

	roundAgain atomic.Int64 // unix seconds; until then nobody asks a relay for the late round of the seals
	drawAgain  atomic.Int64 // unix seconds; until then the worker does not ask for the late round of the draw

	disclosed atomic.Bool // all parties show their inputs to each other (Service.Disclose)

	viewTag atomic.Pointer[viewTag]
	certTag atomic.Pointer[string]

	// ContentsDeleted: the service has deleted params, title, message, inputs and seals of the deal (Options.KeepContents).
	// Params is then `{}`.
	ContentsDeleted bool
}

func (s *Service) dealOf(ctx context.Context, dealID string) (*Deal, error) {
	if !sealing.ValidID(dealPrefix, dealID) {
		return nil, store.ErrNotFound
	}
	telemetry.NoteDeal(ctx, dealID)
	if d, ok := s.deals.Get(dealID); ok && !s.outdated(ctx, d) {
		return d, nil
	}
	// Concurrent calls share one read of the declaration, because it can have 10,000 labels.
	loaded, err := once(ctx, &s.loads, dealID, func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		declaration, err := s.store.Declaration(ctx, dealID)
		if err != nil {
			return nil, err
		}
		d, err := NewDeal(declaration)
		if err == nil {
			s.keep(d)
		}
		return d, err
	})
	if err != nil {
		return nil, err
	}
	return loaded.(*Deal), nil
}

// outdated reports whether the contents of a cached deal have been deleted since, or it cannot say. It asks the database only once
// they may have been deleted, and an hour before, because the clock of this process may differ from that of the database.
func (s *Service) outdated(ctx context.Context, d *Deal) bool {
	if s.options.KeepContents == 0 || d.ContentsDeleted || time.Since(time.Unix(d.RevealDeadline, 0)) < s.options.KeepContents-time.Hour {
		return false
	}
	deleted, err := once(ctx, &s.loads, "deleted "+d.DealID, func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		return s.store.ContentsDeleted(ctx, d.DealID)
	})
	return err != nil || deleted.(bool)
}

// NewDeal returns the deal of a stored declaration.
func NewDeal(declaration *store.Declaration) (*Deal, error) {
	deleted := len(declaration.Params) == 0
	if deleted {
		declaration.Params, declaration.Title, declaration.Message = []byte(`{}`), "", "" // a release that knew no texts may have deleted the params
	}
	alg, ok := algorithm.Lookup(declaration.Algorithm)
	if !ok {
		return nil, fmt.Errorf("unknown algorithm: deal %s has %q, which this release does not know", declaration.DealID, declaration.Algorithm)
	}
	params, err := canon.ParseObject(declaration.Params)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the stored algorithm_params: deal %s: %w", declaration.DealID, err)
	}
	d := newDeal(declaration, alg, params)
	d.ContentsDeleted = deleted
	return d, nil
}

func newDeal(declaration *store.Declaration, alg *algorithm.Algorithm, params map[string]any) *Deal {
	d := &Deal{Declaration: declaration, algorithm: alg, params: alg.Known(params)}
	d.cautions = sync.OnceValue(func() []string {
		return slices.Concat(cautionsOf(&d.Terms, d.CreatedAt), chosen(&d.Terms), d.unusualParams())
	})
	d.digest = sync.OnceValues(func() (string, error) {
		text, err := d.Canonical()
		return certificate.DeclarationDigest(text), err
	})
	return d
}

// inputLimit returns the most bytes that an input of the deal may have in its canonical form.
func (d *Deal) inputLimit() int { return min(d.InputLimit, d.algorithm.MaxInput) }

func (d *Deal) checkInput(input map[string]any) error {
	return d.algorithm.CheckInput(d.Labels, d.params, input, d.inputLimit())
}

// bytes returns the memory of d.
func (d *Deal) bytes() int {
	bytes := 512 + d.TextBytes() + 3*len(d.Params) + 96*len(d.SeatKeys) // the params as text, and as parsed values of about twice the size
	for _, label := range d.Labels {
		bytes += len(label) + 16
	}
	return bytes
}

func (s *Service) keep(d *Deal) { s.deals.Add(d.DealID, d, d.bytes()) }

// rules returns the deal for the decisions of package deal.
func (s *Service) rules(d *Deal, now *store.Snapshot) deal.Deal {
	v := deal.Deal{ID: d.DealID, Terms: &d.Terms, Snapshot: now.Snapshot, EntropyWindow: int64(s.options.EntropyWindow / time.Second)}
	if s.mayBeCertified(now) && *now.LeafIndex < s.certified.Load() {
		v.Phase = deal.Certified
	}
	return v
}

// mayBeCertified reports whether the deal shows CERTIFIED once a quorum has cosigned its leaf.
func (s *Service) mayBeCertified(now *store.Snapshot) bool {
	return now.Phase == deal.Computed && now.LeafIndex != nil
}

// learnCertified asks the log for cosigned trees, unless the deal is CERTIFIED or cannot become so. What
// it learns it stores before a caller sees CERTIFIED: the log may forget its witnesses, and other replicas
// may not reach the log.
func (s *Service) learnCertified(ctx context.Context, now *store.Snapshot) {
	raise(&s.certified, int(now.CertifiedSize))
	if !s.mayBeCertified(now) || *now.LeafIndex < s.certified.Load() {
		return
	}
	s.log.LearnCertified(ctx)
	if s.log.Certified() <= s.certified.Load() || s.options.ReadOnly {
		return
	}
	_, _ = once(ctx, &s.loads, "certified", func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		size := s.log.Certified()
		err := s.store.KeepCertified(ctx, size)
		if err == nil {
			raise(&s.certified, int(size))
		} else {
			s.logger.WarnContext(ctx, "cannot store the certified tree size, retrying", "err", err)
		}
		return nil, nil
	})
}

// awaitsWitnesses reports whether the deal is COMPUTED and becomes CERTIFIED once the witnesses have
// cosigned its leaf. While the log has not said whether it has witnesses, it counts as having some.
func (s *Service) awaitsWitnesses(now *store.Snapshot) bool {
	return s.mayBeCertified(now) && *now.LeafIndex >= s.certified.Load() && s.log.Witnessed()
}

// partyStatus returns what a party has done. The snapshot MUST include the party.
func partyStatus(now *store.Snapshot, party int) deal.Party {
	p := now.Parts[party-now.First]
	return deal.Party{Index: party, Committed: p.Commitment != nil, Revealed: p.Revealed}
}

func raise(number *atomic.Int64, to int) {
	for {
		old := number.Load()
		if int64(to) <= old || number.CompareAndSwap(old, int64(to)) {
			return
		}
	}
}

// View is a deal as its parties see it (SPEC 2.4). It contains no inputs.
type View struct {
	*Deal
	*store.Snapshot            // Parts has one element for each party
	State           deal.State // Snapshot.Phase, or OPEN or CERTIFIED, which are not stored
	CertificateID   *string    // nil until the certificate is published
}

// viewTag is the ETag of the JSON of a view that differs from other views of the deal by these fields.
type viewTag struct {
	state                      deal.State
	commits, reveals           int
	closed, revealed, computed int64
	published                  string
	tag                        string
}

// Tag returns the ETag of the view, which it takes from `make` unless it knows it.
func (v View) Tag(make func() string) string {
	at := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	this := viewTag{v.State, v.Commits, v.Reveals, at(v.CommitsClosedAt), at(v.RevealsClosedAt), at(v.ComputedAt), "", ""}
	if v.CertificateID != nil {
		this.published = *v.CertificateID
	}
	if known := v.viewTag.Load(); known != nil {
		if this.tag = known.tag; this == *known {
			return known.tag
		}
	}
	if this.tag = make(); this.tag != "" {
		v.viewTag.Store(&this)
	}
	return this.tag
}

// View takes the steps that are due, and returns the deal.
func (s *Service) View(ctx context.Context, a Access) (View, error) {
	if err := hold(ctx, a.deal.ViewBytes()); err != nil {
		return View{}, err
	}
	now, err := s.viewed(ctx, a)
	if err != nil {
		return View{}, err
	}
	s.learnCertified(ctx, now)
	return View{a.deal, now, s.rules(a.deal, now).State(), publishedID(now)}, budget.From(ctx).Turn(ctx)
}

// manyParties is the number of parties from which a process remembers what the parties have done.
const manyParties = 128

// viewed returns a snapshot of all parties. A deal of many parties is read again only if a party has
// acted since: no commitment or reveal is ever removed, so equal counts mean equal parties.
func (s *Service) viewed(ctx context.Context, a Access) (*store.Snapshot, error) {
	before, known := s.seen.Get(a.deal.DealID)
	// While the deal awaits its witnesses, another replica may show it as CERTIFIED already, so the cache
	// does not do.
	if known && before.LeafIndex != nil && !s.awaitsWitnesses(before) {
		return before, nil
	}
	if known && len(a.deal.Labels) >= manyParties {
		now, err := s.advance(ctx, a, store.NoParties)
		if err != nil {
			return nil, err
		}
		if now.Commits == before.Commits && now.Reveals == before.Reveals {
			all := *now // now belongs to other calls too
			all.Parts, all.First = before.Parts, before.First
			return s.remember(a, &all), nil
		}
	}
	now, err := s.advance(ctx, a, store.AllParties(len(a.deal.Labels)))
	if err != nil {
		return nil, err
	}
	return s.remember(a, now), nil
}

func (s *Service) remember(a Access, now *store.Snapshot) *store.Snapshot {
	if now.LeafIndex != nil || len(a.deal.Labels) >= manyParties {
		s.seen.Add(a.deal.DealID, now, 512+len(now.Result)+160*len(now.Parts))
	}
	return now
}

func publishedID(now *store.Snapshot) *string {
	if now.Published {
		return now.CertID
	}
	return nil
}
