package ctl

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/signing"
)

// A receipt file exposes a deployment that names a sealed party a flaker, or drops its commitment.
func TestReceiptExposesAFalseFlaker(t *testing.T) {
	dir := t.TempDir()
	key, err := signing.MakeKeyFile(filepath.Join(dir, "key.pem"), "es256")
	ok(t, err)
	signer, err := signing.ReadSeatKey(filepath.Join(dir, "key.pem"))
	ok(t, err)
	server := devbeacon.New([]byte("receipt"))
	relay := httptest.NewServer(server)
	defer relay.Close()
	chain := server.Chain()
	const dealID, round, salt = "d_0123456789abcdefghijkl", int64(1000), "00112233445566778899aabbccddeeff"
	input, rejects := map[string]any{"accept": true}, map[string]any{"accept": false}
	commits, no := canon.Commitment(canon.Encode(input), []byte(salt)), canon.Commitment(canon.Encode(rejects), []byte(salt))
	files := func(name string, opening timelock.Opening, change func(*timelock.Receipt)) string {
		seal := timelock.Seal(chain, round, opening.Plaintext(), timelock.Random(make([]byte, 48)))
		commitment := canon.Commitment(canon.Encode(opening.Input), []byte(salt))
		r := timelock.Receipt{Origin: "https://fairpact.example", DealID: dealID, Party: 1, Commitment: commitment, SealHash: timelock.Hash(seal), Chain: chain.Hash, Round: round, Time: chain.RoundTime(round) - 100}
		change(&r)
		signature, err := signer.Sign(r.Message())
		ok(t, err)
		served := wire.BeaconOf(chain).BeaconChain
		text, err := json.Marshal(receiptFile{seal, &escrow.Receipt{Text: string(r.Message()), Signature: signature}, key, &served})
		ok(t, err)
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, text, 0o600))
		return path
	}
	certified := func(name string, void string, flakers []int, commitment *string) string {
		hash := strings.Repeat("0d", 32)
		p := certificate.Payload{
			CertVersion: certificate.Version, CertID: "c_1", DealID: dealID, Outcome: certificate.Void, Algorithm: "shapley.v1", Mode: "sealed", Retention: "standard", VoidFlakers: flakers,
			Properties: certificate.Properties(certificate.Facts{Algorithm: "shapley.v1", Retention: "standard", Void: void, Declaration: hash}),
			Parties:    []certificate.Party{{Index: 0, Label: "a", Commitment: &commits, AttestedBy: "initiator"}, {Index: 1, Label: "b", Commitment: commitment, AttestedBy: "initiator"}},
		}
		text, err := p.SigningBytes()
		ok(t, err)
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, text, 0o600))
		return path
	}
	same := func(*timelock.Receipt) {}
	mine := timelock.Opening{DealID: dealID, Party: 1, Input: input, Salt: salt}
	good := files("good", mine, same)
	stranger, rejector := mine, mine
	stranger.Party = 0
	rejector.Input = rejects
	rejected := files("rejected", rejector, same)
	for _, row := range []struct {
		what, file, certificate, says string
		code                          int
	}{
		{"a good seal", good, "", "the seal opens to the commitment", ExitOK},
		{"a party that rejected", rejected, certified("rejected.cert", certificate.Rejected, []int{1}, &no), "the seal opens", ExitOK},
		{"a rejection named an absence", rejected, certified("absent", certificate.MissedReveal, []int{1}, &no), "names party 1 for an absence", ExitFailed},
		{"a false rejector", good, certified("rejector", certificate.Rejected, []int{1}, &commits), "does not reject", ExitFailed},
		{"a false rejector without a reason", good, certified("unsaid", "", []int{1}, &commits), "does not reject", ExitFailed},
		{"another party is named", good, certified("other", certificate.MissedReveal, []int{0}, &commits), "the seal opens", ExitOK},
		{"a false flaker", good, certified("false", certificate.MissedReveal, []int{1}, &commits), "names party 1 for an absence", ExitFailed},
		{"a dropped commitment", good, certified("dropped", certificate.MissedCommit, []int{1}, nil), "does not show the commitment", ExitFailed},
		{"a copied seal", files("copied", stranger, same), "", "may name party 1", ExitFailed},
		{"a receipt after the round", files("late", mine, func(r *timelock.Receipt) { r.Time = chain.RoundTime(round) }), "", "was issued after round", ExitFailed},
		{"another seal", files("other-seal", mine, func(r *timelock.Receipt) { r.SealHash = strings.Repeat("0a", 32) }), "", "is for the seal with hash", ExitFailed},
	} {
		args := []string{"receipt", row.file, "--relay", relay.URL}
		if row.certificate != "" {
			args = append(args, "--certificate", row.certificate)
		}
		var out, errs strings.Builder
		if code := Main(t.Context(), args, nil, &out, &errs); code != row.code || !strings.Contains(out.String()+errs.String(), row.says) {
			t.Errorf("%s: exit code %d with %s%s, want %d with %q", row.what, code, out.String(), errs.String(), row.code, row.says)
		}
		python := exec.Command("python3", append([]string{"../../e2e/verifier/verify.py", "--receipt", row.file, "--pubkey", key}, args[2:]...)...)
		if said, err := python.CombinedOutput(); python.ProcessState.ExitCode() != row.code {
			t.Errorf("%s: verify.py: %v with %s, want exit code %d", row.what, err, said, row.code)
		}
	}
	// A party must not prove an opening by a key of its own for drand quicknet, nor by values that have another hash.
	forged := map[string]func(*receiptFile){
		"quicknet with another key": func(f *receiptFile) {
			f.Development.Hash = drand.Quicknet().Hash
			f.Receipt.Text = strings.Replace(f.Receipt.Text, chain.Hash, f.Development.Hash, 1)
		},
		"another genesis": func(f *receiptFile) { f.Development.Genesis-- },
	}
	for what, change := range forged {
		text, err := os.ReadFile(good)
		ok(t, err)
		var file receiptFile
		ok(t, json.Unmarshal(text, &file))
		change(&file)
		file.Receipt.Signature, err = signer.Sign([]byte(file.Receipt.Text))
		ok(t, err)
		text, err = json.Marshal(file)
		ok(t, err)
		path := filepath.Join(dir, "forged")
		ok(t, os.WriteFile(path, text, 0o600))
		args := []string{path, "--relay", relay.URL, "--pubkey", key}
		var out, errs strings.Builder
		if code := Main(t.Context(), append([]string{"receipt"}, args...), nil, &out, &errs); code == ExitOK {
			t.Errorf("%s: accepted: %s", what, out.String())
		}
		if said, err := exec.Command("python3", append([]string{"../../e2e/verifier/verify.py", "--receipt"}, args...)...).CombinedOutput(); err == nil {
			t.Errorf("%s: verify.py accepts it: %s", what, said)
		}
	}
	var out, errs strings.Builder
	other := "es256:02" + strings.Repeat("0a", 32)
	if code := Main(t.Context(), []string{"receipt", good, "--relay", relay.URL, "--pubkey", other}, nil, &out, &errs); code != ExitFailed {
		t.Errorf("under another key: exit code %d with %s%s", code, out.String(), errs.String())
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
