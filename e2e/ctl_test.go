package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// ctl runs fairpactctl in a folder of its own.
type ctl struct {
	t    testing.TB
	dir  string
	env  []string
	said strings.Builder // all that was ever printed
}

func newCtl(t testing.TB, base string) *ctl {
	return &ctl{t: t, dir: t.TempDir(), env: []string{"FAIRPACT_URL=" + base, "PATH=" + os.Getenv("PATH")}}
}

func (c *ctl) file(name string, content any) string {
	c.t.Helper()
	text, ok := content.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(content); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return name
}

func (c *ctl) read(name string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// run requires an exit code and gives what was printed.
func (c *ctl) run(code int, args ...string) (stdout, stderr string) {
	c.t.Helper()
	return c.exec(code, exec.CommandContext(c.t.Context(), filepath.Join(bin, "fairpactctl"), args...))
}

func (c *ctl) exec(code int, cmd *exec.Cmd) (stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, &out, &errs
	err := cmd.Run()
	if exit, ok := err.(*exec.ExitError); err != nil && !ok || cmd.ProcessState.ExitCode() != code {
		c.t.Fatalf("fairpactctl %q: %v %v, want exit code %d\n%s%s", cmd.Args[1:], err, exit, code, &out, &errs)
	}
	c.said.WriteString(out.String() + errs.String())
	return out.String(), errs.String()
}

// json runs a command with --json and decodes what it printed.
func (c *ctl) json(v any, args ...string) {
	c.t.Helper()
	out, _ := c.run(0, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		c.t.Fatalf("fairpactctl %q: %v in %s", args, err, out)
	}
}

// create makes a deal; its state file is deal.json, and that of party i party-i.json.
func (c *ctl) create(algorithm string, params any, labels ...string) {
	c.t.Helper()
	args := []string{"deal", "create", "--algorithm", algorithm, "--params", c.file("params.json", params), "--out", "deal.json"}
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	c.run(0, args...)
	for i := range labels {
		c.run(0, "deal", "invite", "--state", "deal.json", "--party", fmt.Sprint(i), "--out", fmt.Sprintf("party-%d.json", i))
	}
}

// seal commits to a party's input.
func (c *ctl) seal(party int, input body) {
	c.t.Helper()
	name := fmt.Sprintf("sealed-%d.json", party)
	c.run(0, "commit", c.file("input.json", input), "--out", name)
	c.run(0, "deal", "commit", name, "--state", fmt.Sprintf("party-%d.json", party))
}

func (c *ctl) reveal(party int) {
	c.t.Helper()
	c.run(0, "deal", "reveal", fmt.Sprintf("sealed-%d.json", party), "--state", fmt.Sprintf("party-%d.json", party))
}

// inputs writes inputs.json of what so many parties have sealed.
func (c *ctl) inputs(parties int) {
	c.t.Helper()
	rows := make([]json.RawMessage, parties)
	for i := range rows {
		rows[i] = c.read(fmt.Sprintf("sealed-%d.json", i))
	}
	c.file("inputs.json", rows)
}

// fetched has the certificate and what verifies it in files.
func (c *ctl) fetched() {
	c.t.Helper()
	c.run(0, "deal", "certificate", "--state", "deal.json", "--out", "cert.json", "--tree-head", "head.json", "--status", "status.json")
}

// unshared tells whether this user may take a process off the network.
var unshared = sync.OnceValue(func() bool { return exec.Command("unshare", "-n", "true").Run() == nil })

// offline runs a command without network, where the machine lets us take it
// away, and in any case without an address to go to.
func (c *ctl) offline(code int, args ...string) string {
	c.t.Helper()
	program := filepath.Join(bin, "fairpactctl")
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	if unshared() {
		cmd = exec.CommandContext(c.t.Context(), "unshare", append([]string{"-n", program}, args...)...)
	}
	env := c.env
	c.env = []string{"PATH=" + os.Getenv("PATH")}
	defer func() { c.env = env }()
	out, _ := c.exec(code, cmd)
	return out
}

var verifyOffline = []string{"verify", "cert.json", "--tree-head", "head.json", "--status", "status.json"}

// failures are the checks of a printed report that do not hold.
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
		t.Fatalf("%v in %s", err, report)
	}
	failed := []string{}
	for _, check := range r.Checks {
		if !check.OK {
			failed = append(failed, check.Name)
		}
	}
	slices.Sort(failed)
	if r.Valid != (len(failed) == 0) || len(r.Checks) < 4 {
		t.Errorf("valid is %v: %s", r.Valid, report)
	}
	return failed
}

