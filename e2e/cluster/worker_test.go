//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

type lease struct {
	Spec struct {
		HolderIdentity       string
		LeaseDurationSeconds int
		AcquireTime          time.Time
	}
}

func readLease(t *testing.T) (l lease) {
	t.Helper()
	e2e.Must(t, json.Unmarshal([]byte(kubectl(t, "get", "lease", "fairpact-deadline-worker", "-o", "json")), &l))
	return l
}

// leader waits until the Lease names a running pod, and returns the holder's identity and
// pod. After a forced deletion the Lease may name a pod that no longer exists.
func leader(t *testing.T) (holder, pod string) {
	t.Helper()
	e2e.Eventually(t, "a running worker leads", 2*time.Minute, func() bool {
		holder = readLease(t).Spec.HolderIdentity
		pod, _, _ = strings.Cut(holder, "_")
		return slices.Contains(podsOf(t, "deadline-worker"), pod)
	})
	return holder, pod
}

func succeeded(t *testing.T, last string, since time.Time) time.Duration {
	t.Helper()
	var l lease
	e2e.Eventually(t, "another leader than "+last, 2*time.Minute, func() bool {
		l = readLease(t)
		return l.Spec.HolderIdentity != "" && l.Spec.HolderIdentity != last
	})
	return l.Spec.AcquireTime.Sub(since)
}

// failover is the longest time without a leader that the chart promises after a crash.
const failover = 15 * time.Second

func leaseHandedOver(t *testing.T, c *cluster) {
	last, pod := leader(t)
	limit, began := failover, time.Now()
	kubectl(t, "delete", "pod", pod, "--wait=false")
	took := succeeded(t, last, began)
	c.shows(t, "Lease handed over %s after its holder was deleted; allowed: %s", took.Round(10*time.Millisecond), limit)
	if took >= limit {
		t.Errorf("the Lease was handed over after %s, want less than after a crash, %s", took, limit)
	}
	rolledOut(t, namespace, release+"-deadline-worker")
}

// killer is the manifest of a pod that may kill processes of other pods on its node. The pod runs
// in a separate namespace, because the restricted Pod Security Standard forbids hostPID.
const killer = `
apiVersion: v1
kind: Pod
metadata: {name: killer}
spec:
  nodeName: %s
  hostPID: true
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - name: killer
    image: localhost/fairpact/clustertool:%s
    imagePullPolicy: Never
    args: [wait]
    securityContext: {runAsUser: 0}
`

// killerOf returns a function that sends SIGKILL to a pod's container and returns the time of the
// kill. The killed processes cannot release the Lease.
func killerOf(t *testing.T, c *cluster, pod string) (kill func() time.Time) {
	t.Helper()
	const at = namespace + "-killer"
	must(t, "kubectl", "create", "namespace", at)
	node := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	apply(t, at, fmt.Sprintf(killer, node, c.old))
	must(t, "kubectl", "-n", at, "wait", "--for=condition=Ready", "pod/killer", "--timeout=120s")
	id := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	return func() time.Time {
		said := must(t, "kubectl", "-n", at, "exec", "killer", "--", "/clustertool", "kill", id[strings.LastIndex(id, "/")+1:])
		must(t, "kubectl", "delete", "namespace", at, "--wait=false")
		killed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(said))
		e2e.Must(t, err)
		return killed
	}
}

func missTogether(t *testing.T, base string, n int, from time.Duration) (*stream, []missed) {
	t.Helper()
	s, _ := newStream(t, base)
	deadline := time.Now().Add(from).Unix()
	all := make([]missed, n)
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() {
			var err error
			all[i], err = s.miss(context.WithoutCancel(t.Context()), i%2 == 0, deadline)
			s.failed(err)
		})
	}
	done.Wait()
	if len(s.failures) > 0 {
		t.Fatalf("%d of %d deals could not be prepared: %q", len(s.failures), n, s.failures)
	}
	return s, all
}

// attended waits until the workers have published every deal's certificate. While it waits, attended
// reads only the database, because an API request would end an overdue deal. It then checks each
// deal through deal-api. `late` is the longest delay after the deadline, in seconds.
func attended(t *testing.T, s *stream, all []missed) (late string) {
	t.Helper()
	var ids []string
	for _, m := range all {
		ids = append(ids, m.id)
	}
	where := "deal_id IN ('" + strings.Join(ids, "','") + "')"
	e2e.Eventually(t, "the workers end all deals", 2*time.Minute, func() bool {
		return psql(t, "SELECT count(*) FROM certificates WHERE leaf_index IS NOT NULL AND "+where) == fmt.Sprint(len(all))
	})
	late = psql(t, fmt.Sprintf("SELECT max(created_at) - %d FROM certificates WHERE %s", all[0].deadline, where))
	for _, m := range all {
		if err := s.judged(t.Context(), m); err != nil {
			t.Errorf("after the deadline %d: %v", m.deadline, err)
		}
	}
	return late
}

// leaderKilled kills the leading worker under load just before many deadlines. Another worker must
// lead within 15 s (failover), and end every deal once.
func leaderKilled(t *testing.T, c *cluster) {
	load := startStream(t, c.base)
	last, pod := leader(t)
	kill := killerOf(t, c, pod)
	s, deals := missTogether(t, c.base, 20, 30*time.Second)
	limit, restarts := failover, restartsOf(t, pod)
	// The Lease expires at least eight seconds after the leader is killed. The deadlines pass four
	// seconds after the kill, while no worker leads.
	time.Sleep(time.Until(time.Unix(deals[0].deadline, 0).Add(-4 * time.Second)))
	killed := kill()
	took := succeeded(t, last, killed)
	if due := time.Unix(deals[0].deadline, 0); !due.After(killed) || !due.Before(killed.Add(took)) {
		t.Errorf("the deadline %s is not within the time without a leader, %s from %s on", due, took, killed)
	}
	late := attended(t, s, deals)
	load.stop(t, c, "leader killed")
	c.shows(t, "another worker leads %s after a SIGKILL to the leader; allowed: %s (a Lease of %d s)",
		took.Round(10*time.Millisecond), limit, readLease(t).Spec.LeaseDurationSeconds)
	c.shows(t, "%d deals whose deadline passed while no worker led: each VOID once, with the right flaker, at most %s s late", len(deals), late)
	e2e.Eventually(t, "the kubelet sees that "+pod+" was killed", time.Minute, func() bool {
		now := restartsOf(t, pod)
		return now != restarts && strings.HasSuffix(now, " 137")
	})
	if took >= limit {
		t.Errorf("no worker led for %s, want less than %s", took, limit)
	}
	rolledOut(t, namespace, release+"-deadline-worker")
}

// restartsOf returns a container's restart count and previous exit code, such as "1 137" after a
// SIGKILL.
func restartsOf(t *testing.T, pod string) string {
	t.Helper()
	return kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].lastState.terminated.exitCode}")
}
