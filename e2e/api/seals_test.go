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

// commitSealed commits a party's input with its seal. It reports whether the service accepted it before
// the deadline.
func commitSealed(t *testing.T, d *e2e.CreatedDeal, party int, in e2e.Body, commitDeadline int64) (answer sealed, inTime bool) {
	t.Helper()
	a := d.C.Do("POST", d.Path("/commit"), d.Tokens[party], e2e.Seal(t, in).Timelocked(e2e.BeaconChain(t), d, party, commitDeadline))
	if a.Status == 409 && a.Code() == "DEADLINE_PASSED" {
		return answer, false
	}
	if a.Status != 200 {
		t.Fatalf("commit of party %d: %d %s, want 200 or 409 DEADLINE_PASSED", party, a.Status, a.Body)
	}
	a.Into(t, &answer)
	return answer, true
}

// Every party acts once, and nobody comes back. The service opens the seals at their round.
func TestPartiesActOnce(t *testing.T) {
	t.Parallel()
	c, chain := newClient(t), e2e.BeaconChain(t)
	bodies := map[string]e2e.Body{
		"split": e2e.SplitBody(0, 0), "draw": e2e.RandomBody(2, 0, 0, 0), "rejection": e2e.ShapleyBody(0, 0), "optional": e2e.Retained(e2e.SplitBody(0, 0), "open", "standard"),
	}
	inputs := map[string][]e2e.Body{
		"split": {e2e.AnnsValues, e2e.BobsValues}, "optional": {e2e.AnnsValues, e2e.BobsValues},
		"draw": {{"nonce": "aa"}, {"nonce": "0b"}}, "rejection": {{"accept": true}, {"accept": false}},
	}
	for name, body := range bodies {
		if name != "optional" {
			body["seals"] = "required"
		}
	}
	later := e2e.After(time.Hour)
	refused := c.Create(e2e.Timed(bodies["split"], later, later+140))
	c.Refused(400, "SEAL_REQUIRED", "POST", refused.Path("/commit"), refused.Tokens[0], e2e.Seal(t, e2e.AnnsValues).Act("commit"))
	forged := e2e.Seal(t, e2e.AnnsValues)
	body := forged.Timelocked(chain, refused, 0, later)
	body["seal"] = ""
	c.Refused(400, "INVALID_REQUEST", "POST", refused.Path("/commit"), refused.Tokens[0], body)
	body = forged.Timelocked(chain, refused, 0, later)
	body["seal"] = strings.ToLower(body["seal"].(string))
	c.Refused(400, "INVALID_SEAL", "POST", refused.Path("/commit"), refused.Tokens[0], body)

	deals := map[string]*e2e.CreatedDeal{}
	var round int64
	e2e.InTime(t, 10*time.Second, func(lead time.Duration) bool {
		by := e2e.After(lead)
		round = timelock.RoundOf(chain, by)
		bodies["draw"]["algorithm_params"] = e2e.Body{"beacon_round": chain.RoundAt(by+150) + 1}
		for name, body := range bodies {
			if deals[name] = c.CreateInTime(c.Key(), e2e.Timed(body, by, by+140)); deals[name] == nil {
				return false
			}
		}
		for name, d := range deals {
			for party, in := range inputs[name] {
				got, inTime := commitSealed(t, d, party, in, by)
				if !inTime {
					return false
				}
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
		return true
	})
	split := deals["split"]
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
		if name == "draw" { // the round of the draw comes later
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
