// Package serversecret checks that a process has the server secrets that its database names.
// Without the secret in force, a process would write data that other processes may not be able to
// decrypt. Without a former secret, it could not decrypt stored data. So a process that lacks one
// does not start, and a running one is no longer ready.
package serversecret

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Check makes `own` encrypt with the secret in force. It returns an error if `own` lacks this secret,
// or a former one that stored data still needs. If the database names no secret yet, Check first
// records the newest of `own` as the secret in force.
func Check(ctx context.Context, s *store.Store, own *sealing.Secrets) error {
	state, err := s.ServerSecret(ctx)
	if errors.Is(err, store.ErrNotFound) {
		if err := s.ClaimSecret(ctx, own.All()[0].Fingerprint()); err != nil {
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
