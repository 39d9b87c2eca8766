package page

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// The front page settles a deal from a file of its seals and the published rounds, as fairpactctl settle
// does, and says that no certificate was issued.
func TestPageSettlesWithoutTheService(t *testing.T) {
	c, p := browser(t)
	ctl := e2e.NewCtl(t, c.Base)
	server := devbeacon.New([]byte("settle"))
	chain := server.Chain()
	const dealID, salt = "d_0123456789abcdefghijkl", "00112233445566778899aabbccddeeff"
	deadline := chain.RoundTime(1000) - timelock.Delay
	round := timelock.RoundOf(chain, deadline)
	file := func(name string, params e2e.Body, inputs ...map[string]any) e2e.Body {
		var seals []e2e.Body
		for i, input := range inputs {
			seal := timelock.Seal(chain, round, timelock.Opening{DealID: dealID, Party: int64(i), Input: input, Salt: salt}.Plaintext(), timelock.Random(make([]byte, 48)))
			seals = append(seals, e2e.Body{"party": i, "commitment": canon.Commitment(canon.Encode(input), []byte(salt)), "seal_hash": timelock.Hash(seal), "seal": seal})
		}
		return e2e.Body{"deal_id": dealID, "seals": seals, "development_beacon": wire.BeaconOf(chain), "declaration": e2e.Body{
			"algorithm": name, "algorithm_params": params, "beacon_chain": chain.Hash, "commit_deadline": deadline, "mode": "open", "party_keys": make([]any, len(inputs)),
			"party_labels": []string{"ann", "bob"}, "retention": "standard", "reveal_deadline": deadline + 3600, "seals": "required",
		}}
	}
	values := func(car, boat int64) map[string]any {
		return map[string]any{"valuations": map[string]any{"car": car, "boat": boat}}
	}
	split := func() e2e.Body {
		return file("split.v1", e2e.Body{"items": []string{"car", "boat"}}, values(70, 30), values(40, 60))
	}
	unsealed := split()
	unsealed["seals"].([]e2e.Body)[1]["seal"] = nil
	beacon := func(with e2e.Body) e2e.Body {
		file, of := split(), e2e.Body{}
		e2e.Must(t, json.Unmarshal([]byte(e2e.JsonText(t, wire.BeaconOf(chain))), &of))
		maps.Copy(of, with)
		maps.DeleteFunc(of, func(_ string, v any) bool { return v == nil })
		file["development_beacon"], file["declaration"].(e2e.Body)["beacon_chain"] = of, of["chain_hash"]
		return file
	}
	sign := func(round int64) string { return hex.EncodeToString(server.Sign(round)) }
	opens, drawn := sign(round), sign(round+5)
	p.open("/", 390, "light")
	settle := func(file e2e.Body, published string) {
		t.Helper()
		p.set("#verify-certificate", e2e.JsonText(t, file))
		p.click("#verify-go")
		p.until("the page asks for the round", "document.querySelector('#rounds')")
		p.set("#rounds", published)
		p.click("#settle")
		p.until("the page answers", "document.querySelector('#settled').textContent || document.querySelector('#verify-report [role=alert]').textContent")
	}
	for name, x := range map[string]struct {
		file e2e.Body
		says string
	}{
		"split":     {split(), "the things were divided."},
		"draw":      {file("random.v1", e2e.Body{"beacon_round": round + 5}, map[string]any{"nonce": "aa"}, map[string]any{"nonce": "0b"}), "was drawn, of 2."},
		"Shapley":   {file("shapley.v1", e2e.Body{"coalition_values": e2e.Body{"0": 1, "0,1": 5}}, map[string]any{"accept": true}, map[string]any{"accept": true}), "5 was shared."},
		"rejection": {file("shapley.v1", e2e.Body{"coalition_values": e2e.Body{"0": 1}}, map[string]any{"accept": true}, map[string]any{"accept": false}), "Nothing is settled, since bob rejected the terms."},
	} {
		settle(x.file, fmt.Sprintf(`{"round":%d,"signature":"%s"} {"round":%d,"signature":"%s"}`, round, opens, round+5, drawn))
		if said := p.text("#settled"); !strings.Contains(said, "no certificate was issued") || !strings.Contains(said, x.says) {
			t.Errorf("%s: the page says %s (%s), want %q and that no certificate was issued", name, said, p.text("#verify-report [role=alert]"), x.says)
			continue
		}
		out, _ := ctl.Run(0, "settle", ctl.File("seals.json", x.file), "--round-signature", opens, "--draw-signature", drawn, "--relay", "http://127.0.0.1:1")
		var theirs, ours any
		e2e.Must(t, json.Unmarshal([]byte(out), &theirs))
		e2e.Must(t, json.Unmarshal([]byte(p.text("#settled pre")), &ours))
		if e2e.JsonText(t, theirs) != e2e.JsonText(t, ours) {
			t.Errorf("%s: the page computes %v, fairpactctl %v", name, ours, theirs)
		}
	}
	p.accessible("settled phone light")
	for name, x := range map[string]struct {
		file      e2e.Body
		published string
		says      string
	}{
		"no signature":                     {split(), "", "missing or does not verify"},
		"another signature":                {split(), drawn, "missing or does not verify"},
		"no seal":                          {unsealed, opens, "party 1 cannot be used: it is not in the file"},
		"quicknet's hash with another key": {beacon(e2e.Body{"chain_hash": algorithm.Quicknet}), opens, "missing or does not verify"},
		"another deal":                     {with(split(), e2e.Body{"deal_id": "d_another"}), opens, "party 0 cannot be used: it does not open the commitment"},
	} {
		settle(x.file, x.published)
		if said := p.text("#verify-report [role=alert]"); !strings.Contains(said, x.says) {
			t.Errorf("%s: the page says %q, want %q", name, said, x.says)
		}
	}
	settle(beacon(e2e.Body{"genesis_seed": nil, "beacon_id": nil}), opens)
	if said := p.text("#settled"); !strings.Contains(said, "Nothing shows that the key in the file belongs to beacon chain") {
		t.Errorf("the page settles with a key that may not be the chain's, and says %q", said)
	}
	p.set("#verify-certificate", e2e.JsonText(t, beacon(e2e.Body{"beacon_id": "another"})))
	p.click("#verify-go")
	p.until("the page refuses a key that is not the chain's", "document.querySelector('#verify-note').textContent.includes('do not hash to')")
}
