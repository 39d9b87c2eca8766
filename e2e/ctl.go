package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Ctl runs fairpactctl in its own temporary directory.
type Ctl struct {
	t    testing.TB
	Dir  string
	Env  []string
	Said strings.Builder // the output of all commands so far
}

func NewCtl(t testing.TB, base string) *Ctl {
	return &Ctl{t: t, Dir: t.TempDir(), Env: []string{"FAIRPACT_URL=" + base, "PATH=" + os.Getenv("PATH")}}
}

// File writes a file in c.Dir and returns the file's name. content is bytes, or a value to
// encode as JSON.
func (c *Ctl) File(name string, content any) string {
	c.t.Helper()
	writeFile(c.t, filepath.Join(c.Dir, name), content)
	return name
}

// Read reads a file in c.Dir.
func (c *Ctl) Read(name string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// Run runs a fairpactctl command, requires the given exit code and returns the output.
func (c *Ctl) Run(code int, args ...string) (stdout, stderr string) {
	c.t.Helper()
	return c.exec(code, c.command(args...))
}

// Attempt runs a command that may be refused because a deadline has passed, and reports whether it
// succeeded. Any other failure fails the test.
func (c *Ctl) Attempt(args ...string) (stdout string, inTime bool) {
	c.t.Helper()
	code, out, errs := c.try(c.command(args...))
	if code != 0 && !strings.Contains(errs, "DEADLINE_PASSED") && !strings.Contains(errs, "is in the past") {
		c.t.Fatalf("fairpactctl %q: exit code %d, want 0 or DEADLINE_PASSED\n%s%s", args, code, out, errs)
	}
	return out, code == 0
}

// Try runs a command that may fail.
func (c *Ctl) Try(args ...string) (code int, stdout, stderr string) { return c.try(c.command(args...)) }

func (c *Ctl) command(args ...string) *exec.Cmd {
	return exec.CommandContext(c.t.Context(), filepath.Join(Bin, "fairpactctl"), args...)
}

func (c *Ctl) exec(code int, cmd *exec.Cmd) (stdout, stderr string) {
	c.t.Helper()
	got, out, errs := c.try(cmd)
	if got != code {
		c.t.Fatalf("fairpactctl %q: exit code %d, want %d\n%s%s", cmd.Args[1:], got, code, out, errs)
	}
	return out, errs
}

// try fails the test only if the command does not start.
func (c *Ctl) try(cmd *exec.Cmd) (code int, stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		c.t.Fatalf("run %q: %v", cmd.Args, err)
	}
	c.Said.WriteString(out.String() + errs.String())
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Json runs a command with --json and decodes its output.
func (c *Ctl) Json(v any, args ...string) {
	c.t.Helper()
	out, _ := c.Run(0, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		c.t.Fatalf("fairpactctl %q: decode the output %s: %v", args, out, err)
	}
}

// Create creates a deal. It writes the initiator's state file, deal.json, and a state file
// party-i.json for each party i.
func (c *Ctl) Create(algorithm string, params any, labels ...string) {
	c.t.Helper()
	args := []string{"deal", "create", "--algorithm", algorithm, "--params", c.File("params.json", params), "--out", "deal.json"}
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	c.Run(0, args...)
	for i := range labels {
		c.Run(0, "deal", "invite", "--state", "deal.json", "--party", fmt.Sprint(i), "--out", fmt.Sprintf("party-%d.json", i))
	}
}

// Seal seals a party's input and sends the commitment.
func (c *Ctl) Seal(party int, input Body) {
	c.t.Helper()
	name := fmt.Sprintf("sealed-%d.json", party)
	c.Run(0, "seal", c.File("input.json", input), "--out", name)
	c.Run(0, "deal", "commit", name, "--state", fmt.Sprintf("party-%d.json", party))
}

// Reveal sends the input and the salt that Seal stored in a file.
func (c *Ctl) Reveal(party int) {
	c.t.Helper()
	c.Run(0, "deal", "reveal", fmt.Sprintf("sealed-%d.json", party), "--state", fmt.Sprintf("party-%d.json", party))
}

// Inputs writes the sealed inputs of parties 0 to `parties`-1 to inputs.json.
func (c *Ctl) Inputs(parties int) {
	c.t.Helper()
	rows := make([]json.RawMessage, parties)
	for i := range rows {
		rows[i] = c.Read(fmt.Sprintf("sealed-%d.json", i))
	}
	c.File("inputs.json", rows)
}

// Fetched writes the bundle to bundle.json, and its certificate, tree head and keys to cert.json,
// head.json and keys.json.
func (c *Ctl) Fetched() {
	c.t.Helper()
	c.Run(0, "deal", "certificate", "--state", "deal.json", "--out", "bundle.json")
	var bundle map[string]json.RawMessage
	if err := json.Unmarshal(c.Read("bundle.json"), &bundle); err != nil {
		c.t.Fatal(err)
	}
	for member, file := range map[string]string{"certificate": "cert.json", "tree_head": "head.json", "keys": "keys.json"} {
		c.File(file, []byte(bundle[member]))
	}
}

var unshared = sync.OnceValue(func() bool { return exec.Command("unshare", "-n", "true").Run() == nil })

// Offline runs a fairpactctl command without FAIRPACT_URL, and if possible without network
// access. It requires the given exit code and returns the standard output.
func (c *Ctl) Offline(code int, args ...string) string {
	c.t.Helper()
	cmd := c.command(args...)
	if unshared() {
		cmd = exec.CommandContext(c.t.Context(), "unshare", append([]string{"-n"}, cmd.Args...)...)
	}
	env := c.Env
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	defer func() { c.Env = env }()
	out, _ := c.exec(code, cmd)
	return out
}

// Secrets returns the credentials in the state files.
func (c *Ctl) Secrets() (all []string) {
	var s struct {
		APIKey  string `json:"api_key"`
		Invites []struct{ Token string }
	}
	_ = json.Unmarshal(c.Read("deal.json"), &s)
	all = append(all, s.APIKey)
	for i := 0; ; i++ {
		text, err := os.ReadFile(filepath.Join(c.Dir, fmt.Sprintf("party-%d.json", i)))
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
