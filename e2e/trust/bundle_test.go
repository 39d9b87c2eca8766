package trust

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

type bundle struct {
	LogProof string `json:"log_proof"`
	Beacon   *struct{}
	Own      *struct {
		Party int
		Salt  string
		Path  []string `json:"input_path"`
	} `json:"own_input"`
}

// Unless all parties may see all inputs, the service puts no input or salt into a party's bundle, because
// the initiator may still have the party's invite token and fetch the bundle. fairpactctl adds the party's
// own input.
func TestBundleVerifiesOffline(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	split := []e2e.Body{{"valuations": e2e.Body{"car": 4711, "boat": 1}}, {"valuations": e2e.Body{"car": 2, "boat": 1147}}}
	for name, x := range map[string]struct {
		request   e2e.Body
		inputs    []e2e.Body
		own, path bool // own: the bundle has the party's input; path: the bundle has the input's Merkle path to input_root
	}{
		"sealed":    {e2e.SplitBody(time.Hour, 2*time.Hour), split, true, true},
		"open":      {e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "open", "standard"), split, true, true},
		"purged":    {e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "sealed", "purge"), split, false, false},
		"draw":      {e2e.RandomBody(3, past, time.Hour, 2*time.Hour), nonces(3), true, true},
		"rejection": {e2e.ShapleyBody(time.Hour, 2*time.Hour), []e2e.Body{{"accept": false}, nil}, true, false},
		"open VOID": {e2e.Retained(e2e.ShapleyBody(time.Hour, 2*time.Hour), "open", "standard"), []e2e.Body{{"accept": true}, {"accept": false}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.In(t)
			d := c.Create(x.request)
			var sealed []e2e.Sealed
			for party, in := range x.inputs {
				s := e2e.Seal(t, in)
				if in == nil {
					s = e2e.Seal(t, e2e.Body{"accept": true})
				}
				sealed = append(sealed, s)
				d.Commit(party, s)
			}
			c.Refused(409, "CERT_NOT_READY", "GET", d.Path("/bundle"), d.Tokens[0], nil)
			for party, in := range x.inputs {
				if in != nil {
					d.Reveal(party, sealed[party])
				}
			}
			if x.request["algorithm"] == "random.v1" {
				c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
			}
			d.Certified(e2e.DefaultTimeout)
			c.Refused(403, "FORBIDDEN", "GET", d.Path("/bundle"), d.Key, nil)

			var status struct{ Pubkey string }
			c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
			shown := name == "open" || name == "draw" // all parties see all inputs
			for party, s := range sealed {
				holdsInputs(t, c, d, party, sealed, shown)
				text, noted := fetched(t, c, d, party, &s)
				var b bundle
				if err := json.Unmarshal(text, &b); err != nil {
					t.Fatal(err)
				}
				own := x.own && x.inputs[party] != nil
				if (b.Own != nil) != own || own && (b.Own.Party != party || b.Own.Salt != s.Salt || (b.Own.Path != nil) != x.path) {
					t.Errorf("bundle of party %d: own input %+v, want one: %v", party, b.Own, own)
				}
				if strings.Contains(noted, "missing in the bundle: your input") == own {
					t.Errorf("party %d: fairpactctl prints %q", party, noted)
				}
				for other, s := range sealed {
					if other != party && strings.Contains(string(text), s.Salt) != shown {
						t.Errorf("the bundle of party %d contains the salt of party %d: %v", party, other, !shown)
					}
				}
				if (b.Beacon != nil) != (x.request["algorithm"] == "random.v1") || b.LogProof == "" {
					t.Errorf("bundle of party %d: beacon %v and log_proof %q", party, b.Beacon, b.LogProof)
				}
				offline := e2e.NewCtl(t, "http://127.0.0.1:1")
				file := offline.File("bundle.json", text)
				said, _ := offline.Run(0, "verify", file, "--pubkey", status.Pubkey)
				for _, want := range []string{"OK   log_proof", "OK   checkpoint_signature", "not proven     cosigned", map[bool]string{true: "OK   own_input", false: "result"}[own]} {
					if !strings.Contains(said, want) {
						t.Errorf("party %d: %q is not in\n%s", party, want, said)
					}
				}
				if good, said := e2e.Verifier(t, "--bundle", filepath.Join(offline.Dir, file), "--pubkey", status.Pubkey); !good {
					t.Errorf("the independent verifier rejects the bundle:\n%s", said)
				}
				forged := offline.File("forged.json", []byte(strings.Replace(string(text), `"cert_version":"1"`, `"cert_version":"2"`, 1)))
				offline.Run(1, "verify", forged)
			}
		})
	}
}

