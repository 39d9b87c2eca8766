package ctl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/signing"
)

// sealTaker is a deployment with one deal, whose party 1 seals.
type sealTaker struct {
	http.ServeMux
	url, link string
	dealID    string // in the declaration
	commits   int
	deadline  int64           // that the deployment declares for commits
	skew      int64           // seconds of its clock
	signer    signing.SeatKey // signs receipts; the zero value signs none
	published []string        // keys in GET /v1/pubkeys; nil: the answer is 404
}

const joinedDeal, joiner = "d_0123456789abcdefghijkl", "it_0123456789"

// sealRound is the round for which the parties of the deal seal: one of the next hour.
var sealRound = timelock.RoundOf(devbeacon.New([]byte("join")).Chain(), time.Now().Unix()+3600)

func newSealTaker(t *testing.T) *sealTaker {
	t.Helper()
	chain := devbeacon.New([]byte("join")).Chain()
	deadline := chain.RoundTime(sealRound) - timelock.Delay
	s := &sealTaker{dealID: joinedDeal, deadline: deadline}
	answer := func(pattern string, of func(*http.Request) any) {
		s.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body := of(r)
			if body == nil {
				http.Error(w, `{"error":"NOT_FOUND: nothing here"}`, http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			ok(t, json.NewEncoder(w).Encode(body))
		})
	}
	answer("GET /v1/beacon", func(*http.Request) any { return wire.BeaconOf(chain) })
	answer("GET /v1/deals/"+joinedDeal+"/declaration", func(*http.Request) any {
		return wire.Declaration{DealID: s.dealID, Party: new(1), Origin: new("https://fairpact.example"), Declared: canon.Encode(map[string]any{
			"algorithm": "split.v1", "algorithm_params": map[string]any{"items": []any{"car", "boat"}}, "beacon_chain": chain.Hash, "commit_deadline": s.deadline, "mode": "sealed",
			"party_keys": []any{nil, nil}, "party_labels": []any{"ann", "bob"}, "retention": "standard", "reveal_deadline": s.deadline + 3600, "seals": "required",
		})}
	})
	answer("POST /v1/deals/"+joinedDeal+"/commit", func(r *http.Request) any {
		var c commitment
		ok(t, json.NewDecoder(r.Body).Decode(&c))
		s.commits++
		made := escrow.Committed{DealID: joinedDeal, State: "REVEALING", Party: 1, Committed: true}
		if c.Seal != "" {
			made.OpensAt = chain.RoundTime(sealRound)
		}
		if s.signer.Label != "" {
			text := timelock.Receipt{Origin: "https://fairpact.example", DealID: joinedDeal, Party: 1, Commitment: c.Commitment, SealHash: timelock.Hash(c.Seal),
				Chain: chain.Hash, Round: timelock.RoundOf(chain, s.deadline), Time: time.Now().Unix() + s.skew}.Message()
			signature, err := s.signer.Sign(text)
			ok(t, err)
			made.Receipt = &escrow.Receipt{Text: string(text), Signature: signature}
		}
		return wire.Committed{Committed: made, Next: "call GET /v1/deals/" + joinedDeal}
	})
	answer("GET /v1/pubkeys", func(*http.Request) any {
		if s.published == nil {
			return nil
		}
		rows := []any{}
		for i, key := range s.published {
			rows = append(rows, map[string]any{"pubkey": key, "state": []string{"current", "retired"}[min(i, 1)]})
		}
		return map[string]any{"keys": rows}
	})
	answer("GET /v1/status", func(*http.Request) any {
		if s.published == nil {
			return nil
		}
		return map[string]any{"pubkey": s.published[0], "legacy_pubkeys": s.published[1:]}
	})
	served := httptest.NewServer(s)
	t.Cleanup(served.Close)
	s.url, s.link = served.URL, served.URL+"/d/"+joinedDeal+"#"+joiner
	return s
}

func receiptKey(t *testing.T) signing.SeatKey {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	_, err := signing.MakeKeyFile(path, "es256")
	ok(t, err)
	key, err := signing.ReadSeatKey(path)
	ok(t, err)
	return key
}

