package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

type sealed struct {
	OpensAt int64 `json:"opens_at"`
	Receipt *struct{ Text, Signature string }
	Next    string
}

// commitSealed commits a party's input with its seal and returns the answer.
func commitSealed(t *testing.T, d *e2e.CreatedDeal, party int, in e2e.Body, commitDeadline int64) (answer sealed) {
	t.Helper()
	s := e2e.Seal(t, in)
	d.C.Want(200, "POST", d.Path("/commit"), d.Tokens[party], s.Timelocked(e2e.BeaconChain(t), d, party, commitDeadline)).Into(t, &answer)
	return answer
}

// Every party acts once, and nobody comes back. The service opens the seals at their round.
func TestPartiesActOnce(t *testing.T) {
	t.Parallel()
	c, chain := newClient(t), e2e.BeaconChain(t)
	by := e2e.After(10 * time.Second)
	round := timelock.RoundOf(chain, by)
	drawn := chain.RoundAt(by+150) + 1
	bodies := map[string]e2e.Body{
		"split": e2e.SplitBody(0, 0), "draw": e2e.RandomBody(2, drawn, 0, 0), "rejection": e2e.ShapleyBody(0, 0), "optional": e2e.Retained(e2e.SplitBody(0, 0), "open", "standard"),
	}
	inputs := map[string][]e2e.Body{
		"split": {e2e.AnnsValues, e2e.BobsValues}, "optional": {e2e.AnnsValues, e2e.BobsValues},
		"draw": {{"nonce": "aa"}, {"nonce": "0b"}}, "rejection": {{"accept": true}, {"accept": false}},
	}
	deals := map[string]*e2e.CreatedDeal{}
	for name, body := range bodies {
		if name != "optional" {
			body["seals"] = "required"
		}
		deals[name] = c.Create(e2e.Timed(body, by, by+140))
	}
	split := deals["split"]
	c.Refused(400, "SEAL_REQUIRED", "POST", split.Path("/commit"), split.Tokens[0], e2e.Seal(t, e2e.AnnsValues).Act("commit"))
	forged := e2e.Seal(t, e2e.AnnsValues)
	body := forged.Timelocked(chain, split, 0, by)
	body["seal"] = ""
	c.Refused(400, "INVALID_REQUEST", "POST", split.Path("/commit"), split.Tokens[0], body)
	body = forged.Timelocked(chain, split, 0, by)
	body["seal"] = strings.ToLower(body["seal"].(string))
	c.Refused(400, "INVALID_SEAL", "POST", split.Path("/commit"), split.Tokens[0], body)
	for name, d := range deals {
		for party, in := range inputs[name] {
			got := commitSealed(t, d, party, in, by)
			if got.OpensAt != chain.RoundTime(round) || !strings.Contains(got.Next, fmt.Sprint(got.OpensAt)) || got.Receipt == nil {
				t.Fatalf("%s: %+v, want the time %d and a receipt", name, got, chain.RoundTime(round))
			}
			receipt, err := timelock.ParseReceipt(got.Receipt.Text)
			e2e.Must(t, err)
			if receipt.DealID != d.ID || receipt.Party != int64(party) || receipt.Round != round {
				t.Errorf("%s: receipt %+v", name, receipt)
			}
			var status wire.Status
			c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
			e2e.Must(t, keys.Verify(status.PublicKey, []byte(got.Receipt.Text), got.Receipt.Signature))
		}
	}
	var texts wire.SealTexts
	c.Want(200, "GET", deals["optional"].Path("/seals"), deals["optional"].Tokens[1], nil).Into(t, &texts)
	for i, one := range texts.Seals {
		if one.Party != i || one.Seal == nil || *one.Hash != timelock.Hash(*one.Seal) {
			t.Errorf("seal %d of a deal of mode open: %+v", i, one)
		}
	}
	c.Refused(409, "INPUTS_SEALED", "GET", split.Path("/seals"), split.Tokens[0], nil)
	var declared wire.Declaration
	c.Want(200, "GET", split.Path("/declaration"), split.Tokens[0], nil).Into(t, &declared)
	if s := declared.Seals; s == nil || s.Round != round || !slices.Equal(s.Parties, []string{"sealed", "sealed"}) || !strings.Contains(string(declared.Declared), `"seals":"required"`) {
		t.Errorf("declaration %s, seals %+v", declared.Declared, declared.Seals)
	}
	time.Sleep(time.Until(time.Unix(chain.RoundTime(round), 0)))
	for name, d := range deals {
		within := time.Minute
		if name == "draw" { // the worker draws a minute after the round of the draw
			c.Want(409, "POST", d.Path("/entropy"), d.Tokens[0], nil)
			continue
		}
		var cert struct {
			Outcome     string
			Properties  []string
			VoidFlakers []int `json:"void_flakers"`
		}
		e2e.Must(t, json.Unmarshal(d.Certified(within), &cert))
		want, flakers := "COMPUTED", []int(nil)
		if name == "rejection" {
			want, flakers = "VOID", []int{1}
		}
		if cert.Outcome != want || !slices.Equal(cert.VoidFlakers, flakers) || !slices.Contains(cert.Properties, fmt.Sprintf("opened-by-timelock:%d", round)) {
			t.Errorf("%s: certificate %+v, want %s of %v by round %d", name, cert, want, flakers, round)
		}
		t.Logf("%s: certified %d s after the round is due", name, time.Now().Unix()-chain.RoundTime(round))
	}
	if v := deals["draw"].View(); !v.Parties[0].Revealed || !v.Parties[1].Revealed || v.State != "REVEALING" {
		t.Errorf("the draw is %s, want REVEALING with all inputs revealed", v.State)
	}
	c.Want(200, "GET", split.Path("/declaration"), split.Tokens[0], nil).Into(t, &declared)
	if !slices.Equal(declared.Seals.Parties, []string{"opened", "opened"}) {
		t.Errorf("after the round: %v, want opened", declared.Seals.Parties)
	}
}