func holdsInputs(t *testing.T, c *e2e.Client, d *e2e.CreatedDeal, party int, sealed []e2e.Sealed, shown bool) {
	t.Helper()
	overMCP := c.Raw("get_certificate", e2e.JsonText(t, e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[party], "bundle": true}))
	if len(overMCP.Content) != 3 {
		t.Fatalf("get_certificate with bundle: %+v", overMCP)
	}
	for name, text := range map[string]string{
		"HTTP": string(c.Want(200, "GET", d.Path("/bundle"), d.Tokens[party], nil).Body),
		"MCP":  overMCP.Content[2].Text,
	} {
		own, _ := e2e.AsBody(t, text)["own_input"].(e2e.Body)
		for member := range own {
			if member != "party" && member != "input_path" {
				t.Errorf("%s, party %d: own_input has the member %s", name, party, member)
			}
		}
		for i, s := range sealed {
			if held := strings.Contains(text, s.Salt) || strings.Contains(text, e2e.JsonText(t, s.Input)); held != shown {
				t.Errorf("%s: the bundle of party %d contains the input or salt of party %d: %v", name, party, i, held)
			}
		}
	}
}

// fetched fetches a party's bundle with fairpactctl, which waits until a checkpoint covers the
// certificate. noted holds the notes that fairpactctl prints. If sealed is not nil, fairpactctl gets
// the party's input from the option --sealed.
func fetched(t *testing.T, c *e2e.Client, d *e2e.CreatedDeal, party int, sealed *e2e.Sealed) (text []byte, noted string) {
	t.Helper()
	ctl := e2e.NewCtl(t, c.Base)
	ctl.Env = append(ctl.Env, "FAIRPACT_TOKEN="+d.Tokens[party])
	args := []string{"deal", "certificate", "--deal", d.ID, "--out", "bundle.json"}
	if sealed != nil {
		args = append(args, "--sealed", ctl.File("sealed.json", e2e.Body{"input": sealed.Input, "salt": sealed.Salt}))
	}
	_, noted = ctl.Run(0, args...)
	return ctl.Read("bundle.json"), noted
}

// bundleIs verifies a deal's bundle offline under a policy, with fairpactctl and with the
// independent verifier. `code` is the exit code that fairpactctl would have for a known issuer. `want` is a text that
// both verifiers must print.
func bundleIs(t *testing.T, c *e2e.Client, d *e2e.CreatedDeal, policy []byte, code int, want string) {
	t.Helper()
	offline := e2e.NewCtl(t, "http://127.0.0.1:1")
	text, noted := fetched(t, c, d, 0, nil)
	if strings.Contains(noted, "missing in the bundle: a quorum of witnesses") != (code != 0) {
		t.Errorf("fairpactctl notes, with expected exit code %d:\n%s", code, noted)
	}
	file, trusted := offline.File("bundle.json", text), offline.File("policy", policy)
	if said, _ := offline.Run(map[bool]int{true: 4, false: code}[code == 0], "verify", file, "--policy", trusted); !strings.Contains(said, want) {
		t.Errorf("%q is not in\n%s", want, said)
	}
	good, said := e2e.Verifier(t, "--bundle", filepath.Join(offline.Dir, file), "--policy", filepath.Join(offline.Dir, trusted))
	if good != (code == 0) || !strings.Contains(said, want) {
		t.Errorf("the independent verifier: %v, %q\n%s", good, want, said)
	}
}

// An auditor mirrors the deployment's log and audits the log and the mirror. The audit finds a
// changed file in the mirror.
func TestLogIsAuditedFromOutside(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	issued(t, c)
	var status struct {
		Keys []struct{ VKey string }
		Size *int64 `json:"checkpoint_size"`
	}
	e2e.Eventually(t, "a checkpoint of a leaf", e2e.DefaultTimeout, func() bool {
		c.Want(200, "GET", "/v1/log/status", "", nil).Into(t, &status)
		return status.Size != nil && *status.Size > 0
	})
	ctl := e2e.NewCtl(t, c.Base)
	trust := []string{"--vkey", status.Keys[0].VKey}
	ctl.Run(0, append([]string{"log", "mirror", c.Base, "mirror"}, trust...)...)
	ctl.Run(0, append([]string{"log", "audit", "mirror"}, trust...)...)
	ctl.Run(0, append([]string{"log", "audit", c.Base, "--seen", "mirror/checkpoint"}, trust...)...)
	watch := append([]string{"log", "watch", c.Base, "--state", "seen", "--once"}, trust...)
	ctl.Run(0, watch...)
	issued(t, c)
	ctl.Run(0, watch...)

	var damaged string
	err := filepath.WalkDir(filepath.Join(ctl.Dir, "mirror/tile/entries"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			damaged = path
		}
		return err
	})
	if err != nil || damaged == "" {
		t.Fatalf("the mirror has no entries: %v", err)
	}
	text, err := os.ReadFile(damaged)
	if err == nil {
		text[2] ^= 1
		err = os.WriteFile(damaged, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	name, _ := filepath.Rel(filepath.Join(ctl.Dir, "mirror"), damaged)
	if said, _ := ctl.Run(3, append([]string{"log", "audit", "mirror"}, trust...)...); !strings.Contains(said, "FAIL "+name+":") {
		t.Errorf("%s is damaged, and the audit prints\n%s", name, said)
	}
	another, err := checkpoint.Ed25519Key("log.example", make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	ctl.Run(2, "log", "audit", c.Base, "--vkey", another.String()) // no verdict: this key did not sign the checkpoint
}