// opens reports whether the seal in a receipt file opens to the input and the salt of a sealed file.
func opens(t *testing.T, receipt, sealedFile string) bool {
	t.Helper()
	var file receiptFile
	text, err := os.ReadFile(receipt)
	ok(t, err)
	ok(t, json.Unmarshal(text, &file))
	beacon := devbeacon.New([]byte("join"))
	key, err := timelock.NewKey(beacon.Chain(), sealRound, beacon.Sign(sealRound))
	ok(t, err)
	checked, err := timelock.Check(beacon.Chain(), file.Seal, sealRound, len(file.Seal))
	ok(t, err)
	plaintext, err := checked.Open(key)
	ok(t, err)
	opening, err := timelock.ParseOpening(plaintext)
	ok(t, err)
	mine, err := (&terminal{}).sealed(sealedFile)
	ok(t, err)
	return opening.DealID == joinedDeal && opening.Party == 1 && opening.Salt == mine.salt && string(canon.Encode(opening.Input)) == string(mine.canonical)
}

// After the commitment, nothing that fails may lose the only copy of the seal: a second commitment is refused.
func TestJoinKeepsTheSealWhateverTheReceipt(t *testing.T) {
	current, former := receiptKey(t), receiptKey(t)
	input := write(t, "input.json", `{"valuations":{"car":70,"boat":30}}`)
	for name, x := range map[string]struct {
		signer    signing.SeatKey
		published []string
		code      int
		says      string
	}{
		"signed by the current key":     {current, []string{current.Label, former.Label}, ExitOK, ""},
		"signed before a rotation":      {former, []string{current.Label, former.Label}, ExitOK, ""},
		"signed by a stranger":          {receiptKey(t), []string{current.Label, former.Label}, ExitFailed, "reveal by hand"},
		"the keys cannot be fetched":    {current, nil, ExitFailed, "reveal by hand"},
		"the service signed no receipt": {signing.SeatKey{}, []string{current.Label}, ExitFailed, "signed no receipt"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSealTaker(t)
			s.signer, s.published = x.signer, x.published
			out := filepath.Join(t.TempDir(), "sealed.json")
			r := run(t, "", "deal", "join", s.link, input, "--out", out, "--development-beacon")
			if r.code != x.code || !strings.Contains(r.err, x.says) || !strings.Contains(r.out, "you are done") || !strings.Contains(r.out, "fairpactctl deal watch (") || strings.Contains(r.out, "GET /v1") || s.commits != 1 {
				t.Errorf("%d commitments, %+v; want one commitment, exit code %d with %q and the answer", s.commits, r, x.code, x.says)
			}
			if !opens(t, out+".receipt", out) {
				t.Error("the seal in the receipt file does not open to the sealed file")
			}
			var file receiptFile
			text, err := os.ReadFile(out + ".receipt")
			ok(t, err)
			ok(t, json.Unmarshal(text, &file))
			if signed := file.Receipt != nil; signed != (x.signer.Label != "") {
				t.Errorf("the file has a receipt: %t", signed)
			}
			if want := map[int]string{ExitOK: x.signer.Label}[x.code]; file.Pubkey != want {
				t.Errorf("the file names the key %q, want %q", file.Pubkey, want)
			}
		})
	}
}

