package store_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/store"
)

// Retention purge: the transaction that ends a deal takes the inputs with it,
// however the deal ends; nothing else does.
func TestPurge(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	kept := func(d *store.Static) int {
		return b.count(t, "SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.DealID)
	}
	for retention, left := range map[string]int{"purge": 0, "standard": 1} {
		for what, end := range map[string]func(d *store.Static) (bool, error){
			"COMPUTED": func(d *store.Static) (bool, error) { return b.End(ctx, b.ending(t, d, deal.Computed)) },
			"VOID":     func(d *store.Static) (bool, error) { return b.End(ctx, b.ending(t, d, deal.Void)) },
			"EXPIRED":  func(d *store.Static) (bool, error) { return b.End(ctx, b.ending(t, d, deal.Expired)) },
			"rejected": func(d *store.Static) (bool, error) {
				return b.Reject(ctx, b.ending(t, d, deal.Void), 0, []byte("no"), nil)
			},
		} {
			t.Run(retention+" "+what, func(t *testing.T) {
				d := b.created(t, func(d *store.Static) { d.Retention = retention })
				bystander := b.created(t, func(d *store.Static) { d.Retention = "purge" })
				for _, one := range []*store.Static{d, bystander} {
					b.commit(t, one, 0, 1)
					b.reveal(t, one, 1)
				}
				stale := b.ending(t, d, deal.Void)
				stale.Reveals = 0
				if done, err := b.End(ctx, stale); err != nil || done || kept(d) != 1 {
					t.Fatalf("a refused end: %v, %v, and %d inputs are left", done, err, kept(d))
				}
				if done, err := end(d); err != nil || !done {
					t.Fatal(done, err)
				}
				want := left
				if what == "rejected" {
					want *= 2 // the rejection is an input as well
				}
				if got := kept(d); got != want {
					t.Errorf("%d inputs are left, want %d", got, want)
				}
				if kept(bystander) != 1 {
					t.Error("another deal's input went with it")
				}
				// Who revealed stays known.
				if _, revealed, err := b.Party(ctx, d.DealID, 1); err != nil || !revealed {
					t.Errorf("party 1 after the end: revealed %v, %v", revealed, err)
				}
				sealed, err := b.SealedInputs(ctx, d.DealID)
				if err != nil || len(sealed) == 0 || (sealed[len(sealed)-1] == nil) != (retention == "purge") {
					t.Errorf("the inputs read: %v, %v", sealed, err)
				}
			})
		}
	}
}
