//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
)

// missed is a deal of which one party will not act in time.
type missed struct {
	id, token string
	deadline  int64 // unix seconds; at it the deal is VOID
	flaker    int
}

// miss plays a split of three up to where one party would have to act: to commit,
// or to reveal.
func (s *stream) miss(ctx context.Context, commits bool, deadline int64) (m missed, err error) {
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := s.call(ctx, "POST", "/v1/keys", "", object{}, 201, &key); err != nil {
		return m, err
	}
	m.deadline = deadline
	commitBy, revealBy := deadline, deadline+3600
	m.flaker = 1
	if commits {
		commitBy, revealBy = deadline-1, deadline
		m.flaker = 2
	}
	var made struct {
		DealID  string                   `json:"deal_id"`
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	if err := s.call(ctx, "POST", "/v1/deals", key.APIKey, object{
		"algorithm": "split.v1", "party_labels": []string{"ann", "bob", "cy"}, "algorithm_params": object{"items": []string{"car", "boat"}},
		"commit_deadline": commitBy, "reveal_deadline": revealBy,
	}, 201, &made); err != nil {
		return m, err
	}
	m.id, m.token = made.DealID, made.Invites[0].Token
	path, salt, input := "/v1/deals/"+made.DealID, rand.Text(), object{"valuations": object{"car": 60, "boat": 40}}
	text, err := canon.Marshal(input)
	if err != nil {
		return m, err
	}
	act := func(what string, body object) error {
		for i, invite := range made.Invites {
			if i == m.flaker && (what == "reveal" || !commits) {
				continue
			}
			if err := s.call(ctx, "POST", path+"/"+what, invite.Token, body, 200, nil); err != nil {
				return err
			}
		}
		return nil
	}
	if err := act("commit", object{"commitment": canon.Commitment(text, []byte(salt))}); err != nil || !commits {
		return m, err
	}
	return m, act("reveal", object{"input": input, "salt": salt})
}

// judged holds a deal whose deadline has passed to its verdict: VOID, by the
// fault of exactly the one who did not act, in the view and in a certificate that
// verifies.
func (s *stream) judged(ctx context.Context, m missed) error {
	var view struct {
		State       string
		VoidFlakers []int `json:"void_flakers"`
	}
	if err := s.call(ctx, "GET", "/v1/deals/"+m.id, m.token, nil, 200, &view); err != nil {
		return err
	}
	text, err := s.certified(ctx, m.id, m.token)
	if err != nil {
		return err
	}
	var certificate struct {
		Outcome     string
		VoidFlakers []int `json:"void_flakers"`
	}
	if err := json.Unmarshal(text, &certificate); err != nil {
		return err
	}
	fault := []int{m.flaker}
	if view.State != "VOID" || certificate.Outcome != "VOID" || !slices.Equal(view.VoidFlakers, fault) || !slices.Equal(certificate.VoidFlakers, fault) {
		return fmt.Errorf("deal %s: view %+v, certificate %+v, want VOID by the fault of %d", m.id, view, certificate, fault)
	}
	return nil
}

const (
	missEvery = 700 * time.Millisecond
	missAfter = 20 // seconds; long enough for requests that are retried
)

// startOverdue begins a stream of deals that miss a deadline; they are many at a
// time and slow, so it runs through all that is done to the release.
func startOverdue(t *testing.T, c *cluster) {
	t.Helper()
	s, ctx := newStream(t, c.base)
	c.overdue = s
	s.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			s.done.Go(func() {
				ctx := context.WithoutCancel(ctx)
				m, err := s.miss(ctx, n%2 == 0, time.Now().Unix()+missAfter)
				if err == nil {
					// Of four deals two are asked for at once, which ends them; two are the worker's.
					time.Sleep(time.Until(time.Unix(m.deadline, 0)) + time.Duration(n/2%2)*3*time.Second)
					err = s.judged(ctx, m)
				}
				s.failed(err)
			})
			time.Sleep(missEvery)
		}
	})
}

func stopOverdue(t *testing.T, c *cluster) {
	c.overdue.stop(t, c, "deals of which one party missed a deadline, through all of that")
}
