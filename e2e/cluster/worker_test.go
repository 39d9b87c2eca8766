//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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
	if err := json.Unmarshal([]byte(kubectl(t, "get", "lease", "fairpact-deadline-worker", "-o", "json")), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// leader waits for one that runs and gives it with its pod. After a deletion by
// force the Lease may still name a pod that is gone.
func leader(t *testing.T) (holder, pod string) {
	t.Helper()
	eventually(t, "a worker that runs leads", 2*time.Minute, func() bool {
		holder = readLease(t).Spec.HolderIdentity
		pod, _, _ = strings.Cut(holder, "_")
		return slices.Contains(podsOf(t, "deadline-worker"), pod)
	})
	return holder, pod
}

// succeeded waits for a leader other than the last and gives how long after a
// moment it took the Lease, by its own account.
func succeeded(t *testing.T, last string, since time.Time) time.Duration {
	t.Helper()
	var l lease
	eventually(t, "another leader than "+last, 2*time.Minute, func() bool {
		l = readLease(t)
		return l.Spec.HolderIdentity != "" && l.Spec.HolderIdentity != last
	})
	return l.Spec.AcquireTime.Sub(since)
}

// failover is what the release configures.
func failover(t *testing.T) time.Duration {
	t.Helper()
	text := kubectl(t, "get", "deployment", release+"-deadline-worker",
		"-o", `jsonpath={.spec.template.spec.containers[0].env[?(@.name=="FAIRPACT_FAILOVER")].value}`)
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The leading worker is told to stop: it hands the Lease over.
func leaseHandedOver(t *testing.T, c *cluster) {
	last, pod := leader(t)
	limit, began := failover(t), time.Now()
	kubectl(t, "delete", "pod", pod, "--wait=false")
	took := succeeded(t, last, began)
	c.shows(t, "Lease handed over %s after its holder was deleted; configured: %s", took.Round(10*time.Millisecond), limit)
	if took >= limit {
		t.Errorf("the Lease was handed over after %s, which is no better than a crash", took)
	}
	kubectl(t, "rollout", "status", "deployment/"+release+"-deadline-worker", "--timeout=180s")
}

// killer is a pod of a node that may end the processes of others. It has a
// namespace of its own, as ours allows nothing of the kind.
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

// killerOf gives what ends the processes of a pod's container by SIGKILL, as a
// crash does, and says when: the Lease is not given back.
func killerOf(t *testing.T, c *cluster, pod string) (kill func() time.Time) {
	t.Helper()
	const at = namespace + "-killer"
	must(t, "kubectl", "create", "namespace", at)
	node := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	if _, err := run(t.Context(), fmt.Sprintf(killer, node, c.old), "kubectl", "-n", at, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	must(t, "kubectl", "-n", at, "wait", "--for=condition=Ready", "pod/killer", "--timeout=120s")
	id := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	return func() time.Time {
		said := must(t, "kubectl", "-n", at, "exec", "killer", "--", "/clustertool", "kill", id[strings.LastIndex(id, "/")+1:])
		must(t, "kubectl", "delete", "namespace", at, "--wait=false")
		killed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(said))
		if err != nil {
			t.Fatal(err)
		}
		return killed
	}
}

// missTogether plays deals that all become VOID at one second, so much from now.
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
		t.Fatal(s.failures)
	}
	return s, all
}

func ids(all []missed) string {
	var quoted []string
	for _, m := range all {
		quoted = append(quoted, "'"+m.id+"'")
	}
	return strings.Join(quoted, ",")
}

