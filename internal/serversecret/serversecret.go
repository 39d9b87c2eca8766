// Package serversecret compares the server secrets of a process with those that its
// database names: the secret in force, under which everything is written, and former
// secrets that stored data still needs. A process that lacks one of them is not ready
// and writes nothing. Without the secret in force, it would write what other processes
// may not be able to decrypt. Without a former secret, it could not decrypt stored data.
package serversecret

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Check makes the secret in force the writer of own. It returns an error if own lacks that
// secret or a former one that is still needed. If the database names no secret yet,
// Check records one (claim).
func Check(ctx context.Context, s *store.Store, own *sealing.Secrets) error {
	state, err := s.ServerSecret(ctx)
	if errors.Is(err, store.ErrNotFound) {
		if err := claim(ctx, s, own); err != nil {
			return err
		}
		state, err = s.ServerSecret(ctx)
	}
	if err != nil {
		return err
	}
	writer := own.Find(state.Fingerprint)
	if writer == nil {
		return fmt.Errorf("%w: secret %s is in force, this process has %s", errLacks, sealing.ShortID(state.Fingerprint), ids(own))
	}
	for _, former := range state.Former {
		if own.Find(former) == nil {
			return fmt.Errorf("%w: stored data still needs secret %s, this process has %s", errLacks, sealing.ShortID(former), ids(own))
		}
	}
	own.Use(writer, state.Former != nil)
	return nil
}

// Refresh repeats Check, for example after store.ErrSecretMoved. It converts an error of
// Check to UNAVAILABLE, which a client of the service may see.
func Refresh(ctx context.Context, s *store.Store, own *sealing.Secrets) error {
	err := Check(ctx, s, own)
	if err == nil || problem.Is(err, problem.Unavailable) {
		return err
	}
	return problem.New(problem.Unavailable, "this replica lacks a server secret and changed nothing; send the same request again in a few seconds").After(2).Because(err)
}

// claim records the newest secret of own as the secret in force. If the database already
// has inputs, which a release without this record wrote, claim records the secret that
// opens one of them. The error is errLacks if no secret of own does.
func claim(ctx context.Context, s *store.Store, own *sealing.Secrets) error {
	live, err := s.LiveInputs(ctx)
	if err != nil {
		return err
	}
	first := own.All()[0]
	if len(live) > 0 {
		opens := func(secret *sealing.Secret) bool {
			return slices.ContainsFunc(live, func(in store.SealedInput) bool {
				_, err := secret.OpenInput(in.DealID, in.Party, in.Sealed)
				return err == nil
			})
		}
		i := slices.IndexFunc(own.All(), opens)
		if i < 0 {
			return fmt.Errorf("%w: this process has %s, and none of them decrypts one of the newest inputs", errLacks, ids(own))
		}
		first = own.All()[i]
	}
	return s.ClaimSecret(ctx, first.Fingerprint(), false)
}

func ids(own *sealing.Secrets) (all []string) {
	for _, one := range own.All() {
		all = append(all, one.ID())
	}
	return all
}

var errLacks = errors.New("FAIRPACT_SERVER_SECRET_FILE lacks a server secret of the database: " +
	"add the former secret again, on a line of its own; if it is lost, stop all processes and run `fairpactctl secret adopt`")
