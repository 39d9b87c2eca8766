package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/canon"
)

// scenario is a deal to play: what its parties agreed on, and what each of
// them seals.
type scenario struct {
	title     string
	algorithm string
	labels    []string
	params    func(reveal time.Time) map[string]any
	inputs    []map[string]any
	// How long the parties have to commit and to reveal. The draw of random.v1
	// waits for a round after that, so there it is short.
	commit, reveal time.Duration
}

var scenarios = []scenario{
	{
		title:     "Ana and Ben divide what they inherited",
		algorithm: "split.v1",
		labels:    []string{"Ana", "Ben"},
		params:    always(map[string]any{"items": []string{"house", "car", "piano"}}),
		inputs: []map[string]any{
			{"valuations": map[string]int{"house": 60, "car": 10, "piano": 30}},
			{"valuations": map[string]int{"house": 50, "car": 40, "piano": 10}},
		},
		commit: 10 * time.Minute, reveal: 20 * time.Minute,
	},
	{
		title:     "three agents share what they earned together",
		algorithm: "shapley.v1",
		labels:    []string{"ann", "bob", "cy"},
		params: always(map[string]any{"coalition_values": map[string]int{
			"ann": 12, "bob": 0, "cy": 0, "ann,bob": 60, "ann,cy": 72, "bob,cy": 0, "ann,bob,cy": 100,
		}}),
		inputs: []map[string]any{{"accept": true}, {"accept": true}, {"accept": true}},
		commit: 10 * time.Minute, reveal: 20 * time.Minute,
	},
	{
		title:     "three agents draw one of them, with a public beacon",
		algorithm: "random.v1",
		labels:    []string{"red", "green", "blue"},
		params: func(reveal time.Time) map[string]any {
			// The first round after the reveal deadline: nobody can know it
			// while there is still something to reveal.
			return map[string]any{"beacon_round": beacon.Quicknet().RoundAt(reveal.Unix()) + 1}
		},
		inputs: []map[string]any{{"nonce": randomHex(16)}, {"nonce": randomHex(16)}, {"nonce": randomHex(16)}},
		commit: 10 * time.Second, reveal: 15 * time.Second,
	},
}

func always(params map[string]any) func(time.Time) map[string]any {
	return func(time.Time) map[string]any { return params }
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// newDeal is the body that creates a deal.
type newDeal struct {
	Algorithm      string         `json:"algorithm"`
	PartyLabels    []string       `json:"party_labels"`
	Params         map[string]any `json:"algorithm_params"`
	CommitDeadline int64          `json:"commit_deadline"` // unix seconds
	RevealDeadline int64          `json:"reveal_deadline"` // unix seconds
}

// opening is what a party needs to show what it committed to.
type opening struct {
	Input map[string]any `json:"input"`
	Salt  string         `json:"salt"`
}

// played is a finished deal.
type played struct {
	dealID, certID string
	certificate    []byte
	params         map[string]any
	openings       []opening
}

// play takes one deal from its creation to its certificate.
func (c *client) play(apiKey string, sc scenario) (*played, error) {
	now := time.Now()
	commitBy, revealBy := now.Add(sc.commit), now.Add(sc.reveal)
	p := &played{params: sc.params(revealBy)}

	created, err := c.call(201, "POST", "/v1/deals", apiKey,
		newDeal{sc.algorithm, sc.labels, p.params, commitBy.Unix(), revealBy.Unix()})
	if err != nil {
		return nil, err
	}
	var deal struct {
		DealID       string `json:"deal_id"`
		InviteTokens []struct {
			Party int    `json:"party"`
			Token string `json:"token"`
		} `json:"invite_tokens"`
	}
	if err := json.Unmarshal(created.body, &deal); err != nil {
		return nil, err
	}
	if len(deal.InviteTokens) != len(sc.labels) {
		return nil, fmt.Errorf("%d parties got %d invite tokens", len(sc.labels), len(deal.InviteTokens))
	}
	p.dealID = deal.DealID
	path := "/v1/deals/" + deal.DealID
	token := func(party int) string { return deal.InviteTokens[party].Token }

	for i, label := range sc.labels {
		o := opening{sc.inputs[i], randomHex(16)}
		p.openings = append(p.openings, o)
		sealed, err := canon.Marshal(o.Input)
		if err != nil {
			return nil, err
		}
		c.say("%s seals %s\nwith the salt %s; SHA-256 over both is the commitment.", label, sealed, o.Salt)
		if _, err := c.call(200, "POST", path+"/commit", token(i), map[string]any{"commitment": canon.Commitment(sealed, []byte(o.Salt))}); err != nil {
			return nil, err
		}
	}
	c.say("Everyone has committed: now all reveal.")
	for i := range sc.labels {
		if _, err := c.call(200, "POST", path+"/reveal", token(i), p.openings[i]); err != nil {
			return nil, err
		}
	}
	if sc.algorithm == "random.v1" {
		round := p.params["beacon_round"].(int64)
		due := beacon.Quicknet().RoundTime(round)
		c.say("Beacon round %d comes out after the last chance to reveal, %d s from now: nobody can steer the draw.", round, max(0, due-time.Now().Unix()))
		time.Sleep(time.Until(time.Unix(due, 0)))
		if _, err := c.callUntil(200, "POST", path+"/entropy", token(0)); err != nil {
			return nil, err
		}
	}
	certificate, err := c.callUntil(200, "GET", path+"/certificate", token(0))
	if err != nil {
		return nil, err
	}
	p.certificate = certificate.body
	var ids struct {
		CertID string `json:"cert_id"`
	}
	if err := json.Unmarshal(certificate.body, &ids); err != nil {
		return nil, err
	}
	p.certID = ids.CertID
	return p, nil
}
