//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// rotateIn is the time from `fairpactctl signing-keys rotate` until the new key signs. rotateIn must be at
// least twice signing.Margin.
const rotateIn = "11m"

func keysIn(t *testing.T, document string, args ...string) (string, error) {
	t.Helper()
	full := append([]string{"-n", namespace, "exec", "-i", "deploy/" + release + "-deal-api", "--", "/fairpactctl", "signing-keys"}, args...)
	return run(t.Context(), document, "kubectl", full...)
}

func keysCommand(t *testing.T, document string, args ...string) string {
	t.Helper()
	out, err := keysIn(t, document, args...)
	e2e.Must(t, err)
	return out
}

// rollOutKeys upgrades the release to the key set in `document`, which restarts no pod. It waits until `fairpactctl signing-keys
// check` succeeds and the output contains `next`.
func (c *cluster) rollOutKeys(t *testing.T, document, next string) {
	t.Helper()
	values, err := json.Marshal(map[string]any{"signing": map[string]any{"keySet": json.RawMessage(document)}})
	e2e.Must(t, err)
	file := filepath.Join(c.dir, "keys.json")
	e2e.Must(t, os.WriteFile(file, values, 0o600))
	if c.keySet == "" {
		c.values = append(c.values, file)
	}
	c.keySet = document
	c.upgrade(t, c.old)
	var said string
	defer func() { t.Log(said) }()
	e2e.Eventually(t, "all pods have the key set", 3*time.Minute, func() bool { // Kubernetes copies it into running pods in up to two minutes
		out, err := keysIn(t, document, "check", "--base-url", "http://localhost:8080", "--file", "-")
		said = fmt.Sprint(out, err)
		return err == nil && strings.Contains(out, next)
	})
}

// startRotation rotates to a second signing key as runbooks/keys.md does. The next phases of TestCluster run
// before the new key signs. Two mistakes of an operator come first: `fairpactctl signing-keys close` must refuse to close
// the key that signs, and `fairpactctl signing-keys check` must report that deadline-worker has the former key set.
func startRotation(t *testing.T, c *cluster) {
	c.rollOutKeys(t, keysCommand(t, "", "init", "--signer", "file:///run/fairpact/key/key.pem"), "next: nothing")
	former := c.keySet
	c.rollOutKeys(t, keysCommand(t, c.keySet, "rotate", "--file", "-", "--to", "file:///run/fairpact/key/next.pem", "--in", rotateIn), "signs from")
	if keys := onPage(t, "stolen-key.md", "configmap fairpact-key-set"); strings.Count(keys, "Z file:///run/fairpact/key/") != 2 {
		t.Errorf("stolen-key.md shows the keys %s, want two", keys)
	}
	signing, _ := c.keys(t)
	if out, err := keysIn(t, c.keySet, "close", signing.Pubkey, "--file", "-", "--base-url", "http://localhost:8080"); err == nil || !strings.Contains(err.Error(), "close it in") {
		t.Errorf("closing the key that signs: %v\n%s", err, out)
	}
	kubectl(t, "create", "configmap", "former-key-set", "--from-literal=key-set.json="+former)
	patch := `{"spec":{"template":{"spec":{"volumes":[{"name":"key-set","configMap":{"name":"former-key-set"}}]}}}}`
	kubectl(t, "patch", "deployment", workloads[2], "--type=strategic", "-p", patch)
	rolledOut(t, namespace, workloads[2])
	settled(t)
	if out, err := keysIn(t, c.keySet, "check", "--base-url", "http://localhost:8080", "--file", "-"); err == nil || !strings.Contains(out+err.Error(), "2 of 6 processes lack the key set") {
		t.Errorf("the worker has the former key set, and signing-keys check says: %v\n%s", err, out)
	}
	kubectl(t, "patch", "deployment", workloads[2], "--type=strategic", "-p", strings.Replace(patch, "former", release, 1))
	rolledOut(t, namespace, workloads[2])
	c.rollOutKeys(t, c.keySet, "signs from")
}

type signingKey struct {
	Pubkey    string `json:"pubkey"`
	SignsFrom int64  `json:"signs_from"`
}

// keys returns the two keys of the rotation.
func (c *cluster) keys(t *testing.T) (former, next signingKey) {
	t.Helper()
	var set struct{ Keys []signingKey }
	if err := json.Unmarshal([]byte(c.keySet), &set); err != nil || len(set.Keys) != 2 {
		t.Fatalf("the key set has %d keys, want 2 (%v): %s", len(set.Keys), err, c.keySet)
	}
	return set.Keys[0], set.Keys[1]
}

// rotated runs deals while the new key begins to sign, or after that if the phases before took longer than rotateIn.
func rotated(t *testing.T, c *cluster) {
	_, next := c.keys(t)
	s := startStream(t, c.base)
	time.Sleep(time.Until(time.Unix(next.SignsFrom, 0)))
	s.flows(t, 50)
	c.connections(t)
	if _, pubkey := c.status(t); pubkey != next.Pubkey {
		t.Errorf("the status shows the key %s, want %s", pubkey, next.Pubkey)
	}
	c.rollOutKeys(t, c.keySet, "next: ")
	s.stop(t, c, "key rotated to "+next.Pubkey[:14]+"…")
}

func (c *cluster) connections(t *testing.T) {
	t.Helper()
	notes := must(t, "helm", "get", "notes", release, "-n", namespace)
	most := regexp.MustCompile(`opens at most (\d+) `).FindStringSubmatch(notes)
	if most == nil {
		t.Fatalf("the notes name no number of connections:\n%s", notes)
	}
	allowed, err := strconv.Atoi(most[1])
	e2e.Must(t, err)
	open, err := strconv.Atoi(psql(t, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND pid <> pg_backend_pid()"))
	e2e.Must(t, err)
	if open == 0 || open > allowed {
		t.Errorf("%d connections to Postgres under load, want 1 to %d", open, allowed)
	}
	c.shows(t, "%d connections to Postgres under load, at most %d by the notes", open, allowed)
}
