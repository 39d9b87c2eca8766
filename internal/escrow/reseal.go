package escrow

import (
	"context"
	"crypto/hmac"
	"errors"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
)

const (
	resealRows  = 200     // maximum number of stored inputs that one call of Reseal reads (a batch)
	resealBytes = 4 << 20 // a batch with this many bytes takes no further input
	pendingRows = 16      // pending certificates in one read; few, because a payload can be megabytes long
)

// ReplayTime is ReplayLifetime in seconds.
const ReplayTime = int64(ReplayLifetime / time.Second)

// Reseal does the next part of a rotation of the server secret, and reports whether the caller
// should call it again immediately. It can be interrupted at any point, and several processes can
// run it concurrently.
//
// First it encrypts the stored inputs and seals under the secret in force, one batch in each call. The next
// calls do nothing until the replays under former secrets have expired. Then Reseal renews the MACs
// of pending certificates, and records that the former secrets can go.
func (s *Service) Reseal(ctx context.Context) (more bool, err error) {
	r, err := s.store.Rotation(ctx, ReplayTime, 1)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	formerSecrets.Set(float64(len(r.Former)))
	if len(r.Former) == 0 || r.Now < r.Since+int64(store.SettleTime/time.Second) {
		return false, nil
	}
	if err := s.secrets.Check(ctx, s.store); err != nil {
		return false, err
	}
	if r.Inputs > 0 {
		return true, s.resealInputs(ctx)
	}
	if r.Replays > 0 {
		return false, nil
	}
	if err := s.renewMACs(ctx, r.Fingerprint); err != nil {
		return false, err
	}
	done, err := s.store.ForgetSecrets(ctx, r.Fingerprint)
	if done {
		formerSecrets.Set(0)
		s.logger.InfoContext(ctx, "former server secrets no longer needed, remove them from FAIRPACT_SERVER_SECRET_FILE", "in_force", sealing.ShortID(r.Fingerprint))
	}
	return false, err
}

func (s *Service) resealInputs(ctx context.Context) error {
	inputs, err := s.store.InputsToReseal(ctx, resealRows, resealBytes)
	if err != nil {
		return err
	}
	writer := s.secrets.Writer()
	fresh := make([][]byte, len(inputs))
	lost := 0
	for i, in := range inputs {
		if fresh[i] = s.resealed(writer, in); fresh[i] == nil { // the row was changed, so the rotation does not wait for it
			lost++
		}
	}
	if lost > 0 {
		s.logger.WarnContext(ctx, "skipping stored inputs that cannot be decrypted", "count", lost, "batch_last_deal_id", inputs[len(inputs)-1].DealID)
	}
	err = s.store.Reseal(ctx, writer.Fingerprint(), inputs, fresh)
	if err == nil {
		inputsResealed.Add(float64(len(inputs) - lost))
	}
	return err
}

// resealed returns the input or seal, encrypted under the secret, or nil if it cannot be decrypted.
func (s *Service) resealed(writer *sealing.Secret, in store.SealedInput) []byte {
	if in.Seal {
		text, err := s.secrets.DecryptSeal(in.DealID, in.Party, in.Sealed)
		if err != nil {
			return nil
		}
		return writer.EncryptSeal(in.DealID, in.Party, text)
	}
	input, err := s.secrets.OpenInput(in.DealID, in.Party, in.Sealed)
	if err != nil {
		return nil
	}
	return writer.SealInput(in.DealID, in.Party, input)
}

// renewMACs renews the MACs of pending certificates under the secret in force, so that a certificate
// that cannot be issued does not delay the end of a rotation. It skips certificates that this service
// did not write, and those of a lost secret.
func (s *Service) renewMACs(ctx context.Context, fingerprint []byte) error {
	writer := s.secrets.Find(fingerprint)
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
			fresh := payloadMAC(writer, p.CertID, p.Payload)
			if hmac.Equal(p.MAC, fresh) || !s.hasOwnMAC(p.CertID, p.Payload, p.MAC) {
				continue
			}
			if err := s.store.SetMAC(ctx, p, fresh); err != nil {
				return err
			}
		}
	}
}
