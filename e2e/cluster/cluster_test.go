//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The phases share one release: each finds it well and leaves it well.
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
		{"a trial", trial},
		{"GitOps", gitOps},
		{"deals miss their deadlines from here", startOverdue},
		{"a rotation of the key is rolled out", startRotation},
		{"upgrade and back", upgradeAndBack},
		{"pods deleted", podsDeleted},
		{"lease handed over", leaseHandedOver},
		{"leader killed", leaderKilled},
		{"two workers without election", withoutElection},
		{"deals have missed their deadlines", stopOverdue},
		{"the key has been rotated", rotated},
		{"the books", books},
	} {
		if !t.Run(phase.name, func(t *testing.T) { phase.run(t, c) }) {
			explain(t)
		}
	}
	t.Logf("the numbers:\n%s", strings.Join(c.numbers, "\n"))
}

// What the images of the two tags call themselves.
const oldVersion, newVersion = "0.0.1", "0.0.2"

func (c *cluster) status(t *testing.T) (version, pubkey string) {
	t.Helper()
	var status struct{ Version, Pubkey string }
	s := &stream{base: c.base, http: newHTTP()}
	if err := s.call(t.Context(), "GET", "/v1/status", "", nil, 200, &status); err != nil {
		t.Fatal(err)
	}
	return status.Version, status.Pubkey
}

// A new version with another configuration, and back, under load.
func upgradeAndBack(t *testing.T, c *cluster) {
	c.becomes(t, oldVersion)
	s := startStream(t, c.base)
	c.upgrade(t, c.new, "logLevel=debug")
	c.becomes(t, newVersion)
	must(t, "helm", "rollback", release, "-n", namespace, "--wait", "--timeout", "5m")
	c.becomes(t, oldVersion)
	s.stop(t, c, "upgrade and rollback")
}

// whatRuns looks into the metrics of each pod.
func whatRuns(t *testing.T, _ *cluster) {
	revision := os.Getenv("FAIRPACT_E2E_REVISION") // empty where there is no git
	revision = revision[:min(12, len(revision))]
	for _, component := range []string{"deal-api", "log-server", "deadline-worker"} {
		for _, pod := range podsOf(t, component) {
			want := fmt.Sprintf(`fairpact_build_info{binary=%q,revision=%q,version=%q} 1`, component, revision, oldVersion)
			if all := metrics(t, pod); !strings.Contains(all, want) {
				t.Errorf("%s: no %s in its metrics\n%.1500s", pod, want, all)
			}
		}
	}
}

// metrics are those of a pod, by way of the API server.
func metrics(t *testing.T, pod string) string {
	t.Helper()
	port := "8082"
	if strings.Contains(pod, "log-server") {
		port = "8092"
	}
	return kubectl(t, "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+":"+port+"/proxy/metrics")
}

// becomes waits until the last pod of another version has gone from the
// endpoints: helm does not wait for that.
func (c *cluster) becomes(t *testing.T, version string) {
	t.Helper()
	same := 0
	eventually(t, "version "+version+" only", time.Minute, func() bool {
		same++
		if is, _ := c.status(t); !strings.HasPrefix(is, version) {
			same = 0
		}
		return same == 10
	})
}

// One pod of each kind after another is deleted under load, gently and by force.
func podsDeleted(t *testing.T, c *cluster) {
	for _, how := range [][]string{{"--wait=true"}, {"--grace-period=0", "--force"}} {
		for _, kind := range []string{"deal-api", "log-server", "deadline-worker"} {
			s := startStream(t, c.base)
			s.flows(t, 100)
			kubectl(t, append([]string{"delete", "pod", podsOf(t, kind)[0]}, how...)...)
			kubectl(t, "rollout", "status", "deployment/"+release+"-"+kind, "--timeout=120s")
			s.stop(t, c, kind+" deleted "+strings.Join(how, " "))
		}
	}
}

// podsOf gives the pods of a component that run and are to stay.
func podsOf(t *testing.T, kind string) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "get", "pods", "-l", "app.kubernetes.io/component="+kind, "-o",
		`go-template={{range .items}}{{if and (eq .status.phase "Running") (not .metadata.deletionTimestamp)}}{{.metadata.name}} {{end}}{{end}}`))
}
