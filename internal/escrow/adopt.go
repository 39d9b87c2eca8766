package escrow

import (
	"bytes"
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/serversecret"
	"github.com/fairpact/fairpact/internal/store"
)

// Adopt puts back the certificate that the log has of a deal, and the deal's end
// with it, from a copy that a party kept. The caller MUST have verified the copy's
// signature, and that the log has it at that leaf under the deal's tag. It does
// not bring back commitments and reveals that were lost.
func Adopt(ctx context.Context, s *store.Store, secrets *sealing.Secrets, payload []byte, signature string, leafIndex int64) error {
	if err := serversecret.Check(ctx, s, secrets); err != nil {
		return err
	}
	p, err := certificate.Parse(payload)
	if err != nil {
		return err
	}
	e := &store.Ending{
		DealID: p.DealID, To: deal.Void, RevealsClosedAt: p.Timing.RevealsClosedAt, ComputedAt: p.Timing.ComputedAt, VoidFlakers: p.VoidFlakers,
		CertID: &p.CertID, Payload: payload, MAC: payloadMAC(secrets.Writer(), p.CertID, payload),
	}
	if p.Outcome == certificate.Computed {
		e.To = deal.Computed
	}
	if !bytes.Equal(p.Result, []byte("null")) {
		e.Result = p.Result
	}
	done, err := s.Adopt(ctx, e, p.Timing.CommitsClosedAt, store.Publication{CertID: p.CertID, Signature: signature, LeafIndex: leafIndex})
	if err == nil && !done {
		err = fmt.Errorf("the database has no deal %s: restore its row from a backup first", p.DealID)
	}
	return err
}