// attended waits until the workers have given every deal its certificate, though
// nobody asks for it, looks at each verdict, and gives how late the latest was, in
// seconds.
func attended(t *testing.T, s *stream, all []missed) (late string) {
	t.Helper()
	where := "deal_id IN (" + ids(all) + ")"
	eventually(t, "the workers end all deals", 2*time.Minute, func() bool {
		return psql(t, "SELECT count(*) FROM certificates WHERE leaf_index IS NOT NULL AND "+where) == fmt.Sprint(len(all))
	})
	late = psql(t, fmt.Sprintf("SELECT max(created_at) - %d FROM certificates WHERE %s", all[0].deadline, where))
	for _, m := range all {
		if err := s.judged(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
	return late
}

// The leading worker is killed under load, with deadlines about to pass: another
// leads within the configured time, and every verdict comes, once.
func leaderKilled(t *testing.T, c *cluster) {
	load := startStream(t, c.base)
	last, pod := leader(t)
	kill := killerOf(t, c, pod)
	s, deals := missTogether(t, c.base, 20, 30*time.Second)
	limit, restarts := failover(t), restartsOf(t, pod)
	// In the middle of the eight seconds or more that the Lease outlives its holder.
	time.Sleep(time.Until(time.Unix(deals[0].deadline, 0).Add(-4 * time.Second)))
	killed := kill()
	took := succeeded(t, last, killed)
	if due := time.Unix(deals[0].deadline, 0); !due.After(killed) || !due.Before(killed.Add(took)) {
		t.Errorf("the deadline %s was not while nobody led, from %s for %s: nothing is shown", due, killed, took)
	}
	late := attended(t, s, deals)
	load.stop(t, c, "leader killed")
	c.shows(t, "another worker leads %s after a SIGKILL to the leader; configured: %s (a Lease of %d s)",
		took.Round(10*time.Millisecond), limit, readLease(t).Spec.LeaseDurationSeconds)
	c.shows(t, "%d deals whose deadline passed while nobody led: each VOID once, with the right flaker, at most %s s late", len(deals), late)
	eventually(t, "the kubelet sees that "+pod+" was killed", time.Minute, func() bool {
		now := restartsOf(t, pod)
		return now != restarts && strings.HasSuffix(now, " 137")
	})
	if took >= limit {
		t.Errorf("nobody led for %s, configured: %s", took, limit)
	}
	kubectl(t, "rollout", "status", "deployment/"+release+"-deadline-worker", "--timeout=180s")
}

// restartsOf gives how often a pod's container has been restarted, and the exit
// code of the one before: 137 after a SIGKILL.
func restartsOf(t *testing.T, pod string) string {
	t.Helper()
	return kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].lastState.terminated.exitCode}")
}

var reconciled = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{controller="deal",result="(?:success|requeue_after)"\} ([1-9][0-9]*)`)

// Two workers that both work do no harm: each verdict comes once.
func withoutElection(t *testing.T, c *cluster) {
	load := startStream(t, c.base)
	c.upgrade(t, c.old, "deadlineWorker.leaderElection=false")
	var workers []string
	eventually(t, "two workers", 2*time.Minute, func() bool {
		workers = podsOf(t, "deadline-worker")
		return len(workers) == 2
	})
	s, deals := missTogether(t, c.base, 60, 40*time.Second)
	late := attended(t, s, deals)
	load.stop(t, c, "election off")
	var ended []int
	for _, pod := range workers {
		if !reconciled.MatchString(metrics(t, pod)) {
			t.Errorf("%s attended no deal: it does not work", pod)
		}
		ended = append(ended, endedBy(t, pod, deals))
	}
	if ended[0]+ended[1] != len(deals) {
		t.Errorf("of %d deals the two workers ended %d", len(deals), ended)
	}
	c.shows(t, "two workers without election ended %d and %d of %d deals of one deadline, at most %s s late", ended[0], ended[1], len(deals), late)
	c.upgrade(t, c.old)
}

// endedBy counts the deals that a worker's log says it has ended.
func endedBy(t *testing.T, pod string, deals []missed) (n int) {
	t.Helper()
	for line := range strings.Lines(kubectl(t, "logs", pod)) {
		var said struct {
			Msg    string
			DealID string `json:"deal_id"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "deal ended" &&
			slices.ContainsFunc(deals, func(m missed) bool { return m.id == said.DealID }) {
			n++
		}
	}
	return n
}