// secrets are the credentials of the state file.
func (c *ctl) secrets() (all []string) {
	var s struct {
		APIKey  string `json:"api_key"`
		Invites []struct{ Token string }
	}
	_ = json.Unmarshal(c.read("deal.json"), &s)
	all = append(all, s.APIKey)
	for i := 0; ; i++ {
		text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("party-%d.json", i)))
		if err != nil {
			return all
		}
		var p struct {
			Invites []struct{ Token string } `json:"invite_tokens"`
		}
		_ = json.Unmarshal(text, &p)
		all = append(all, p.Invites[0].Token)
	}
}

func TestCtlSplit(t *testing.T) {
	c := newCtl(t, baseURL(t))
	c.create("split.v1", body{"items": []string{"car", "boat"}}, "ann", "bob, the second")
	for _, name := range []string{"deal.json", "party-1.json"} {
		if info, err := os.Stat(filepath.Join(c.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	c.run(2, "deal", "create", "--algorithm", "split.v1", "--label", "a", "--label", "b", "--params", "params.json", "--out", "deal.json")

	// An input that could never be revealed is not committed to.
	c.run(0, "commit", c.file("input.json", body{"valuations": body{"train": 1}}), "--out", "unfit.json")
	if _, said := c.run(1, "deal", "commit", "unfit.json", "--state", "party-0.json"); !strings.Contains(said, `"car"`) {
		t.Errorf("said %s", said)
	}
	c.seal(0, annsValues)
	if _, said := c.run(1, "deal", "reveal", "sealed-0.json", "--state", "party-0.json"); !strings.Contains(said, "COMMITS_MISSING") {
		t.Errorf("said %s", said)
	}
	if _, said := c.run(1, "deal", "certificate", "--state", "party-0.json"); !strings.Contains(said, "CERT_NOT_READY") {
		t.Errorf("said %s", said)
	}
	c.seal(1, bobsValues)
	if _, said := c.run(1, "deal", "commit", "sealed-1.json", "--state", "party-1.json"); !strings.Contains(said, "ALREADY_COMMITTED") {
		t.Errorf("said %s", said)
	}
	if _, said := c.run(1, "deal", "cancel", "--state", "deal.json"); !strings.Contains(said, "CANNOT_CANCEL") {
		t.Errorf("said %s", said)
	}
	c.reveal(0)
	if _, said := c.run(1, "deal", "reveal", "sealed-0.json", "--state", "party-1.json"); !strings.Contains(said, "COMMITMENT_MISMATCH") {
		t.Errorf("said %s", said)
	}
	c.reveal(1)
	out, progress := c.run(0, "deal", "watch", "--state", "party-1.json", "--json")
	var v view
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.State != "COMPUTED" || v.CertificateID == nil || !strings.Contains(progress, "COMPUTED  2/2 committed  2/2 revealed") {
		t.Errorf("%s\n%s", out, progress)
	}

	c.fetched()
	c.inputs(2)
	lines := strings.Split(strings.TrimSpace(c.offline(0, verifyOffline...)), "\n")
	if len(lines) != 10 || lines[9] != "valid" {
		t.Errorf("%q", lines)
	}
	for _, line := range lines[:9] {
		if !strings.HasPrefix(line, "OK   ") {
			t.Error(line)
		}
	}
	if failed := failures(t, c.offline(0, append(verifyOffline, "--inputs", "inputs.json", "--params", "params.json", "--json")...)); len(failed) != 0 {
		t.Error(failed)
	}
	c.run(0, "verify", "cert.json")                                                                                         // fetches head and keys
	c.run(2, "verify", "cert.json", "--base-url", baseURL(t)+"/nothing")                                                    // no Fairpact there
	c.run(1, "verify", "cert.json", "--pubkey", "es256:0281eb5f0949a7554f9fbe2bb1055882b1db99a3498d34cff345da2a4eafe7fc76") // another's key

	out = c.offline(0, "recompute", "cert.json", "--inputs", "inputs.json", "--params", "params.json")
	var cert struct{ Result json.RawMessage }
	if err := json.Unmarshal(c.read("cert.json"), &cert); err != nil {
		t.Fatal(err)
	}
	if _, result, ok := strings.Cut(out, "\nresult "); !ok || !sameJSON(t, []byte(result), cert.Result) {
		t.Errorf("%s\n%s", out, cert.Result)
	}
	c.file("other.json", body{"items": []string{"boat", "car"}})
	if failed := failures(t, c.offline(1, "recompute", "cert.json", "--inputs", "inputs.json", "--params", "other.json", "--json")); !slices.Equal(failed, []string{"result"}) {
		t.Error(failed)
	}
	c.file("swapped.json", []json.RawMessage{c.read("sealed-1.json"), c.read("sealed-0.json")})
	if failed := failures(t, c.offline(1, "recompute", "cert.json", "--inputs", "swapped.json", "--params", "params.json", "--json")); !slices.Equal(failed, []string{"commitments", "input_root", "result"}) {
		t.Error(failed)
	}

	secrets := c.secrets()
	if len(secrets) != 3 || !strings.HasPrefix(secrets[0], "fp_") || !strings.HasPrefix(secrets[2], "it_") {
		t.Fatal("the secrets are not where this test looks for them")
	}
	for _, secret := range secrets {
		if strings.Contains(c.said.String(), secret) {
			t.Errorf("a credential was printed: %.6s…", secret)
		}
	}
}

func sameJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func TestCtlRandom(t *testing.T) {
	t.Parallel()
	c := newCtl(t, baseURL(t))
	round := beaconChain(t).RoundAt(time.Now().Unix()) - 10
	c.create("random.v1", body{"beacon_round": round}, "ann", "bob", "cy")
	for i, nonce := range []string{"aa", "0bb", ""} {
		c.seal(i, body{"nonce": nonce})
	}
	if _, said := c.run(1, "deal", "entropy", "--state", "deal.json"); !strings.Contains(said, "REVEALS_MISSING") {
		t.Errorf("said %s", said)
	}
	for i := range 3 {
		c.reveal(i)
	}
	var first, again struct{ Result json.RawMessage }
	c.json(&first, "deal", "entropy", "--state", "party-2.json")
	c.json(&again, "deal", "entropy", "--state", "deal.json")
	if first.Result == nil || !bytes.Equal(first.Result, again.Result) {
		t.Errorf("%s, then %s", first.Result, again.Result)
	}
	c.run(0, "deal", "watch", "--state", "deal.json")
	c.fetched()
	c.inputs(3)
	out := c.offline(0, append(verifyOffline, "--inputs", "inputs.json", "--params", "params.json")...)
	if !strings.Contains(out, "OK   draw ") {
		t.Error(out)
	}
	c.offline(0, "recompute", "cert.json", "--inputs", "inputs.json", "--params", "params.json")
}

func TestCtlShapley(t *testing.T) {
	for name, row := range map[string]struct {
		accept  bool
		outcome string
	}{"accepted": {true, "COMPUTED"}, "rejected": {false, "VOID"}} {
		t.Run(name, func(t *testing.T) {
			c := newCtl(t, baseURL(t))
			c.create("shapley.v1", body{"coalition_values": body{"ann": 60, "bob": 0, "ann,bob": 120}}, "ann", "bob")
			c.seal(0, body{"accept": true})
			c.seal(1, body{"accept": row.accept})
			c.reveal(0)
			c.reveal(1)
			var v view
			c.json(&v, "deal", "watch", "--state", "party-0.json", "--timeout", "1m")
			if v.State != row.outcome {
				t.Errorf("%+v", v)
			}
			c.fetched()
			c.inputs(2)
			c.offline(0, append(verifyOffline, "--inputs", "inputs.json", "--params", "params.json")...)
			if row.accept {
				c.offline(0, "recompute", "cert.json", "--inputs", "inputs.json", "--params", "params.json")
			}
		})
	}
}

func TestCtlCancelAndStatus(t *testing.T) {
	c := newCtl(t, baseURL(t))
	key, _ := c.run(0, "key")
	c.file("key", []byte(key))
	c.run(0, "key", "--out", "other.key")
	c.run(0, "deal", "create", "--algorithm", "split.v1", "--label", "a", "--label", "b", "--params", c.file("p", body{"items": []string{"x"}}),
		"--out", "deal.json", "--api-key-file", "key", "--commit-in", "10m", "--reveal-in", "20m", "--mode", "open", "--retention", "purge")
	var v struct {
		DealID    string `json:"deal_id"`
		State     string
		Mode      string
		Retention string
		Commit    int64 `json:"commit_deadline"`
		Reveal    int64 `json:"reveal_deadline"`
	}
	c.json(&v, "deal", "status", "--state", "deal.json")
	if v.State != "OPEN" || v.Mode != "open" || v.Retention != "purge" || v.Reveal-v.Commit != 600 {
		t.Errorf("%+v", v)
	}
	if _, said := c.run(1, "deal", "watch", "--state", "deal.json", "--timeout", "100ms", "--every", "10ms"); !strings.Contains(said, "has not ended within 100ms") {
		t.Errorf("said %s", said)
	}
	// By id and key, without the state file; another's key is refused.
	if _, said := c.run(1, "deal", "cancel", "--deal", v.DealID, "--api-key-file", "other.key"); !strings.Contains(said, "FORBIDDEN") {
		t.Errorf("said %s", said)
	}
	if out, _ := c.run(0, "deal", "cancel", "--deal", v.DealID, "--api-key-file", "key"); !strings.Contains(out, "CANCELLED") {
		t.Error(out)
	}
	if out, _ := c.run(0, "deal", "watch", "--state", "deal.json"); !strings.Contains(out, "CANCELLED") {
		t.Error(out)
	}
	if _, said := c.run(1, "deal", "create", "--algorithm", "no.v1", "--label", "a", "--label", "b", "--params", "p", "--out", "never.json"); !strings.Contains(said, "INVALID") {
		t.Errorf("said %s", said)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "never.json")); err == nil {
		t.Error("a refused creation leaves a state file")
	}
}

// A service that is not there is no refusal.
func TestCtlOutOfReach(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	c := newCtl(t, "http://"+address)
	if _, said := c.run(2, "key"); !strings.Contains(said, "out of reach") {
		t.Errorf("said %s", said)
	}
}

// The binary gives the independent verifier's verdict with no network: one case
// of that verifier's tests for each way in which a case fails there. The tests
// of package ctl hold the command line to all of them, in one process.
func TestCtlAgreesWithTheIndependentVerifier(t *testing.T) {
	t.Parallel()
	text, err := exec.Command("python3", "verifier/cases.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Certificate json.RawMessage
		Head        json.RawMessage `json:"tree_head"`
		Inputs      json.RawMessage
		Params      json.RawMessage
		Keys        json.RawMessage
		Failed      []string
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	c := newCtl(t, "")
	seen := map[string]bool{}
	for i, x := range cases {
		document := x.Keys[0] == '{'
		way := fmt.Sprint(x.Failed, string(x.Inputs) == "null", document)
		if seen[way] || string(x.Keys) == "[]" || slices.Contains(x.Failed, "unreadable") || string(x.Inputs) != "null" && x.Inputs[0] != '[' { // the last three are wrong usage here, no verdict
			continue
		}
		seen[way] = true
		args := []string{"verify", c.file("cert.json", []byte(x.Certificate)), "--tree-head", c.file("head.json", []byte(x.Head)), "--json"}
		var labels []string
		if document {
			args = append(args, "--keys", c.file("keys.json", []byte(x.Keys)))
		} else if err := json.Unmarshal(x.Keys, &labels); err != nil {
			t.Fatal(err)
		}
		for _, key := range labels {
			args = append(args, "--pubkey", key)
		}
		if string(x.Inputs) != "null" {
			args = append(args, "--inputs", c.file("inputs.json", []byte(x.Inputs)))
			if string(x.Params) != "null" {
				args = append(args, "--params", c.file("params.json", []byte(x.Params)))
			}
		}
		code := 0
		if len(x.Failed) > 0 {
			code = 1
		}
		if failed := failures(t, c.offline(code, args...)); !slices.Equal(failed, x.Failed) {
			t.Errorf("case %d fails %v, the independent verifier fails %v", i, failed, x.Failed)
		}
	}
	if len(seen) < 15 {
		t.Errorf("%d ways to fail: too few to mean anything", len(seen))
	}
}
