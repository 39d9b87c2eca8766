//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// TestCluster runs its phases on one release. Each phase must leave the release healthy.
func TestCluster(t *testing.T) {
	installed := false
	defer func() {
		if !installed {
			explain(t)
		}
	}()
	c := install(t)
	installed = true
	for _, phase := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"helm test plays a deal", func(t *testing.T, _ *cluster) { must(t, "helm", "test", release, "-n", namespace, "--timeout", "3m") }},
		{"what runs", whatRuns},
		{"who may do what", rights},
		{"who reaches whom", policies},
		{"dry run", dryRun},
		{"black box", blackBox},
		{"Postgres is away", postgresAway},
		{"read-only and a restore", readOnlyAndRestore},
		{"uninstalled and installed again", uninstallAndBack},
		{"a trial", trial},
		{"GitOps", gitOps},
		{"deals miss their deadlines from here", startOverdue},
		{"a rotation of the key is rolled out", startRotation},
		{"upgrade and back", upgradeAndBack},
		{"pods deleted", podsDeleted},
		{"lease handed over", leaseHandedOver},
		{"leader killed", leaderKilled},
		{"the server secret", serverSecret},
		{"deals have missed their deadlines", stopOverdue},
		{"replicas on two nodes", spread},
		{"the key has been rotated", rotated},
		{"the invariants of the database", invariants},
	} {
		if !t.Run(phase.name, func(t *testing.T) { phase.run(t, c) }) {
			explain(t)
		}
	}
	t.Logf("the numbers:\n%s", strings.Join(c.measurements, "\n"))
}

// oldVersion and newVersion are the versions that the images with the old and the new tag report.
const oldVersion, newVersion = "0.0.1", "0.0.2"

func (c *cluster) status(t *testing.T) (version, pubkey string) {
	t.Helper()
	var status struct{ Version, Pubkey string }
	s := &stream{client: newClient(t, c.base)}
	e2e.Must(t, s.call(t.Context(), "GET", "/v1/status", "", nil, 200, &status))
	return status.Version, status.Pubkey
}

// upgradeAndBack runs deals during an upgrade and a rollback. Each request must succeed within two attempts.
func upgradeAndBack(t *testing.T, c *cluster) {
	c.becomes(t, oldVersion)
	s := startStream(t, c.base)
	c.upgrade(t, c.new, "logLevel=debug")
	c.becomes(t, newVersion)
	must(t, "helm", "rollback", release, "-n", namespace, "--wait", "--timeout", "5m")
	c.becomes(t, oldVersion)
	s.stop(t, c, "upgrade and rollback")
}

func whatRuns(t *testing.T, _ *cluster) {
	revision := os.Getenv("FAIRPACT_E2E_REVISION") // empty if the images were built without git
	revision = revision[:min(12, len(revision))]
	for _, component := range []string{"deal-api", "log-server", "deadline-worker"} {
		for _, pod := range podsOf(t, component) {
			want := fmt.Sprintf(`fairpact_build_info{binary=%q,revision=%q,version=%q} 1`, component, revision, oldVersion)
			if all := metrics(t, pod); !strings.Contains(all, want) {
				t.Errorf("the metrics of pod %s have no %s:\n%.1500s", pod, want, all)
			}
		}
	}
}

func metrics(t *testing.T, pod string) string {
	t.Helper()
	port := "8082"
	if strings.Contains(pod, "log-server") {
		port = "8092"
	}
	return kubectl(t, "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+":"+port+"/proxy/metrics")
}

// becomes waits until ten responses in a row come from the given version. helm may return before
// the Service has dropped the endpoints of the previous version.
func (c *cluster) becomes(t *testing.T, version string) {
	t.Helper()
	same := 0
	e2e.Eventually(t, "version "+version+" only", time.Minute, func() bool {
		same++
		if is, _ := c.status(t); !strings.HasPrefix(is, version) {
			same = 0
		}
		return same == 10
	})
}

// podsDeleted deletes one pod of each workload, gracefully and then by force, while deals run. Each
// request must succeed within two attempts.
func podsDeleted(t *testing.T, c *cluster) {
	for _, how := range [][]string{{"--wait=true"}, {"--grace-period=0", "--force"}} {
		for _, kind := range []string{"deal-api", "log-server", "deadline-worker"} {
			s := startStream(t, c.base)
			s.flows(t, 100)
			kubectl(t, append([]string{"delete", "pod", podsOf(t, kind)[0]}, how...)...)
			rolledOut(t, namespace, release+"-"+kind)
			s.stop(t, c, kind+" deleted "+strings.Join(how, " "))
		}
	}
}

// spread moves the two replicas of each workload, 30 pairs in all, on nodes without zone labels. The chart
// only asks the scheduler to keep a pair apart. Without this, half of the pairs shared a node. No deals
// run meanwhile: on two cores the restarts leave so little CPU that connections to Postgres time out.
func spread(t *testing.T, c *cluster) {
	if nodes := strings.Fields(kubectl(t, "get", "nodes", "-o", "name")); len(nodes) < 2 {
		t.Skip("the cluster has one node")
	}
	const rounds = 10
	shared := 0
	for range rounds {
		kubectl(t, append([]string{"rollout", "restart", "deployment"}, workloads...)...)
		for i, kind := range []string{"deal-api", "log-server", "deadline-worker"} {
			rolledOut(t, namespace, workloads[i])
			on := strings.Fields(kubectl(t, "get", "pods", "-l", "app.kubernetes.io/component="+kind, "-o",
				`go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.spec.nodeName}} {{end}}{{end}}`))
			if len(on) != 2 {
				t.Fatalf("%s runs on %v, want two nodes", kind, on)
			}
			if on[0] == on[1] {
				shared++
			}
		}
	}
	if shared > rounds*len(workloads)/10 {
		t.Errorf("in %d of %d placements both replicas are on one node, want a tenth at most", shared, rounds*len(workloads))
	}
	settled(t)
	c.shows(t, "%d placements of two replicas, %d on one node", rounds*len(workloads), shared)
}

func podsOf(t *testing.T, kind string) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "get", "pods", "-l", "app.kubernetes.io/component="+kind, "-o",
		`go-template={{range .items}}{{if and (eq .status.phase "Running") (not .metadata.deletionTimestamp)}}{{.metadata.name}} {{end}}{{end}}`))
}
