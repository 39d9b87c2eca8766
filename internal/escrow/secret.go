package escrow

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// CheckSecret returns an error where the database is sealed under another server
// secret: a reveal stored under a second one would open beside none of the
// others. The first process of a database records its own. A database of the
// release before has no record: there an input of a deal that has not ended has
// to open.
func CheckSecret(ctx context.Context, s *store.Store, own *sealing.Secret) error {
	stands, err := s.ServerSecret(ctx)
	if errors.Is(err, store.ErrNotFound) {
		live, unread := s.LiveInputs(ctx)
		if unread != nil {
			return unread
		}
		if len(live) > 0 && !slices.ContainsFunc(live, func(in store.SealedInput) bool {
			_, err := own.OpenInput(in.DealID, in.Party, in.Sealed)
			return err == nil
		}) {
			return fmt.Errorf("%w: it opens none of the newest inputs", errOtherSecret)
		}
		if err := s.ClaimSecret(ctx, own.Fingerprint(), false); err != nil {
			return err
		}
		stands, err = s.ServerSecret(ctx)
	}
	if err == nil && !hmac.Equal(stands, own.Fingerprint()) {
		err = fmt.Errorf("%w: it has the fingerprint %x, this process has %x", errOtherSecret, stands, own.Fingerprint())
	}
	return err
}

var errOtherSecret = errors.New("FAIRPACT_SERVER_SECRET_FILE: the database is sealed under another server secret; " +
	"put the former one back, or if it is lost stop all processes and run `fairpactctl secret adopt`")
