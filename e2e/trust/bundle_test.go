package trust

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/checkpoint"
)

type ownInput struct {
	Party int
	Input e2e.Body
	Salt  string
	Path  []string `json:"input_path"`
}

type bundle struct {
	LogProof string `json:"log_proof"`
	Beacon   *struct{}
	Own      *ownInput `json:"own_input"`
}

// One file convinces without the service: the command line and the independent
// verifier get nothing but it and the key. The service puts no input and no salt into
// it, since the initiator held every invite token; a party puts in its own.
func TestABundleConvincesOffline(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	split := []e2e.Body{{"valuations": e2e.Body{"car": 4711, "boat": 1}}, {"valuations": e2e.Body{"car": 2, "boat": 1147}}}
	for name, x := range map[string]struct {
		request    e2e.Body
		inputs     []e2e.Body
		held, path bool // the place of the own input, and its path
	}{
		"sealed":    {e2e.SplitBody(time.Hour, 2*time.Hour), split, true, true},
		"open":      {e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "open", "standard"), split, true, true},
		"purged":    {e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "sealed", "purge"), split, false, false},
		"draw":      {e2e.RandomBody(3, past, time.Hour, 2*time.Hour), nonces(3), true, true},
		"rejection": {e2e.ShapleyBody(time.Hour, 2*time.Hour), []e2e.Body{{"accept": false}, nil}, true, false},
		"open VOID": {e2e.Retained(e2e.ShapleyBody(time.Hour, 2*time.Hour), "open", "standard"), []e2e.Body{{"accept": true}, {"accept": false}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			here := *c
			here.T = t
			c := &here
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
			d.Certified(e2e.Patience)
			c.Refused(403, "FORBIDDEN", "GET", d.Path("/bundle"), d.Key, nil)

			var status struct{ Pubkey string }
			c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
			for party, s := range sealed {
				holdsNoInput(t, c, d, party, sealed)
				text, noted := fetched(t, c, d, party, &s)
				var b bundle
				if err := json.Unmarshal(text, &b); err != nil {
					t.Fatal(err)
				}
				held := x.held && x.inputs[party] != nil
				if (b.Own != nil) != held || held && (b.Own.Party != party || b.Own.Salt != s.Salt || (b.Own.Path != nil) != x.path) {
					t.Errorf("party %d: own input %+v, want one: %v", party, b.Own, held)
				}
				if strings.Contains(noted, "missing in the bundle: your input") == held {
					t.Errorf("party %d is told %q", party, noted)
				}
				for other, s := range sealed {
					if other != party && strings.Contains(string(text), s.Salt) {
						t.Errorf("the bundle of party %d holds the salt of party %d", party, other)
					}
				}
				if (b.Beacon != nil) != (x.request["algorithm"] == "random.v1") || b.LogProof == "" {
					t.Errorf("party %d: beacon %v, log_proof %q", party, b.Beacon, b.LogProof)
				}
				offline := e2e.NewCtl(t, "http://127.0.0.1:1") // nothing listens there
				file := offline.File("bundle.json", text)
				said, _ := offline.Run(0, "verify", file, "--pubkey", status.Pubkey)
				for _, want := range []string{"OK   log_proof", "OK   checkpoint_signature", "no witness was checked", map[bool]string{true: "OK   own_input", false: "your input was not checked"}[held]} {
					if !strings.Contains(said, want) {
						t.Errorf("party %d: %q is not in\n%s", party, want, said)
					}
				}
				if good, said := e2e.Stranger(t, "--bundle", filepath.Join(offline.Dir, file), "--pubkey", status.Pubkey); !good {
					t.Errorf("the independent verifier:\n%s", said)
				}
				forged := offline.File("forged.json", []byte(strings.Replace(string(text), `"cert_version":"1"`, `"cert_version":"2"`, 1)))
				offline.Run(1, "verify", forged)
			}
		})
	}
}

