package ctl

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// A file of seals settles the deal without the service, and does not settle what does not fit.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	server := devbeacon.New([]byte("settle"))
	relay := httptest.NewServer(server)
	defer relay.Close()
	chain := server.Chain()
	const dealID, salt = "d_0123456789abcdefghijkl", "00112233445566778899aabbccddeeff"
	deadline := chain.RoundTime(1000) - timelock.Delay
	round := timelock.RoundOf(chain, deadline)
	write := func(name string, v any) string {
		t.Helper()
		text, err := json.Marshal(v)
		ok(t, err)
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, text, 0o600))
		return path
	}
	file := func(name string, params map[string]any, inputs ...map[string]any) *sealsFile {
		labels := []any{"ann", "bob", "cy"}[:len(inputs)]
		served := wire.BeaconOf(chain).BeaconChain
		f := &sealsFile{Development: &served, Declaration: canon.Encode(map[string]any{
			"algorithm": name, "algorithm_params": params, "beacon_chain": chain.Hash, "commit_deadline": deadline, "mode": "open",
			"party_keys": make([]any, len(inputs)), "party_labels": labels, "retention": "standard", "reveal_deadline": deadline + 3600, "seals": "required",
		})}
		f.DealID = dealID
		for i, input := range inputs {
			seal := timelock.Seal(chain, round, timelock.Opening{DealID: dealID, Party: int64(i), Input: input, Salt: salt}.Plaintext(), timelock.Random(make([]byte, 48)))
			f.Seals = append(f.Seals, escrow.SealText{Party: i, Commitment: canon.Commitment(canon.Encode(input), []byte(salt)), Hash: new(timelock.Hash(seal)), Seal: &seal})
		}
		return f
	}
	split := func() *sealsFile {
		return file("split.v1", map[string]any{"items": []any{"car", "boat"}},
			map[string]any{"valuations": map[string]any{"car": int64(70), "boat": int64(30)}}, map[string]any{"valuations": map[string]any{"car": int64(40), "boat": int64(60)}})
	}
	opening := write("opening.json", map[string]any{"deal_id": dealID, "party": 1, "input": map[string]any{"valuations": map[string]any{"car": 40, "boat": 60}}, "salt": salt})
	shares := `"value_ppb":636363636`
	for name, x := range map[string]struct {
		file  *sealsFile
		args  []string
		code  int
		wants string
	}{
		"split":                {split(), nil, 0, shares},
		"given signature":      {split(), []string{"--round-signature", hex.EncodeToString(server.Sign(round)), "--relay", "http://127.0.0.1:1"}, 0, shares},
		"another signature":    {split(), []string{"--round-signature", hex.EncodeToString(server.Sign(round + 1))}, 2, "does not verify"},
		"draw":                 {file("random.v1", map[string]any{"beacon_round": round + 5}, map[string]any{"nonce": "aa"}, map[string]any{"nonce": "0b"}), nil, 0, `"winner":`},
		"Shapley":              {file("shapley.v1", map[string]any{"coalition_values": map[string]any{"0": int64(1), "0,1": int64(5)}}, map[string]any{"accept": true}, map[string]any{"accept": true}), nil, 0, `"total":5`},
		"rejection":            {file("shapley.v1", map[string]any{"coalition_values": map[string]any{"0": int64(1)}}, map[string]any{"accept": true}, map[string]any{"accept": false}), nil, 0, `"rejected":[1]`},
		"changed commitment":   {changed(split(), func(f *sealsFile) { f.Seals[1].Commitment = f.Seals[0].Commitment }), nil, 1, "the seal of party 1 does not open to its commitment"},
		"seals swapped":        {changed(split(), func(f *sealsFile) { f.Seals[0].Seal, f.Seals[1].Seal = f.Seals[1].Seal, f.Seals[0].Seal }), nil, 1, "the seal of party 0"},
		"no seal":              {changed(split(), func(f *sealsFile) { f.Seals[1].Seal = nil }), nil, 1, "no seal of party 1: give its opening"},
		"no seal, but opening": {changed(split(), func(f *sealsFile) { f.Seals[1].Seal = nil }), []string{"--opening", opening}, 0, shares},
		"another deal":         {changed(split(), func(f *sealsFile) { f.DealID = "d_another" }), nil, 1, "for another deal or party"},
		"another chain":        {changed(split(), func(f *sealsFile) { f.Development = nil }), nil, 2, "the deal declares the beacon chain"},
		"quicknet's hash with another key": {changed(split(), func(f *sealsFile) {
			f.Development.Hash = algorithm.Quicknet
			f.Declaration = bytes.ReplaceAll(f.Declaration, []byte(chain.Hash), []byte(algorithm.Quicknet))
		}), []string{"--round-signature", hex.EncodeToString(server.Sign(round))}, 2, "the beacon signature does not verify"},
		"a key that is not the chain's":     {changed(split(), func(f *sealsFile) { f.Development.ID = "another" }), nil, 2, "hash to"},
		"a key that may not be the chain's": {changed(split(), func(f *sealsFile) { f.Development.Seed, f.Development.ID = "", "" }), nil, 0, "nothing shows that the key in the file belongs to beacon chain"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			args := append([]string{"--json", "settle", write("seals.json", x.file), "--relay", relay.URL}, x.args...)
			code := Main(t.Context(), args, strings.NewReader(""), &out, &errs)
			said := strings.NewReplacer(" ", "", "\n", "").Replace(out.String() + errs.String())
			if code != x.code || !strings.Contains(said, strings.ReplaceAll(x.wants, " ", "")) {
				t.Errorf("exit code %d, want %d with %s:\n%s%s", code, x.code, x.wants, out.String(), errs.String())
			}
			if code == 0 && !strings.Contains(errs.String(), "no certificate was issued") {
				t.Errorf("it does not say that no certificate was issued: %s", errs.String())
			}
		})
	}
}

func changed(f *sealsFile, change func(*sealsFile)) *sealsFile {
	change(f)
	return f
}
