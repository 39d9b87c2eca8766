package escrow

import (
	"context"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

// The memory of a call is granted before the call reads (see package budget). The estimates are in bytes.
const (
	viewParty        = 512     // of a party in a View, in its JSON and in a copy of it
	declarationParty = 1 << 10 // of a party in a Declaration, as a tree and as JSON
	endParty         = 1536    // of a party in the snapshot, the certificate and the computation of a deal's end
	inputCopies      = 4       // how many times the inputs are in memory while they are shown
	treeCopies       = 12      // of an input whose members are short, as a tree
	resultCopies     = 10      // how many times a result is in memory while it is computed, certified and stored
	keptCopies       = 4       // how many times result and certificate are in memory afterwards
)

// hold takes a ticket for n bytes for the call in ctx, or for the largest call if that is less.
func hold(ctx context.Context, n int) error {
	return budget.From(ctx).Hold(ctx, int64(min(max(n, budget.SmallCall), budget.Largest)))
}

// ViewBytes returns the memory of a View with its JSON.
func (d *Deal) ViewBytes() int { return 4*(len(d.Params)+d.TextBytes()) + viewParty*len(d.Labels) }

// DeclarationBytes returns the memory of a Declaration with its JSON.
func (d *Deal) DeclarationBytes() int {
	return 16*(len(d.Params)+d.TextBytes()) + declarationParty*len(d.Labels)
}

// endBytes returns the memory of a deal's end by a step, with its answer; inputBytes is 0 before it is known. If the inputs do not
// fit into one statement, the end reads them in pages. It keeps of them only what the algorithm needs:
// for random.v1, which can have many parties, little.
func (d *Deal) endBytes(step deal.Step, inputBytes int) int {
	n := endParty * len(d.Labels)
	if step == deal.Compute || step == deal.Draw {
		n += resultCopies * d.algorithm.ResultLimit(d.Labels, d.params)
	}
	if len(d.Labels) >= manyParties || inputBytes > store.SmallRead {
		n += 3 * store.InputsPage
	}
	if !d.algorithm.NeedsBeacon {
		n += treeCopies * inputBytes
	}
	return n
}

// BundleBytes returns the memory of a Bundle with its JSON. It counts a certificate without seat keys: for a
// longer one, the store takes a larger ticket.
func (d *Deal) BundleBytes() int { return d.DeclarationBytes() + endParty*len(d.Labels) }