// A file that exists stops the command before it commits.
func TestCommitWithATimelockOverwritesNoFile(t *testing.T) {
	s := newSealTaker(t)
	s.signer = receiptKey(t)
	s.published = []string{s.signer.Label}
	input, dir := write(t, "input.json", `{"valuations":{"car":70,"boat":30}}`), t.TempDir()
	taken, out := write(t, "taken", "x"), filepath.Join(dir, "sealed.json")
	for _, files := range [][]string{{"--out", taken}, {"--out", out, "--receipt", taken}} {
		r := run(t, "", append([]string{"deal", "join", s.link, input, "--development-beacon"}, files...)...)
		if r.code != ExitUsage || !strings.Contains(r.err, taken+" exists") || s.commits != 0 {
			t.Errorf("%v: %d commitments, %+v, want none and exit code %d", files, s.commits, r, ExitUsage)
		}
		if text, err := os.ReadFile(taken); err != nil || string(text) != "x" {
			t.Errorf("%v: the file now holds %q (%v)", files, text, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the refused commands left %v (%v)", left, err)
	}
}

// The receipt proves something only together with the text of the seal.
func TestCommitWithATimelockKeepsTheSeal(t *testing.T) {
	s := newSealTaker(t)
	s.signer = receiptKey(t)
	s.published = []string{s.signer.Label}
	sealedPath := filepath.Join(t.TempDir(), "sealed.json")
	if r := run(t, `{"valuations":{"car":70,"boat":30}}`, "seal", "-", "--out", sealedPath); r.code != ExitOK {
		t.Fatalf("seal: %+v", r)
	}
	t.Setenv("FAIRPACT_TOKEN", joiner)
	r := run(t, "", "deal", "commit", sealedPath, "--timelock", "--development-beacon", "--base-url", s.url, "--deal", joinedDeal)
	if r.code != ExitOK || !opens(t, sealedPath+".receipt", sealedPath) {
		t.Errorf("deal commit --timelock: %+v, want exit code 0 and the seal", r)
	}
	text, err := os.ReadFile(sealedPath)
	ok(t, err)
	t.Chdir(t.TempDir())
	r = run(t, string(text), "deal", "commit", "-", "--timelock", "--development-beacon", "--base-url", s.url, "--deal", joinedDeal)
	if r.code != ExitOK || !opens(t, "fairpact-"+joinedDeal+"-1.json.receipt", sealedPath) {
		t.Errorf("deal commit of standard input: %+v, want exit code 0 and the seal", r)
	}
}

// A deployment that declares a deadline of the past would open the seal at once, before the party has committed. A receipt of
// another time proves nothing to those who were there.
func TestSealsAreForTheFuture(t *testing.T) {
	s := newSealTaker(t)
	s.signer = receiptKey(t)
	s.published = []string{s.signer.Label}
	input := write(t, "input.json", `{"valuations":{"car":70,"boat":30}}`)
	for _, row := range []struct {
		deadline, skew int64
		commits        int
		want           string
	}{
		{time.Now().Unix() - 1, 0, 0, "the commit_deadline is"},
		{1728925953, -1728925953, 0, "the commit_deadline is"},
		{s.deadline, -600, 1, "its time is"},
		{s.deadline, 600, 1, "its time is"},
	} {
		t.Chdir(t.TempDir())
		s.deadline, s.skew, s.commits = row.deadline, row.skew, 0
		r := run(t, "", "deal", "join", s.link, input, "--development-beacon")
		if r.code != ExitFailed || !strings.Contains(r.err, row.want) || s.commits != row.commits {
			t.Errorf("%+v: %+v and %d commits", row, r, s.commits)
		}
		if row.commits == 0 {
			if r := run(t, `{"valuations":{"car":70}}`, "seal", "-", "--timelock", s.link, "--development-beacon"); r.code != ExitFailed || r.out != "" {
				t.Errorf("%+v: seal --timelock: %+v, want no seal", row, r)
			}
		}
	}
}

// A seat signature or a seal for a deal that the link does not name could serve another deployment.
func TestTheDeclarationIsOfTheDealOfTheLink(t *testing.T) {
	s := newSealTaker(t)
	s.dealID = "d_another"
	input := write(t, "input.json", `{"valuations":{"car":70,"boat":30}}`)
	sealedPath := filepath.Join(t.TempDir(), "sealed.json")
	if r := run(t, "", "seal", input, "--out", sealedPath); r.code != ExitOK {
		t.Fatalf("seal: %+v", r)
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	_, err := signing.MakeKeyFile(key, "ed25519")
	ok(t, err)
	t.Setenv("FAIRPACT_TOKEN", joiner)
	for _, args := range [][]string{
		{"deal", "commit", sealedPath, "--seat-key", key, "--origin", "https://fairpact.example", "--base-url", s.url, "--deal", joinedDeal},
		{"deal", "join", s.link, input, "--development-beacon", "--out", filepath.Join(t.TempDir(), "joined.json")},
	} {
		if r := run(t, "", args...); r.code != ExitFailed || !strings.Contains(r.err, `"d_another" instead of `+joinedDeal) || s.commits != 0 {
			t.Errorf("%v: %+v and %d commits, want exit code %d and none", args[:2], r, s.commits, ExitFailed)
		}
	}
}

// The answer names commands; the calls of REST, which it names too, are for --json.
func TestCommitNamesTheNextCommand(t *testing.T) {
	s := newSealTaker(t)
	sealedPath := filepath.Join(t.TempDir(), "sealed.json")
	if r := run(t, "", "seal", write(t, "input.json", `{"valuations":{"car":70,"boat":30}}`), "--out", sealedPath); r.code != ExitOK {
		t.Fatalf("seal: %+v", r)
	}
	t.Setenv("FAIRPACT_TOKEN", joiner)
	for want, more := range map[string][]string{
		fmt.Sprintf("call fairpactctl deal reveal before reveal_deadline %d, then fairpactctl deal watch (--state FILE, or --base-url %s --deal %s with", s.deadline+3600, s.url, joinedDeal): nil,
		"call GET /v1/deals/" + joinedDeal: {"--json"},
	} {
		r := run(t, "", append([]string{"deal", "commit", sealedPath, "--base-url", s.url, "--deal", joinedDeal}, more...)...)
		if r.code != ExitOK || !strings.Contains(r.out, want) || strings.Contains(r.out, "GET /v1") != (more != nil) {
			t.Errorf("%v: %+v, want %q", more, r, want)
		}
	}
}

// A link and an input are enough to take part, and a second run does not touch the files of the first.
func TestJoinNamesItsFiles(t *testing.T) {
	s := newSealTaker(t)
	s.signer = receiptKey(t)
	s.published = []string{s.signer.Label}
	input := write(t, "input.json", `{"valuations":{"car":70,"boat":30}}`)
	t.Chdir(t.TempDir())
	const name = "fairpact-" + joinedDeal + "-1.json"
	r := run(t, "", "deal", "join", s.link, input, "--development-beacon")
	if r.code != ExitOK || !strings.Contains(r.err, name) || !opens(t, name+".receipt", name) {
		t.Errorf("deal join: %+v, want exit code 0 and the name %s", r, name)
	}
	before, err := os.ReadFile(name)
	ok(t, err)
	r = run(t, "", "deal", "join", s.link, input, "--development-beacon")
	if after, err := os.ReadFile(name); err != nil || string(after) != string(before) || r.code != ExitUsage || !strings.Contains(r.err, name+" exists") {
		t.Errorf("deal join again: %+v, and %s holds %q (%v)", r, name, after, err)
	}
}

// An input that the deal would refuse is found before it is sealed, not at the round.
func TestSealWithATimelockChecksTheInput(t *testing.T) {
	s := newSealTaker(t)
	r := run(t, `{"valuations":{"plane":100}}`, "seal", "-", "--timelock", s.link, "--development-beacon")
	if r.code != ExitFailed || !strings.Contains(r.err, "the reveal of this input would be refused") || r.out != "" {
		t.Errorf("an unknown item: %+v, want exit code %d and no seal", r, ExitFailed)
	}
	r = run(t, `{"valuations":{"car":100}}`, "seal", "-", "--timelock", s.link, "--development-beacon", "--json")
	var made struct{ Seal string }
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || r.code != ExitOK || made.Seal == "" {
		t.Errorf("a good input: %+v, want a seal", r)
	}
}

// A file without a proven signer needs the key of somebody who knows it.
func TestReceiptWithoutAKey(t *testing.T) {
	s := newSealTaker(t)
	s.signer = receiptKey(t)
	out := filepath.Join(t.TempDir(), "sealed.json")
	const past = 1000 // a round that anyone can open
	chain := devbeacon.New([]byte("join")).Chain()
	opening := timelock.Opening{DealID: joinedDeal, Party: 1, Input: map[string]any{"valuations": map[string]any{"car": int64(1)}}, Salt: "x"}
	file := receiptFile{Seal: timelock.Seal(chain, past, opening.Plaintext(), timelock.Random{}), Development: new(wire.BeaconOf(chain).BeaconChain)}
	text := timelock.Receipt{Origin: "https://fairpact.example", DealID: joinedDeal, Party: 1, Commitment: canon.Commitment(canon.Encode(opening.Input), []byte("x")),
		SealHash: timelock.Hash(file.Seal), Chain: chain.Hash, Round: past, Time: chain.RoundTime(past) - timelock.Delay - 1}.Message()
	signature, err := s.signer.Sign(text)
	ok(t, err)
	file.Receipt = &escrow.Receipt{Text: string(text), Signature: signature}
	ok(t, file.replace(out+".receipt"))
	relay := httptest.NewServer(devbeacon.New([]byte("join")))
	defer relay.Close()
	if r := run(t, "", "receipt", out+".receipt", "--relay", relay.URL); r.code != ExitFailed || !strings.Contains(r.err, "--pubkey") {
		t.Errorf("without --pubkey: %+v, want exit code %d and a word of --pubkey", r, ExitFailed)
	}
	if r := run(t, "", "receipt", out+".receipt", "--relay", relay.URL, "--pubkey", s.signer.Label); r.code != ExitOK {
		t.Errorf("with --pubkey: %+v, want exit code 0", r)
	}
	s.signer = signing.SeatKey{}
	out += "2"
	run(t, "", "deal", "join", s.link, write(t, "input.json", `{"valuations":{"car":1}}`), "--out", out, "--development-beacon")
	if r := run(t, "", "receipt", out+".receipt", "--relay", relay.URL); r.code != ExitUsage || !strings.Contains(r.err, "has no receipt") {
		t.Errorf("without a receipt: %+v, want exit code %d", r, ExitUsage)
	}
}
