package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type secretCommands struct {
	Add    secretAddCommand    `cmd:"" help:"Print the content of the server secret file with a new secret in front. This is the first step of a rotation."`
	Rotate secretRotateCommand `cmd:"" help:"Put the newest server secret in force, once every process has this secret."`
	Check  secretCheckCommand  `cmd:"" help:"Show the progress of a rotation, and whether former server secrets may be removed."`
	Adopt  secretAdoptCommand  `cmd:"" help:"Put another server secret in force if the present server secret of a database is lost."`
}

type secretFile struct {
	SecretFile string `env:"FAIRPACT_SERVER_SECRET_FILE" required:"" type:"path" help:"File with the server secrets: one per line, at least 64 hex digits, the newest first."`
}

type secretAddCommand struct{ secretFile }

func (a secretAddCommand) Run(t *terminal) error {
	if _, err := sealing.Load(a.SecretFile); err != nil {
		return err
	}
	old, err := os.ReadFile(a.SecretFile)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "%s\n%s\n", randomHex(32), strings.TrimSpace(string(old)))
	return err
}

type secretRotateCommand struct {
	databases
	secretFile
}

func (r secretRotateCommand) Run(ctx context.Context, t *terminal) error {
	return withSecrets(ctx, r.DatabaseURL, r.SecretFile, func(s *store.Store, own *sealing.Secrets, now store.Rotation) error {
		newest := own.All()[0]
		if newest.ID() == sealing.ShortID(now.Fingerprint) {
			return refusal{fmt.Errorf("%s, the first secret of the file, is in force already: if you have just changed the Secret, wait up to two minutes for its file; otherwise run `fairpactctl secret add`, which prints the content of the file with a new secret in front, save the output as the new file, and rotate again", newest.ID())}
		}
		if err := own.Suffice(now.SecretState); err != nil {
			return refusal{err}
		}
		processes, err := r.processes(ctx)
		if check := haveSecrets(processes, err, own.Digest()); !check.OK {
			return refusal{fmt.Errorf("%s; a process without the new secret cannot read data that is encrypted under that secret: roll the file out to all processes first", check.Detail)}
		}
		done, err := s.RotateSecret(ctx, now.Fingerprint, newest.Fingerprint())
		if err != nil {
			return err
		}
		if !done {
			return refusal{errors.New("another rotation ended while this one ran: run fairpactctl secret check")}
		}
		former := sealing.ShortID(now.Fingerprint)
		return t.show(struct {
			InForce string `json:"in_force"`
			Former  string `json:"former"`
		}{newest.ID(), former},
			"secret %s is in force; keep secret %s in the file until fairpactctl secret check says to remove the former secret", newest.ID(), former)
	})
}

type secretCheckCommand struct {
	databases
	secretFile
}

// mostCounted bounds how many inputs, and how many replays, `secret check` counts.
const mostCounted = 100_000

type secretReport struct {
	verification.Report
	InForce string   `json:"in_force"`
	Former  []string `json:"former"` // short fingerprints of the former secrets that stored data still needs
	Held    []string `json:"held"`   // short fingerprints of the secrets in the file
	Inputs  int      `json:"inputs_left"`
	Replays int      `json:"replays_left"`
	Next    string   `json:"next"`
}

func (c secretCheckCommand) Run(ctx context.Context, t *terminal) error {
	return withSecrets(ctx, c.DatabaseURL, c.SecretFile, func(s *store.Store, own *sealing.Secrets, now store.Rotation) error {
		r := secretReport{Report: verification.Report{Valid: true}, InForce: sealing.ShortID(now.Fingerprint), Former: []string{}, Held: own.IDs()}
		for _, former := range now.Former {
			r.Former = append(r.Former, sealing.ShortID(former))
		}
		if len(r.Former) > 0 {
			r.Inputs, r.Replays = now.Inputs, now.Replays
		}
		r.Add(checked("file", own.Suffice(now.SecretState), "the file holds %v; %s is in force; former secrets still needed: %v", r.Held, r.InForce, r.Former))
		processes, err := c.processes(ctx)
		r.Add(haveSecrets(processes, err, own.Digest()))
		r.Next = nextOfSecrets(r)
		left := fmt.Sprintf("still need a former secret: %s inputs, and perhaps %s replays (the last expires by %s)",
			upTo(r.Inputs), upTo(r.Replays), instant(new(now.Since+escrow.ReplayTime)))
		return t.report(r.Report, r, left, "next: "+r.Next)
	})
}

func upTo(n int) string {
	if n == mostCounted {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

func nextOfSecrets(r secretReport) string {
	unused := slices.DeleteFunc(slices.Clone(r.Held), func(id string) bool { return id == r.InForce || slices.Contains(r.Former, id) })
	switch {
	case !r.Valid:
		return "correct what failed before you take any further step of a rotation"
	case len(r.Former) > 0:
		return "wait: deadline-worker encrypts the inputs again, and then the replays expire; keep all lines of the file"
	case r.Held[0] != r.InForce:
		return fmt.Sprintf("put %s in force with fairpactctl secret rotate", r.Held[0])
	case len(unused) > 0:
		return fmt.Sprintf("remove all lines but the first from the file and roll the file out: nothing needs the secrets %v", unused)
	}
	return "nothing: one secret is in force, and no data needs another. To rotate, begin with fairpactctl secret add"
}

func withSecrets(ctx context.Context, databaseURL, file string, do func(*store.Store, *sealing.Secrets, store.Rotation) error) error {
	own, err := sealing.Load(file)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, databaseURL, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	now, err := s.Rotation(ctx, escrow.ReplayTime, mostCounted)
	if errors.Is(err, store.ErrNotFound) {
		return refusal{errors.New("the database records no server secret yet: start a deal-api with this database first")}
	}
	if err != nil {
		return err
	}
	return do(s, own, now)
}

type secretAdoptCommand struct {
	DatabaseURL string `env:"DATABASE_URL" required:"" help:"Postgres URL of the deployment."`
	secretFile
	LoseDeals bool `help:"Adopt the new secret even if deals or pending certificates need the lost secret."`
}

func (a secretAdoptCommand) Run(ctx context.Context, t *terminal) error {
	own, err := sealing.Load(a.SecretFile)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, a.DatabaseURL, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	state, err := s.ServerSecret(ctx)
	if err == nil && own.Find(state.Fingerprint) != nil {
		return refusal{fmt.Errorf("the secret in force, %s, is in the file: there is nothing to adopt", sealing.ShortID(state.Fingerprint))}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	deals, certificates, err := s.Live(ctx)
	if err != nil {
		return err
	}
	if deals+certificates > 0 && !a.LoseDeals {
		return refusal{fmt.Errorf("%d unfinished deals and %d pending certificates need the former secret: put that secret back into the file until these deals and certificates are finished, or give --lose-deals to lose them", deals, certificates)}
	}
	if err := s.LoseDeals(ctx); err != nil {
		return err
	}
	newest := own.All()[0]
	var held [][]byte
	for _, one := range own.All() {
		held = append(held, one.Fingerprint())
	}
	if err := s.ReplaceSecret(ctx, newest.Fingerprint(), held); err != nil {
		return err
	}
	fingerprint := fmt.Sprintf("%x", newest.Fingerprint())
	return t.show(map[string]string{"fingerprint": fingerprint}, "the database now has the server secret with the fingerprint %s: start the processes with this file", fingerprint)
}
