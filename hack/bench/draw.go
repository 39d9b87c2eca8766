package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// draw measures a random.v1 deal of the given number of parties. 64 clients send the commits
// and reveals. For comparison, pgbench then runs one INSERT for each commit and each
// reveal of the deal. As in the product, each INSERT also checks that a deal is open (see
// guardedInserts).
func (b *bench) draw(parties int) error {
	if err := b.makeWorkers(); err != nil {
		return err
	}
	openings, commitments := make([]opening, parties), make([]string, parties)
	labels, leaves := make([]string, parties), make([][]byte, parties)
	for i := range labels {
		var err error
		labels[i] = fmt.Sprint("party ", i)
		if openings[i], commitments[i], leaves[i], err = seal(map[string]any{"nonce": randomHex(16)}); err != nil {
			return err
		}
	}
	apiPID := b.stack.PID(localstack.DealAPI)
	if err := resetPeak(apiPID); err != nil {
		return err
	}
	lead := b.workers[0]
	begin := time.Now()
	var deal createdDeal
	if _, err := lead.call(201, "POST", "/v1/deals", lead.apiKey, map[string]any{
		"algorithm": "random.v1", "party_labels": labels,
		// This round is already published, so the draw does not wait for it.
		"algorithm_params": map[string]any{"beacon_round": b.stack.Chain().RoundAt(begin.Unix()) - 10},
		"commit_deadline":  begin.Unix() + 1800, "reveal_deadline": begin.Unix() + 3600,
	}, &deal); err != nil {
		return err
	}
	if len(deal.InviteTokens) != parties {
		return fmt.Errorf("a deal of %d parties got %d invite tokens, want one for each party", parties, len(deal.InviteTokens))
	}
	b.samples.add("draw.create_ms", milliseconds(begin))
	path := "/v1/deals/" + deal.DealID

	all, err := b.forEachParty(parties, "commit", func(c *client, i int) error {
		_, err := c.call(200, "POST", path+"/commit", deal.InviteTokens[i].Token, map[string]string{"commitment": commitments[i]}, nil)
		return err
	})
	if err != nil {
		return err
	}
	reveals, err := b.forEachParty(parties, "reveal", func(c *client, i int) error {
		_, err := c.call(200, "POST", path+"/reveal", deal.InviteTokens[i].Token, openings[i], nil)
		return err
	})
	if err != nil {
		return err
	}
	all.n, all.elapsed, all.after = all.n+reveals.n, all.elapsed+reveals.elapsed, reveals.after
	all.calls["reveal"] = reveals.calls["reveal"]
	b.samples.addLoad("draw", all)
	b.samples.add("draw.calls_s", all.elapsed.Seconds())

	ending := time.Now()
	if _, err := lead.call(200, "POST", path+"/entropy", deal.InviteTokens[0].Token, nil, nil); err != nil {
		return err
	}
	text, err := fetchCertificate(lead.client, path, deal.InviteTokens[0].Token)
	if err != nil {
		return err
	}
	b.samples.add("draw.ending_ms", milliseconds(ending))
	b.samples.add("draw.total_s", time.Since(begin).Seconds())
	if _, err := verifyCertificate(text, b.key, b.heads, deal.DealID, certificate.InputRoot(leaves)); err != nil {
		return err
	}
	if err := b.verifyHeads(); err != nil {
		return err
	}
	_, peak, err := memoryMiB(apiPID)
	if err != nil {
		return err
	}
	b.samples.add("draw.parties", float64(parties))
	b.samples.add("draw.peak_mib", peak)

	perSecond, err := b.pgbench.guardedInserts(b.ctx, 2*parties)
	b.samples.add("guarded.per_second", perSecond)
	return err
}

func (b *bench) forEachParty(parties int, call string, act func(c *client, party int) error) (*timed, error) {
	var next atomic.Int64
	const bound = 10 * time.Minute
	return b.load(maxWorkers, bound, func(i int, note func(string, time.Duration)) error {
		party := int(next.Add(1)) - 1
		if party >= parties {
			return errDone
		}
		begin := time.Now()
		err := act(b.workers[i].client, party)
		note(call, time.Since(begin))
		return err
	})
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
