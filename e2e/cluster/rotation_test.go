//go:build cluster

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rotateIn is little more than the least that a rotation takes: two margins.
const rotateIn = "11m"

// keysCommand runs fairpactctl keys in a pod, as the runbook does. document is its
// --file.
func keysCommand(t *testing.T, document string, args ...string) string {
	t.Helper()
	full := append([]string{"-n", namespace, "exec", "-i", "deploy/" + release + "-deal-api", "--", "/fairpactctl", "keys"}, args...)
	out, err := run(t.Context(), document, "kubectl", full...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rollOutKeys upgrades the release to a key set and waits until all pods have it.
func (c *cluster) rollOutKeys(t *testing.T, document, next string) {
	t.Helper()
	values, err := json.Marshal(map[string]any{"signing": map[string]any{"keySet": json.RawMessage(document)}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.dir, "keys.json")
	if err := os.WriteFile(file, values, 0o600); err != nil {
		t.Fatal(err)
	}
	if c.keySet == "" {
		c.values = append(c.values, file)
	}
	c.keySet = document
	c.upgrade(t, c.old)
	var said string
	eventually(t, "all pods have the key set", time.Minute, func() bool { // pods of the last roll-out may still be stopping
		out, err := run(t.Context(), document, "kubectl", "-n", namespace, "exec", "-i", "deploy/"+release+"-deal-api", "--",
			"/fairpactctl", "keys", "check", "--base-url", "http://localhost:8080", "--file", "-")
		said = out
		return err == nil && strings.Contains(out, next)
	})
	t.Log(said)
}

// startRotation takes the release's key into a key set and rotates to another one,
// by the runbook. The other phases go on meanwhile.
func startRotation(t *testing.T, c *cluster) {
	c.rollOutKeys(t, keysCommand(t, "", "init", "--signer", "file:///run/fairpact/key/key.pem"), "next: nothing")
	c.rollOutKeys(t, keysCommand(t, c.keySet, "rotate", "--file", "-", "--to", "file:///run/fairpact/key/next.pem", "--in", rotateIn), "signs from")
}

// rotated waits for the switch under load and checks the keys after it.
func rotated(t *testing.T, c *cluster) {
	var keys struct {
		Keys []struct {
			Pubkey    string `json:"pubkey"`
			SignsFrom int64  `json:"signs_from"`
		}
	}
	if err := json.Unmarshal([]byte(c.keySet), &keys); err != nil || len(keys.Keys) != 2 {
		t.Fatalf("%v: %s", err, c.keySet)
	}
	next := keys.Keys[len(keys.Keys)-1]
	s := startStream(t, c.base)
	time.Sleep(time.Until(time.Unix(next.SignsFrom, 0)))
	s.flows(t, 50)
	s.stop(t, c, "key rotated to "+next.Pubkey[:14]+"…")
	if _, pubkey := c.status(t); pubkey != next.Pubkey {
		t.Errorf("the status shows %s and not %s", pubkey, next.Pubkey)
	}
	t.Log(keysCommand(t, c.keySet, "check", "--base-url", "http://localhost:8080", "--file", "-"))
}
