package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// sealPhases are the measured phases of a deal with seals, in their order.
var sealPhases = []string{"create", "commit", "open"}

const (
	sealLead  = 60 * time.Second // from the start to the commit deadline; enough to create n deals, make their seals and commit
	sealBound = 10 * time.Minute
)

// sealedDeal is a deal with seals before its commitments.
type sealedDeal struct {
	createdDeal
	commits [2]map[string]string
	root    string
}

// seals measures n deals without seals, and n deals with seals of one round.
func (b *bench) seals(n int) error {
	say("measuring %d deals with seals", n)
	if err := b.makeWorkers(); err != nil {
		return err
	}
	without, err := b.each(n, func(w *worker, _ int, note func(string, time.Duration)) error {
		_, err := b.playDeal(w, note)
		return err
	})
	if err != nil {
		return err
	}
	b.samples.addLoad("seals.without", without)

	chain := b.stack.Chain()
	by := time.Now().Add(sealLead).Unix()
	round := timelock.RoundOf(chain, by)
	opens := time.Unix(chain.RoundTime(round), 0)
	deals := make([]sealedDeal, n)
	created, err := b.each(n, func(w *worker, i int, _ func(string, time.Duration)) (err error) {
		deals[i].createdDeal, err = w.create(by, opens.Unix()+3600)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := b.each(n, func(_ *worker, i int, _ func(string, time.Duration)) error { return b.sealDeal(&deals[i], round) }); err != nil {
		return err
	}
	committed, err := b.each(n, func(w *worker, i int, note func(string, time.Duration)) error {
		for party, body := range deals[i].commits {
			begin := time.Now()
			if _, err := w.call(200, "POST", "/v1/deals/"+deals[i].DealID+"/commit", deals[i].InviteTokens[party].Token, body, nil); err != nil {
				return err
			}
			note("commit", time.Since(begin))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, w := range b.workers {
		w.client.close() // deal-api closes connections that are idle for so long
	}
	time.Sleep(time.Until(opens))
	opened, err := b.openings(deals, opens)
	if err != nil {
		return err
	}
	for i, t := range []*timed{created, committed, opened} {
		b.samples.addLoad("seals."+sealPhases[i], t)
	}
	b.samples.add("seals.deals", float64(n))
	_, err = b.each(n, func(w *worker, i int, _ func(string, time.Duration)) error {
		text, err := fetchCertificate(w.client, "/v1/deals/"+deals[i].DealID, deals[i].InviteTokens[0].Token)
		if err == nil {
			_, err = verifyCertificate(text, b.key, b.heads, deals[i].DealID, deals[i].root)
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.verifyHeads()
}

// each has maxWorkers clients do the work of the indexes 0 to n-1.
func (b *bench) each(n int, act func(w *worker, i int, note func(string, time.Duration)) error) (*timed, error) {
	var next atomic.Int64
	return b.load(maxWorkers, sealBound, func(client int, note func(string, time.Duration)) error {
		i := int(next.Add(1)) - 1
		if i >= n {
			return errDone
		}
		return act(b.workers[client], i, note)
	})
}

// sealDeal makes the commitments and seals of the deal's parties.
func (b *bench) sealDeal(d *sealedDeal, round int64) error {
	openings, commitments, leaves, err := sealTwo()
	if err != nil {
		return err
	}
	d.root = certificate.InputRoot(leaves)
	for party, o := range openings {
		text, err := canon.Marshal(o.Input)
		if err != nil {
			return err
		}
		input, err := canon.ParseObject(text)
		if err != nil {
			return err
		}
		var random timelock.Random
		_, _ = rand.Read(random[:]) // never fails
		plaintext := timelock.Opening{DealID: d.DealID, Party: int64(party), Input: input, Salt: o.Salt}.Plaintext()
		d.commits[party] = map[string]string{"commitment": commitments[party], "seal": timelock.Seal(b.stack.Chain(), round, plaintext, random)}
	}
	return nil
}

// openings waits until every deal has a certificate. The time counts from `opens`, when the round is due.
func (b *bench) openings(deals []sealedDeal, opens time.Time) (*timed, error) {
	ids := make([]string, len(deals))
	for i, d := range deals {
		ids[i] = d.DealID
	}
	conn, err := pgx.Connect(b.ctx, b.stack.DatabaseURL()) // one for all polls: a new one costs Postgres as much as a deal
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(b.ctx))
	t := &timed{}
	if t.before, err = b.cpu(); err != nil {
		return nil, err
	}
	for t.n < len(deals) {
		if time.Since(opens) > sealBound {
			return nil, fmt.Errorf("%d of %d deals have a certificate %s after the round of their seals", t.n, len(deals), sealBound)
		}
		time.Sleep(50 * time.Millisecond)
		if t.n, err = certified(b.ctx, conn, ids); err != nil {
			return nil, err
		}
	}
	t.elapsed = time.Since(opens)
	t.after, err = b.cpu()
	return t, err
}
