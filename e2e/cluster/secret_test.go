//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// serverSecret replaces the server secret with another one during a deal, as an operator might by
// mistake. New pods must not start, and the old pods must continue. The deal must end after the old
// secret is restored. Then serverSecret rotates the secret during another deal.
func serverSecret(t *testing.T, c *cluster) {
	encrypted := []string{release + "-deal-api", release + "-deadline-worker"}
	restart := func(workloads ...string) {
		t.Helper()
		for _, workload := range workloads {
			kubectl(t, "rollout", "restart", "deployment/"+workload)
		}
	}
	set := func(lines string) {
		t.Helper()
		kubectl(t, "patch", "secret", "server", "--type=merge", "-p", fmt.Sprintf(`{"stringData":{"server-secret":%q}}`, lines))
	}
	secretIn := func(args ...string) string {
		t.Helper()
		return kubectl(t, append([]string{"exec", "deployment/" + release + "-deal-api", "--", "/fairpactctl", "secret"}, args...)...)
	}
	kept := kubectl(t, "get", "secret", "server", "-o", "go-template={{index .data \"server-secret\" | base64decode}}")

	s := startStream(t, c.base)
	ends := c.halfRevealed(t)
	ready := restarts(t, namespace)
	set(random())
	restart(encrypted[0])
	e2e.Eventually(t, "a new pod names the missing secret", 2*time.Minute, func() bool {
		return strings.Contains(kubectl(t, "logs", "-l", "app.kubernetes.io/component=deal-api", "--ignore-errors", "--tail=20"), "lacks a server secret:")
	})
	s.flows(t, 100)
	for pod := range strings.Lines(ready) {
		if now := restarts(t, namespace); !strings.Contains(now, pod) {
			t.Errorf("the old pod %q has changed while a new pod lacks the secret. The pods are now\n%s", strings.TrimSpace(pod), now)
		}
	}
	set(kept)
	restart(encrypted[0])
	rolledOut(t, namespace, encrypted[0])
	ends()

	ends = c.halfRevealed(t)
	set(secretIn("add"))
	restart(encrypted...)
	rolledOut(t, namespace, encrypted...)
	settled(t)
	rotated := secretIn("rotate")
	ends()
	t.Logf("secret rotate: %ssecret check: %s", rotated, secretIn("check"))
	s.stop(t, c, "the server secret replaced by mistake, put back, and rotated")
}

func (c *cluster) halfRevealed(t *testing.T) (ends func()) {
	t.Helper()
	client := newClient(t, c.base)
	d, input := client.Create(e2e.SplitBody(5*time.Minute, 10*time.Minute)), e2e.Seal(t, e2e.AnnsValues)
	d.Commit(0, input)
	d.Commit(1, input)
	d.Reveal(0, input)
	return func() {
		t.Helper()
		d.Reveal(1, input)
		s, _ := newStream(t, c.base)
		_, err := s.certified(t.Context(), d.ID, d.Tokens[0])
		e2e.Must(t, err)
	}
}
