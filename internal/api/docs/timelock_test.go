package docs

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// The protocol's section on seals shows what the code computes.
func TestTimelockSection(t *testing.T) {
	b := blocks(t, Protocol)
	var v struct {
		Round     int64
		Signature string
		Own       []struct{ Random string }
	}
	shared, err := os.ReadFile("../../../e2e/testdata/timelock.json")
	if err == nil {
		err = json.Unmarshal(shared, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	chain := drand.Quicknet()
	plaintext := strings.TrimSpace(b["timelock-plaintext"])
	seal := timelock.Seal(chain, v.Round, []byte(plaintext), timelock.Random(unhex(t, v.Own[0].Random)))
	equal(t, "seal", strings.TrimSpace(seal), strings.TrimSpace(b["timelock-seal"]))
	opening, err := timelock.ParseOpening([]byte(plaintext))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := opening.Reveal("d_EXAMPLE", 0, openings(t)[0].commitment); err != nil {
		t.Error(err)
	}
	receipt, err := timelock.ParseReceipt(strings.TrimSpace(b["timelock-receipt"]) + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := receipt.Matches(chain, seal); err != nil {
		t.Error(err)
	}
	closing := timelock.Closing{DealID: "d_EXAMPLE", Declaration: rows(t, b["declaration-digest"])["declaration-sha256"], Chain: chain.Hash, Round: timelock.RoundOf(chain, 1900003600),
		Commitments: []timelock.ClosedCommitment{{Commitment: openings(t)[0].commitment, SealHash: timelock.Hash(seal)}, {Commitment: openings(t)[1].commitment}}}
	equal(t, "closing", string(closing.Text()), strings.TrimSpace(b["timelock-closing"])+"\n")
	mark, entry := timelock.Mark("d_EXAMPLE"), closing.Entry()
	equal(t, "mark", hex.EncodeToString(mark[:]), rows(t, b["timelock-closing-entry"])["mark"])
	equal(t, "entry", hex.EncodeToString(entry[:]), rows(t, b["timelock-closing-entry"])["entry"])
	shown := rows(t, b["timelock-vector"])
	for what, value := range map[string]string{"random": v.Own[0].Random, "hash": timelock.Hash(seal), "signature": v.Signature} {
		equal(t, what, value, shown[what])
	}
}
