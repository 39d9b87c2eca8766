package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

var verifyOffline = []string{"verify", "cert.json", "--tree-head", "head.json", "--keys", "keys.json"}

func says(t testing.TB, c *e2e.Ctl, code int, want string, args ...string) {
	t.Helper()
	if _, said := c.Run(code, args...); !strings.Contains(said, want) {
		t.Errorf("fairpactctl %q prints %q, want %q", args, said, want)
	}
}

func failures(t testing.TB, report string) []string {
	t.Helper()
	var r struct {
		Valid  bool
		Checks []struct {
			Name string
			OK   bool
		}
	}
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		t.Fatalf("decode the report: %v in %s", err, report)
	}
	failed := []string{}
	for _, check := range r.Checks {
		if !check.OK {
			failed = append(failed, check.Name)
		}
	}
	slices.Sort(failed)
	if r.Valid != (len(failed) == 0) || len(r.Checks) < 4 {
		t.Errorf("valid is %v and does not match the checks: %s", r.Valid, report)
	}
	return failed
}

func TestCtlSplit(t *testing.T) {
	c := e2e.NewCtl(t, e2e.BaseURL(t))
	c.Create("split.v1", e2e.Body{"items": []string{"car", "boat"}}, "ann", "bob, the second")
	for _, name := range []string{"deal.json", "party-1.json"} {
		if info, err := os.Stat(filepath.Join(c.Dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file %s has %v, want mode 0600 (%v)", name, info, err)
		}
	}
	c.Run(2, "deal", "create", "--algorithm", "split.v1", "--label", "a", "--label", "b", "--params", "params.json", "--out", "deal.json")

	// fairpactctl does not commit to an input that the deal would refuse at the reveal.
	c.Run(0, "seal", c.File("input.json", e2e.Body{"valuations": e2e.Body{"train": 1}}), "--out", "unfit.json")
	says(t, c, 1, `"car"`, "deal", "commit", "unfit.json", "--state", "party-0.json")
	c.Seal(0, e2e.AnnsValues)
	says(t, c, 1, "COMMITS_MISSING", "deal", "reveal", "sealed-0.json", "--state", "party-0.json")
	says(t, c, 1, "CERT_NOT_READY", "deal", "certificate", "--state", "party-0.json")
	c.Seal(1, e2e.BobsValues)
	says(t, c, 1, "ALREADY_COMMITTED", "deal", "commit", "sealed-1.json", "--state", "party-1.json")
	says(t, c, 1, "CANNOT_CANCEL", "deal", "cancel", "--state", "deal.json")
	c.Reveal(0)
	says(t, c, 1, "COMMITMENT_MISMATCH", "deal", "reveal", "sealed-0.json", "--state", "party-1.json")
	c.Reveal(1)
	out, progress := c.Run(0, "deal", "watch", "--state", "party-1.json", "--json")
	var v e2e.View
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.State != "COMPUTED" || v.CertificateID == nil || !strings.Contains(progress, "COMPUTED  2/2 committed  2/2 revealed") {
		t.Errorf("deal watch: %s and progress\n%s\nwant COMPUTED with a certificate and 2/2 revealed", out, progress)
	}

	c.Fetched()
	c.Inputs(2)
	lines := strings.Split(strings.TrimSpace(c.Offline(0, verifyOffline...)), "\n")
	if claims := strings.Join(lines[9:], "\n"); !strings.Contains(claims, "proven         issued   signed by a key that you gave") || !strings.Contains(claims, "not proven     result ") ||
		!strings.HasSuffix(claims, "\nvalid") {
		t.Errorf("verify prints %q, want the issuer proven, the result not, and \"valid\" at the end", lines)
	}
	for _, line := range lines[:9] {
		if !strings.HasPrefix(line, "OK   ") {
			t.Errorf("verify prints %q, want a line that begins with OK", line)
		}
	}
	if failed := failures(t, c.Offline(0, append(verifyOffline, "--inputs", "inputs.json", "--params", "params.json", "--json")...)); len(failed) != 0 {
		t.Errorf("verify with inputs fails the checks %q, want none", failed)
	}
	var status struct {
		Development bool `json:"dev_ephemeral_key"`
	}
	e2e.NewClient(t, e2e.BaseURL(t)).Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	c.Run(map[bool]int{true: 4, false: 0}[status.Development], "verify", "cert.json")                                       // fetches the tree head and the keys
	c.Run(2, "verify", "cert.json", "--base-url", e2e.BaseURL(t)+"/nothing")                                                // no Fairpact service at this URL
	c.Run(1, "verify", "cert.json", "--pubkey", "es256:0281eb5f0949a7554f9fbe2bb1055882b1db99a3498d34cff345da2a4eafe7fc76") // not the key of the service

	c.File("other.json", e2e.Body{"items": []string{"boat", "car"}})
	if failed := failures(t, c.Offline(1, append(verifyOffline, "--inputs", "inputs.json", "--params", "other.json", "--json")...)); !slices.Equal(failed, []string{"result"}) {
		t.Errorf("verify with other params fails the checks %q, want only result", failed)
	}
	c.File("swapped.json", []json.RawMessage{c.Read("sealed-1.json"), c.Read("sealed-0.json")})
	if failed := failures(t, c.Offline(1, append(verifyOffline, "--inputs", "swapped.json", "--params", "params.json", "--json")...)); !slices.Equal(failed, []string{"commitments"}) {
		t.Errorf("verify with swapped inputs fails the checks %q, want only commitments", failed)
	}

	says(t, c, 1, "COMMITMENT_MISMATCH", "deal", "disclose", "sealed-0.json", "--state", "party-1.json")
	for party, missing := range []string{`"missing":[1]`, `"missing":[]`} {
		if out, _ := c.Run(0, "deal", "disclose", fmt.Sprintf("sealed-%d.json", party), "--state", fmt.Sprintf("party-%d.json", party), "--json"); !strings.Contains(strings.ReplaceAll(out, " ", ""), missing) {
			t.Errorf("deal disclose of party %d: %s, want %s", party, out, missing)
		}
	}
	for _, flags := range [][]string{nil, {"--large"}} {
		if out, _ := c.Run(0, append([]string{"deal", "certificate", "--state", "party-1.json"}, flags...)...); !strings.Contains(out, `"openings"`) {
			t.Errorf("deal certificate %q shows no openings after the consent of all: %s", flags, out)
		}
	}

	secrets := c.Secrets()
	if len(secrets) != 3 || !strings.HasPrefix(secrets[0], "fp_") || !strings.HasPrefix(secrets[2], "it_") {
		t.Fatal("the state files do not have the key and two tokens: there is nothing to search for")
	}
	for _, secret := range secrets {
		if strings.Contains(c.Said.String(), secret) {
			t.Errorf("fairpactctl has printed a credential: %.6s…", secret)
		}
	}
}

func TestCtlRandom(t *testing.T) {
	t.Parallel()
	c := e2e.NewCtl(t, e2e.BaseURL(t))
	round := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	c.Create("random.v1", e2e.Body{"beacon_round": round}, "ann", "bob", "cy")
	for i, nonce := range []string{"aa", "0bb", ""} {
		c.Seal(i, e2e.Body{"nonce": nonce})
	}
	says(t, c, 1, "REVEALS_MISSING", "deal", "draw", "--state", "deal.json")
	for i := range 3 {
		c.Reveal(i)
	}
	var first, again struct{ Result json.RawMessage }
	c.Json(&first, "deal", "draw", "--state", "party-2.json")
	c.Json(&again, "deal", "draw", "--state", "deal.json")
	if first.Result == nil || !bytes.Equal(first.Result, again.Result) {
		t.Errorf("the first result is %s and the repeated one %s, want equal", first.Result, again.Result)
	}
	c.Run(0, "deal", "watch", "--state", "deal.json")
	c.Fetched()
	c.Inputs(3)
	out := c.Offline(4, "verify", "bundle.json", "--inputs", "inputs.json")
	if !strings.Contains(out, "OK   draw ") || !strings.Contains(out, "proven         result ") || !strings.HasSuffix(out, "CONSISTENT, ISSUER UNKNOWN\n") {
		t.Errorf("verify of a draw's bundle prints %s, want the result proven, by an unknown issuer", out)
	}
}

func TestCtlCancelAndStatus(t *testing.T) {
	c := e2e.NewCtl(t, e2e.BaseURL(t))
	key, _ := c.Run(0, "api-key")
	c.File("key", []byte(key))
	c.Run(0, "api-key", "--out", "other.key")
	c.Run(0, "deal", "create", "--algorithm", "split.v1", "--label", "a", "--label", "b", "--params", c.File("p", e2e.Body{"items": []string{"x"}}),
		"--out", "deal.json", "--api-key-file", "key", "--commit-in", "10m", "--reveal-in", "20m", "--mode", "open", "--retention", "purge")
	var v struct {
		DealID    string `json:"deal_id"`
		State     string
		Mode      string
		Retention string
		Commit    int64 `json:"commit_deadline"`
		Reveal    int64 `json:"reveal_deadline"`
	}
	c.Json(&v, "deal", "status", "--state", "deal.json")
	if v.State != "OPEN" || v.Mode != "open" || v.Retention != "purge" || v.Reveal-v.Commit != 600 {
		t.Errorf("deal status: %+v, want OPEN, open, purge and 600 s between the deadlines", v)
	}
	says(t, c, 1, "has not ended within 100ms", "deal", "watch", "--state", "deal.json", "--timeout", "100ms")
	var created struct {
		Tokens []struct{ Token string } `json:"invite_tokens"`
	}
	if err := json.Unmarshal(c.Read("deal.json"), &created); err != nil {
		t.Fatal(err)
	}
	alg, _ := algorithm.Lookup("split.v1")
	want := invitation.Text(e2e.BaseURL(t), invitation.Seat{DealID: v.DealID, Algorithm: alg, From: "a", Party: 1, Label: "b", Token: created.Tokens[1].Token, CommitDeadline: v.Commit, RevealDeadline: v.Reveal})
	if text, _ := c.Run(0, "deal", "invite", "--state", "deal.json", "--party", "1", "--text"); text != want+"\n" {
		t.Errorf("the invitation is\n%s\nwant\n%s", text, want)
	}
	// An invitation names the public address of the deployment, not the address that this client uses.
	inside := strings.Replace(e2e.BaseURL(t), "127.0.0.1", "localhost", 1)
	c.File("inside.json", bytes.Replace(c.Read("deal.json"), []byte(e2e.BaseURL(t)), []byte(inside), 1))
	if text, _ := c.Run(0, "deal", "invite", "--state", "inside.json", "--party", "1", "--text"); text != want+"\n" || inside == e2e.BaseURL(t) {
		t.Errorf("through %s the invitation is\n%s\nwant\n%s", inside, text, want)
	}
	says(t, c, 2, "party 0 is the initiator", "deal", "invite", "--state", "deal.json", "--party", "0", "--text")
	says(t, c, 1, "FORBIDDEN", "deal", "cancel", "--deal", v.DealID, "--api-key-file", "other.key")
	if out, _ := c.Run(0, "deal", "cancel", "--deal", v.DealID, "--api-key-file", "key"); !strings.Contains(out, "CANCELLED") {
		t.Errorf("deal cancel by id and key: %s, want CANCELLED", out)
	}
	says(t, c, 1, "is CANCELLED", "deal", "invite", "--state", "deal.json", "--party", "1", "--text")
	if out, _ := c.Run(0, "deal", "watch", "--state", "deal.json"); !strings.Contains(out, "CANCELLED") {
		t.Errorf("deal watch after the cancel: %s, want CANCELLED", out)
	}
	says(t, c, 1, "INVALID", "deal", "create", "--algorithm", "no.v1", "--label", "a", "--label", "b", "--params", "p", "--out", "never.json")
	if _, err := os.Stat(filepath.Join(c.Dir, "never.json")); err == nil {
		t.Error("a refused creation leaves a state file")
	}
}

func TestCtlOutOfReach(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	e2e.Must(t, err)
	address := listener.Addr().String()
	listener.Close()
	c := e2e.NewCtl(t, "http://"+address)
	says(t, c, 2, "unreachable", "api-key")
}
