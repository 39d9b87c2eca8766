package escrow

import (
	"context"
	"crypto/hmac"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/idempotency"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/serversecret"
	"github.com/fairpact/fairpact/internal/escrow/store"
)

const (
	resealRows  = 200     // maximum number of stored inputs that one call of Reseal reads (a batch)
	resealBytes = 4 << 20 // a batch with this many bytes takes no further input
	pendingRows = 16      // pending certificates in one read; few, because a payload can be megabytes long
	// settleTime is how long Reseal waits after a new server secret came into force. No SQL
	// statement runs longer, so afterwards no process stores a row under the former secret.
	settleTime = time.Minute
)

// ReplayTime is the longest lifetime of an idempotency record, in seconds.
const ReplayTime = int64(idempotency.Lifetime / time.Second)

// Reseal does the next part of a rotation of the server secret. It reports whether the
// caller should call Reseal again immediately.
//
// First it encrypts the stored inputs under the active secret, one batch in each call. The
// next calls do nothing until the idempotency records under former secrets have expired. At
// the end Reseal renews the MACs of pending certificates and records that the former secrets
// can be removed.
//
// Reseal can be interrupted at any point, and several processes can run it concurrently.
func (s *Service) Reseal(ctx context.Context) (more bool, err error) {
	r, err := s.store.Rotation(ctx, ReplayTime, 1)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	formerSecrets.Set(float64(len(r.Former)))
	if len(r.Former) == 0 || r.Now < r.Since+int64(settleTime/time.Second) {
		return false, nil
	}
	if err := serversecret.Check(ctx, s.store, s.secrets); err != nil {
		return false, err
	}
	if r.After != nil {
		return true, s.resealInputs(ctx, *r.After)
	}
	if r.Replays > 0 {
		return false, nil
	}
	if err := s.renewMACs(ctx, s.secrets.Find(r.Fingerprint)); err != nil {
		return false, err
	}
	done, err := s.store.ForgetSecrets(ctx, r.Fingerprint)
	if done {
		formerSecrets.Set(0)
		s.logger.InfoContext(ctx, "former server secrets no longer needed, remove them from FAIRPACT_SERVER_SECRET_FILE", "in_force", sealing.ShortID(r.Fingerprint))
	}
	return false, err
}

// resealInputs encrypts the batch of inputs after `last` again, under the secret in force.
func (s *Service) resealInputs(ctx context.Context, last store.SealedInput) error {
	inputs, err := s.store.InputsAfter(ctx, last, resealRows, resealBytes)
	if err != nil {
		return err
	}
	writer := s.secrets.Writer()
	var read []store.SealedInput
	var fresh [][]byte
	lost := 0
	for _, in := range inputs {
		if in.Sealed == nil || writer.Marked(in.Sealed) {
			continue
		}
		input, err := s.secrets.OpenInput(in.DealID, in.Party, in.Sealed)
		if err != nil { // no secret of this process decrypts this input, so the rotation does not wait for it
			lost++
			continue
		}
		read, fresh = append(read, in), append(fresh, writer.SealInput(in.DealID, in.Party, input))
	}
	if lost > 0 {
		s.logger.WarnContext(ctx, "skipping stored inputs that cannot be decrypted", "count", lost, "batch_last_deal_id", inputs[len(inputs)-1].DealID)
	}
	var end *store.SealedInput
	if len(inputs) > 0 {
		end = &inputs[len(inputs)-1]
	}
	err = s.store.Reseal(ctx, writer.Fingerprint(), read, fresh, end)
	if err == nil {
		inputsResealed.Add(float64(len(read)))
	}
	return err
}

// renewMACs renews the MACs of pending certificates under writer, the active secret. It
// skips certificates that this service did not write.
func (s *Service) renewMACs(ctx context.Context, writer *sealing.Secret) error {
	if writer == nil {
		return errors.New("the MACs of pending certificates are not renewed: the server secret was replaced during the call, and this process lacks the previous secret")
	}
	var last store.PendingMAC
	for {
		page, err := s.store.PendingMACs(ctx, last, pendingRows)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, p := range page {
			last = p
			if hmac.Equal(p.MAC, payloadMAC(writer, p.CertID, p.Payload)) || !s.hasOwnMAC(p.CertID, p.Payload, p.MAC) {
				continue
			}
			if err := s.store.SetMAC(ctx, p, payloadMAC(writer, p.CertID, p.Payload)); err != nil {
				return err
			}
		}
	}
}
