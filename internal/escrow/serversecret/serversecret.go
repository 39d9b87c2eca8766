// Package serversecret checks that a process has the server secrets that its database
// names. The secret in force encrypts all new data. Stored data may still need former
// secrets. A process that lacks one of these secrets does not start. A running process that
// lacks one is no longer ready. Without the secret in force, a process would write data that
// other processes may not be able to decrypt. Without a former secret, a process could not
// decrypt stored data.
package serversecret

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Check makes `own`, the secrets of the process, encrypt with the secret in force, which the
// database names. Check returns an error if `own` lacks the secret in force, or a former secret
// that stored data still needs. If the database names no secret yet, Check first records the
// newest secret of the process as the secret in force.
func Check(ctx context.Context, s *store.Store, own *sealing.Secrets) error {
	state, err := s.ServerSecret(ctx)
	if errors.Is(err, store.ErrNotFound) {
		if err := s.ClaimSecret(ctx, own.All()[0].Fingerprint(), false); err != nil {
			return err
		}
		state, err = s.ServerSecret(ctx)
	}
	if err != nil {
		return err
	}
	writer := own.Find(state.Fingerprint)
	if writer == nil {
		return lacking("secret %s is in force, and this process has only %s", sealing.ShortID(state.Fingerprint), ids(own))
	}
	for _, former := range state.Former {
		if own.Find(former) == nil {
			return lacking("stored data still needs secret %s, and this process has only %s", sealing.ShortID(former), ids(own))
		}
	}
	own.Use(writer)
	return nil
}

// Refresh repeats Check, for example after store.ErrSecretReplaced. If Check fails, Refresh
// returns an UNAVAILABLE error, whose text may be sent to the caller of the API.
func Refresh(ctx context.Context, s *store.Store, own *sealing.Secrets) error {
	err := Check(ctx, s, own)
	if err == nil || problem.Is(err, problem.Unavailable) {
		return err
	}
	return problem.New(problem.Unavailable, "this replica lacks a server secret and changed nothing; send the same request again in a few seconds").WithRetryAfter(2).WithCause(err)
}

func ids(own *sealing.Secrets) (all []string) {
	for _, one := range own.All() {
		all = append(all, one.ID())
	}
	return all
}

func lacking(why string, values ...any) error {
	return fmt.Errorf("FAIRPACT_SERVER_SECRET_FILE lacks a server secret: %s; add the missing secret to the file, on a line of its own. "+
		"If that secret is lost, stop all processes and run `fairpactctl secret adopt`", fmt.Sprintf(why, values...))
}
