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

// Ctl runs fairpactctl in a folder of its own.
type Ctl struct {
	t    testing.TB
	Dir  string
	Env  []string
	Said strings.Builder // all that was ever printed
}

func NewCtl(t testing.TB, base string) *Ctl {
	return &Ctl{t: t, Dir: t.TempDir(), Env: []string{"FAIRPACT_URL=" + base, "PATH=" + os.Getenv("PATH")}}
}

func (c *Ctl) File(name string, content any) string {
	c.t.Helper()
	text, ok := content.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(content); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.Dir, name), text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return name
}

func (c *Ctl) Read(name string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// Run requires an exit code and gives what was printed.
func (c *Ctl) Run(code int, args ...string) (stdout, stderr string) {
	c.t.Helper()
	return c.exec(code, exec.CommandContext(c.t.Context(), filepath.Join(Bin, "fairpactctl"), args...))
}

func (c *Ctl) exec(code int, cmd *exec.Cmd) (stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, &out, &errs
	err := cmd.Run()
	if exit, ok := err.(*exec.ExitError); err != nil && !ok || cmd.ProcessState.ExitCode() != code {
		c.t.Fatalf("fairpactctl %q: %v %v, want exit code %d\n%s%s", cmd.Args[1:], err, exit, code, &out, &errs)
	}
	c.Said.WriteString(out.String() + errs.String())
	return out.String(), errs.String()
}

// Json runs a command with --json and decodes what it printed.
func (c *Ctl) Json(v any, args ...string) {
	c.t.Helper()
	out, _ := c.Run(0, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		c.t.Fatalf("fairpactctl %q: %v in %s", args, err, out)
	}
}

// Create makes a deal; its state file is deal.json, and that of party i party-i.json.
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

// Seal commits to a party's input.
func (c *Ctl) Seal(party int, input Body) {
	c.t.Helper()
	name := fmt.Sprintf("sealed-%d.json", party)
	c.Run(0, "commit", c.File("input.json", input), "--out", name)
	c.Run(0, "deal", "commit", name, "--state", fmt.Sprintf("party-%d.json", party))
}

func (c *Ctl) Reveal(party int) {
	c.t.Helper()
	c.Run(0, "deal", "reveal", fmt.Sprintf("sealed-%d.json", party), "--state", fmt.Sprintf("party-%d.json", party))
}

// Inputs writes inputs.json of what so many parties have sealed.
func (c *Ctl) Inputs(parties int) {
	c.t.Helper()
	rows := make([]json.RawMessage, parties)
	for i := range rows {
		rows[i] = c.Read(fmt.Sprintf("sealed-%d.json", i))
	}
	c.File("inputs.json", rows)
}

// Fetched has the certificate and what verifies it in files.
func (c *Ctl) Fetched() {
	c.t.Helper()
	c.Run(0, "deal", "certificate", "--state", "deal.json", "--out", "cert.json", "--tree-head", "head.json", "--status", "status.json")
}

// unshared reports whether this user may take a process off the network.
var unshared = sync.OnceValue(func() bool { return exec.Command("unshare", "-n", "true").Run() == nil })

// Offline runs a command without network, where the machine lets us take it
// away, and in any case without an address to go to.
func (c *Ctl) Offline(code int, args ...string) string {
	c.t.Helper()
	program := filepath.Join(Bin, "fairpactctl")
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	if unshared() {
		cmd = exec.CommandContext(c.t.Context(), "unshare", append([]string{"-n", program}, args...)...)
	}
	env := c.Env
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	defer func() { c.Env = env }()
	out, _ := c.exec(code, cmd)
	return out
}

// Secrets are the credentials of the state file.
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
