package store_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func TestAStaleEndingDoesNothing(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := f.create(t, nil)
	f.commit(t, d, 0)
	stale := f.ending(t, d, deal.Void)
	f.commit(t, d, 1)
	did(t, "an end from before a commit", false)(f.End(ctx, stale))
	stale.From = deal.Revealing // the phase is now right, and only the count of commitments is stale
	did(t, "an end from before a commit, in the right phase", false)(f.End(ctx, stale))
	stale = f.ending(t, d, deal.Void)
	f.reveal(t, d, 0)
	did(t, "an end from before a reveal", false)(f.End(ctx, stale))
	did(t, "a rejection from before a reveal", false)(f.Reject(ctx, stale, act(d, 1)))
	if now := f.current(t, d); now.Phase != deal.Revealing || now.CertID != nil || now.Reveals != 1 {
		t.Errorf("after refused ends: got %+v, want REVEALING with 1 reveal and no certificate", now)
	}
	if n := f.count(t, "SELECT count(*) FROM certificates"); n != 0 {
		t.Errorf("refused ends left %d certificates, want 0", n)
	}
	f.reveal(t, d, 1)
	wrongPhase, first, other := f.ending(t, d, deal.Computed), f.ending(t, d, deal.Computed), f.ending(t, d, deal.Computed)
	wrongPhase.From = deal.Committing
	did(t, "an end computed for another phase", false)(f.End(ctx, wrongPhase))
	did(t, "the end", true)(f.End(ctx, first))
	did(t, "a second end", false)(f.End(ctx, other))
	did(t, "an end of an unknown deal", false)(f.End(ctx, &store.Ending{DealID: "d_unknown", Parties: 2, From: deal.Revealing, To: deal.Void}))
}

func TestEndingsOfOneGroup(t *testing.T) {
	f := newFixture(t)
	computed, nobody, stale, expired := f.create(t, nil), f.create(t, parties(3)), f.create(t, nil), f.create(t, random)
	for _, d := range []*store.Declaration{computed, expired} {
		f.commit(t, d, 0, 1)
		f.reveal(t, d, 0, 1)
	}
	endings := []*store.Ending{f.ending(t, computed, deal.Computed), f.ending(t, nobody, deal.Void), f.ending(t, stale, deal.Void), f.ending(t, expired, deal.Expired)}
	f.commit(t, stale, 1)
	done, errs := f.EndTogether(endings...)
	checkAll(t, errs)
	for i, want := range []bool{true, true, false, true} {
		if done[i] != want {
			t.Errorf("ending %d took place: %v, want %v", i, done[i], want)
		}
	}
	for i, d := range []*store.Declaration{computed, nobody, stale, expired} {
		now, e := f.current(t, d), endings[i]
		if done[i] && (now.Phase != e.To || (now.CertID == nil) != (e.CertID == nil) || len(now.VoidFlakers) != len(e.VoidFlakers) || string(now.Result) != string(e.Result)) {
			t.Errorf("after ending %d the deal is %+v, want %+v", i, now, e)
		}
		c, err := f.CertificateOf(t.Context(), d.DealID)
		if wanted := done[i] && e.CertID != nil; (err == nil) != wanted || wanted && c.CertID != *e.CertID {
			t.Errorf("certificate of ending %d: got %+v, %v; want %s", i, c, err, shown(e.CertID))
		}
	}
}

// At the end of a deal's entropy window (random.v1), one group can hold the draw and the expiry.
func TestOfTwoEndingsInOneGroupOneTakesPlace(t *testing.T) {
	f := newFixture(t)
	for what, to := range map[string][2]deal.State{
		"two VOID":             {deal.Void, deal.Void},
		"COMPUTED and EXPIRED": {deal.Computed, deal.Expired},
		"EXPIRED and COMPUTED": {deal.Expired, deal.Computed},
	} {
		t.Run(what, func(t *testing.T) {
			d := f.create(t, random)
			f.commit(t, d, 0, 1)
			if to[0] != deal.Void {
				f.reveal(t, d, 0, 1)
			}
			endings := []*store.Ending{f.ending(t, d, to[0]), f.ending(t, d, to[1])}
			done, errs := f.EndTogether(endings...)
			checkAll(t, errs)
			if done[0] == done[1] {
				t.Errorf("the two endings took place: %v, want exactly one", done)
			}
			e := endings[0]
			if done[1] {
				e = endings[1]
			}
			now := f.current(t, d)
			if now.Phase != e.To || (now.CertID == nil) != (e.CertID == nil) || e.CertID != nil && *now.CertID != *e.CertID {
				t.Errorf("the deal is %s with certificate %s, want %s with %s, as answered", now.Phase, shown(now.CertID), e.To, shown(e.CertID))
			}
			if n := f.count(t, "SELECT count(*) FROM certificates WHERE deal_id = $1", d.DealID); (n == 1) != (e.CertID != nil) {
				t.Errorf("a %s deal has %d certificates, want one: %v", now.Phase, n, e.CertID != nil)
			}
		})
	}
}

// With retention purge, the transaction that ends a deal deletes the deal's inputs, whatever
// the final state. The reveals stay recorded. A refused end deletes nothing.
func TestPurge(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	kept := func(d *store.Declaration) int {
		return f.count(t, "SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.DealID)
	}
	for _, retention := range []string{"purge", "standard"} {
		for what, end := range map[string]func(d *store.Declaration) (bool, error){
			"COMPUTED": func(d *store.Declaration) (bool, error) {
				f.reveal(t, d, 0)
				return f.End(ctx, f.ending(t, d, deal.Computed))
			},
			"VOID":    func(d *store.Declaration) (bool, error) { return f.End(ctx, f.ending(t, d, deal.Void)) },
			"EXPIRED": func(d *store.Declaration) (bool, error) { return f.End(ctx, f.ending(t, d, deal.Expired)) },
			"rejected": func(d *store.Declaration) (bool, error) {
				return f.Reject(ctx, f.ending(t, d, deal.Void), act(d, 0))
			},
		} {
			t.Run(retention+" "+what, func(t *testing.T) {
				d := f.create(t, func(d *store.Declaration) { d.Retention = retention })
				bystander := f.create(t, func(d *store.Declaration) { d.Retention = "purge" })
				for _, one := range []*store.Declaration{d, bystander} {
					f.commit(t, one, 0, 1)
					f.reveal(t, one, 1)
				}
				stale := f.ending(t, d, deal.Void)
				stale.Reveals = 0
				if done, err := f.End(ctx, stale); err != nil || done || kept(d) != 1 {
					t.Fatalf("a refused end: got %v, %v, and %d inputs are left; want false and 1", done, err, kept(d))
				}
				if done, err := end(d); err != nil || !done {
					t.Fatalf("the end: got %v, %v; want true", done, err)
				}
				now := f.snapshot(t, d, store.WithInputs(2))
				if len(now.Sealed) != now.Reveals || !now.Parts[1].Revealed {
					t.Fatalf("after the end: got %+v, want an entry in Sealed for each reveal", now)
				}
				for i, sealed := range now.Sealed {
					if (sealed == nil) != (retention == "purge") {
						t.Errorf("input %d after the end with retention %s: got %v, want nil: %v", i, retention, sealed, retention == "purge")
					}
				}
				if kept(bystander) != 1 {
					t.Errorf("another deal has %d inputs, want 1", kept(bystander))
				}
			})
		}
	}
}
