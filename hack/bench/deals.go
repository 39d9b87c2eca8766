package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

type worker struct {
	*client
	apiKey string
}

// endedDeal is a deal with a certificate. token is the invite token of party 0.
type endedDeal struct{ dealID, certID, token string }

const maxEnded = 5000

// maxWorkers is the largest number of clients. Each client needs one API key, so
// maxWorkers must not exceed the product's default limit: 120 keys a minute for one address.
const maxWorkers = 64

var dealCalls = []string{"create", "commit", "reveal", "last reveal", "certificate"}

func (b *bench) makeWorkers() error {
	for len(b.workers) < maxWorkers {
		w := &worker{client: newClient(b.stack.BaseURL())}
		b.workers = append(b.workers, w)
		var made struct {
			APIKey string `json:"api_key"`
		}
		if _, err := w.call(201, "POST", "/v1/keys", "", struct{}{}, &made); err != nil {
			return err
		}
		w.apiKey = made.APIKey
	}
	return nil
}

// playDeals plays two-party deals for the duration d and adds them to b.ended. It does not
// verify the signed tree heads: call verifyHeads afterwards.
func (b *bench) playDeals(clients int, d time.Duration) (*timed, error) {
	if err := b.makeWorkers(); err != nil {
		return nil, err
	}
	ended := make([][]endedDeal, clients)
	t, err := b.load(clients, d, func(i int, note func(string, time.Duration)) error {
		deal, err := b.playDeal(b.workers[i], note)
		ended[i] = append(ended[i], deal)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, list := range ended {
		b.ended = append(b.ended, list...)
	}
	b.ended = b.ended[max(0, len(b.ended)-maxEnded):]
	return t, nil
}

// verifyHeads fetches and verifies the signed tree head of each tree size in the
// certificates fetched so far. Call verifyHeads after a measurement, so that its time
// does not count.
func (b *bench) verifyHeads() error { return b.heads.fetchAll(b.workers[0].client, b.key) }

type opening struct {
	Input any    `json:"input"`
	Salt  string `json:"salt"`
}

// seal returns an opening (the input and a random salt), the commitment to that opening, and
// the bytes that the party's leaf hashes in the tree whose root is input_root.
func seal(input any) (o opening, commitment string, leaf []byte, err error) {
	canonical, err := canon.Marshal(input)
	if err != nil {
		return o, "", nil, err
	}
	o = opening{input, randomHex(16)}
	return o, canon.Commitment(canonical, []byte(o.Salt)), append(canonical, o.Salt...), nil
}

func randomHex(n int) string {
	random := make([]byte, n)
	rand.Read(random)
	return hex.EncodeToString(random)
}

type createdDeal struct {
	DealID       string `json:"deal_id"`
	InviteTokens []struct {
		Token string `json:"token"`
	} `json:"invite_tokens"`
}

// create creates a split.v1 deal of two parties.
func (w *worker) create(commitDeadline, revealDeadline int64) (deal createdDeal, err error) {
	_, err = w.call(201, "POST", "/v1/deals", w.apiKey, map[string]any{
		"algorithm": "split.v1", "party_labels": []string{"Ana", "Ben"},
		"algorithm_params": map[string]any{"items": []string{"house", "car", "piano"}},
		"commit_deadline":  commitDeadline, "reveal_deadline": revealDeadline,
	}, &deal)
	if err == nil && len(deal.InviteTokens) != 2 {
		err = fmt.Errorf("a deal of two parties got %d invite tokens, want 2", len(deal.InviteTokens))
	}
	return deal, err
}

// sealTwo returns the openings, commitments and leaves of two parties of a split.v1 deal.
func sealTwo() (openings [2]opening, commitments [2]string, leaves [][]byte, err error) {
	for i := range openings {
		var leaf []byte
		valuations := map[string]int{"house": mathrand.IntN(100), "car": mathrand.IntN(100), "piano": 1 + mathrand.IntN(100)}
		if openings[i], commitments[i], leaf, err = seal(map[string]any{"valuations": valuations}); err != nil {
			break
		}
		leaves = append(leaves, leaf)
	}
	return openings, commitments, leaves, err
}

func (b *bench) playDeal(w *worker, note func(string, time.Duration)) (endedDeal, error) {
	openings, commitments, leaves, err := sealTwo()
	if err != nil {
		return endedDeal{}, err
	}
	begin := time.Now()
	last := begin
	lap := func(call string) {
		now := time.Now()
		note(call, now.Sub(last))
		last = now
	}
	deal, err := w.create(begin.Unix()+3600, begin.Unix()+7200)
	if err != nil {
		return endedDeal{}, err
	}
	lap("create")
	path := "/v1/deals/" + deal.DealID
	for i, commitment := range commitments {
		if _, err := w.call(200, "POST", path+"/commit", deal.InviteTokens[i].Token, map[string]string{"commitment": commitment}, nil); err != nil {
			return endedDeal{}, err
		}
		lap("commit")
	}
	for i, call := range []string{"reveal", "last reveal"} {
		if _, err := w.call(200, "POST", path+"/reveal", deal.InviteTokens[i].Token, openings[i], nil); err != nil {
			return endedDeal{}, err
		}
		lap(call)
	}
	text, err := fetchCertificate(w.client, path, deal.InviteTokens[0].Token)
	if err != nil {
		return endedDeal{}, err
	}
	lap("certificate")
	note("deal", last.Sub(begin))
	certID, err := verifyCertificate(text, b.key, b.heads, deal.DealID, certificate.InputRoot(leaves))
	return endedDeal{deal.DealID, certID, deal.InviteTokens[0].Token}, err
}

// fetchCertificate polls while the answer is 409, which means that the certificate is not published yet.
func fetchCertificate(c *client, path, token string) ([]byte, error) {
	for {
		text, err := c.call(200, "GET", path+"/certificate", token, nil, nil)
		if wrong, ok := errors.AsType[*statusError](err); !ok || wrong.status != 409 {
			return text, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
