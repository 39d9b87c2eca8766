package escrow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/store"
)

// view is a deal as its parties see it (SPEC 2.4). It has no place for inputs.
type view struct {
	DealID          string          `json:"deal_id"`
	Algorithm       string          `json:"algorithm"`
	Params          json.RawMessage `json:"algorithm_params"`
	Mode            string          `json:"mode"`
	Retention       string          `json:"retention"`
	State           deal.State      `json:"state"`
	Initiator       int             `json:"initiator"`
	Parties         []viewParty     `json:"parties"`
	CommitDeadline  int64           `json:"commit_deadline"`
	RevealDeadline  int64           `json:"reveal_deadline"`
	CreatedAt       int64           `json:"created_at"`
	CommitsClosedAt *int64          `json:"commits_closed_at"`
	RevealsClosedAt *int64          `json:"reveals_closed_at"`
	ComputedAt      *int64          `json:"computed_at"`
	Result          json.RawMessage `json:"result"`
	VoidFlakers     []int           `json:"void_flakers"`
	CertificateID   *string         `json:"certificate_id"`
}

type viewParty struct {
	Index      int     `json:"index"`
	Label      string  `json:"label"`
	Committed  bool    `json:"committed"`
	Commitment *string `json:"commitment"`
	Revealed   bool    `json:"revealed"`
}

// View gives the deal as it stands, after what is due was done.
func (s *Service) View(ctx context.Context, a Access) (idempotency.Response, error) {
	d := a.deal
	for range attempts {
		if _, err := s.settle(ctx, d); err != nil {
			return idempotency.Response{}, err
		}
		st, parties, err := s.store.Standings(ctx, d.DealID)
		if err != nil {
			return idempotency.Response{}, err
		}
		now := s.standing(d, st)
		if step := now.Next(st.Now); step != deal.None && step != deal.Draw {
			continue // the last one acted in between
		}
		v := view{
			DealID: d.DealID, Algorithm: d.Algorithm, Params: d.Params, Mode: d.Mode, Retention: d.Retention, State: now.State(),
			Parties: make([]viewParty, len(parties)), CommitDeadline: d.CommitDeadline, RevealDeadline: d.RevealDeadline, CreatedAt: d.CreatedAt,
			CommitsClosedAt: st.CommitsClosedAt, RevealsClosedAt: st.RevealsClosedAt, ComputedAt: st.ComputedAt,
			Result: st.Result, VoidFlakers: st.VoidFlakers, CertificateID: published(st),
		}
		if v.RevealsClosedAt == nil && now.AllRevealed() { // random.v1, waiting for its round
			v.RevealsClosedAt = &st.LastReveal
		}
		for i, p := range parties {
			v.Parties[i] = viewParty{i, d.Labels[i], p.Commitment != nil, p.Commitment, p.Revealed}
		}
		return respond(200, v)
	}
	return idempotency.Response{}, fmt.Errorf("deal %s does not settle", d.DealID)
}

// published is the certificate's id once it is in the log.
func published(st *store.Status) *string {
	if st.Published {
		return st.CertID
	}
	return nil
}

// Cancel ends a deal that no counterparty has committed to (SPEC 3).
func (s *Service) Cancel(ctx context.Context, a Access, rec *idempotency.Record) (idempotency.Response, error) {
	resp, err := s.Cancelled(ctx, a)
	if err != nil {
		return resp, err
	}
	replay, err := rec.ReplayWith(resp.Status, resp.Body)
	if err != nil {
		return resp, err
	}
	for range attempts {
		done, err := s.store.Cancel(ctx, a.deal.DealID, replay)
		if done {
			endedBy[deal.Cancelled].Inc()
		}
		if err != nil || done {
			return resp, err
		}
		refused := s.refused(ctx, Access{a.deal, 0}, func(d deal.Deal, initiator deal.Party, _ int64) *deal.Refusal {
			return d.Cancel(initiator.Committed)
		})
		if refused != nil {
			return idempotency.Response{}, refused
		}
	}
	return idempotency.Response{}, fmt.Errorf("deal %s is not cancelled although it could be", a.deal.DealID)
}

// Cancelled is the answer to a cancel that stands.
func (s *Service) Cancelled(_ context.Context, a Access) (idempotency.Response, error) {
	return respond(200, struct {
		DealID string     `json:"deal_id"`
		State  deal.State `json:"state"`
	}{a.deal.DealID, deal.Cancelled})
}

// Inputs gives the revealed inputs of an open deal to its parties once it is
// COMPUTED. A sealed or purged deal never gives them out.
func (s *Service) Inputs(ctx context.Context, a Access) (idempotency.Response, error) {
	st, err := s.settle(ctx, a.deal)
	if err != nil {
		return idempotency.Response{}, err
	}
	switch d := s.standing(a.deal, st); {
	case a.deal.Mode != "open" || a.deal.Retention == "purge":
		return idempotency.Response{}, problem.New(problem.InputsSealed, "mode %s with retention %s never gives inputs out; only mode open with retention standard does", a.deal.Mode, a.deal.Retention)
	case d.State() != deal.Computed && d.State() != deal.Certified:
		return idempotency.Response{}, problem.New(problem.InputsNotReady, "the deal is %s; inputs are given out once it is COMPUTED", d.State())
	}
	inputs, err := s.inputs(ctx, a.deal)
	if err != nil {
		return idempotency.Response{}, err
	}
	type row struct {
		Party int             `json:"party"`
		Input json.RawMessage `json:"input"`
		Salt  string          `json:"salt"`
	}
	answer := struct {
		DealID string `json:"deal_id"`
		Inputs []row  `json:"inputs"`
	}{a.deal.DealID, make([]row, len(inputs))}
	for i, in := range inputs {
		answer.Inputs[i] = row{i, in.Canonical, in.Salt}
	}
	return respond(200, answer)
}

// Body reads a JSON object; an error says where the text is wrong and shows
// nothing of it. An empty body is refused unless empty is true.
func Body(raw []byte, empty bool) (map[string]any, error) {
	if empty && len(raw) == 0 {
		return map[string]any{}, nil
	}
	tree, err := canon.Parse(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidJSON, "%s; send one JSON object (I-JSON, integers only)", err)
	}
	body, ok := tree.(map[string]any)
	if !ok {
		return nil, problem.New(problem.InvalidRequest, "the body is %s; it must be an object", kind(tree))
	}
	return body, nil
}