// holdsNoInput requires that what the service answers to a party's token has no input
// or salt of anybody, over HTTP and over MCP.
func holdsNoInput(t *testing.T, c *e2e.Client, d *e2e.Dealt, party int, sealed []e2e.Sealed) {
	t.Helper()
	overMCP := c.Raw("get_certificate", e2e.JsonText(t, e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[party], "bundle": true}))
	if len(overMCP.Content) != 3 {
		t.Fatalf("get_certificate answers %+v", overMCP)
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
			if strings.Contains(text, s.Salt) || strings.Contains(text, e2e.JsonText(t, s.Input)) {
				t.Errorf("%s: the bundle of party %d holds the input or salt of party %d", name, party, i)
			}
		}
	}
}

// fetched is a party's bundle, once a checkpoint covers the certificate, and what was
// noted beside it. With a sealed file the party's input is in it.
func fetched(t *testing.T, c *e2e.Client, d *e2e.Dealt, party int, sealed *e2e.Sealed) (text []byte, noted string) {
	t.Helper()
	ctl := e2e.NewCtl(t, c.Base)
	ctl.Env = append(ctl.Env, "FAIRPACT_TOKEN="+d.Tokens[party])
	args := []string{"deal", "certificate", "--deal", d.ID, "--bundle", "bundle.json", "--tlog-proof", "cert.tlog-proof"}
	if sealed != nil {
		args = append(args, "--sealed", ctl.File("sealed.json", e2e.Body{"input": sealed.Input, "salt": sealed.Salt}))
	}
	_, noted = ctl.Run(0, args...)
	var b bundle
	text = ctl.Read("bundle.json")
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	proof, err := checkpoint.ParseProof(ctl.Read("cert.tlog-proof"))
	if err != nil || b.LogProof != string(proof.Marshal()) {
		t.Errorf("the proof alone is another one than in the bundle: %v", err)
	}
	return text, noted
}

// bundleIs requires an exit code of those who verify a deal's bundle offline under
// the policy, and what they say.
func bundleIs(t *testing.T, c *e2e.Client, d *e2e.Dealt, policy []byte, code int, says string) {
	t.Helper()
	offline := e2e.NewCtl(t, "http://127.0.0.1:1")
	text, noted := fetched(t, c, d, 0, nil)
	if strings.Contains(noted, "missing in the bundle: a quorum of witnesses") != (code != 0) {
		t.Errorf("with exit code %d to come, it is noted:\n%s", code, noted)
	}
	file, trusted := offline.File("bundle.json", text), offline.File("policy", policy)
	if said, _ := offline.Run(code, "verify", file, "--policy", trusted); !strings.Contains(said, says) {
		t.Errorf("%q is not in\n%s", says, said)
	}
	good, said := e2e.Stranger(t, "--bundle", filepath.Join(offline.Dir, file), "--policy", filepath.Join(offline.Dir, trusted))
	if good != (code == 0) || !strings.Contains(said, says) {
		t.Errorf("the independent verifier: %v, %q\n%s", good, says, said)
	}
}

// Whoever trusts nobody mirrors the deployment's log, serves the mirror, audits
// both, and finds what somebody changes in it.
func TestLogIsAuditedFromOutside(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.Body{"valuations": e2e.Body{"car": 70}}, e2e.Body{"valuations": e2e.Body{"boat": 30}})()
	var status struct {
		Keys []struct{ VKey string }
		Size *int64 `json:"checkpoint_size"`
	}
	e2e.Eventually(t, "a checkpoint of a leaf", e2e.Patience, func() bool {
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
	c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.Body{"valuations": e2e.Body{"car": 7}}, e2e.Body{"valuations": e2e.Body{"boat": 3}})()
	ctl.Run(0, watch...)

	bundles, err := filepath.Glob(filepath.Join(ctl.Dir, "mirror/tile/entries/*"))
	if err != nil || len(bundles) == 0 {
		t.Fatalf("the mirror has no entries: %v", err)
	}
	var damaged string
	err = filepath.WalkDir(filepath.Join(ctl.Dir, "mirror/tile/entries"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			damaged = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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
		t.Errorf("%s is damaged, and the audit says\n%s", name, said)
	}
	another, err := checkpoint.Ed25519Key("log.example", make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	ctl.Run(2, "log", "audit", c.Base, "--vkey", another.String()) // not its checkpoint: no verdict
}
