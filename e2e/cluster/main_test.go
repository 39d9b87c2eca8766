//go:build cluster

// Package cluster tests Fairpact on a Kubernetes cluster. It installs the chart under the
// restricted Pod Security Standard, and checks the ServiceAccounts' rights and the network
// policies. It upgrades the release and causes faults under load. hack/e2e-cluster.sh runs the
// tests.
//
// The tests need kubectl and helm on the PATH, KUBECONFIG, and:
//
//	FAIRPACT_E2E_IMAGES       folder of the image archives that hack/images builds
//	FAIRPACT_E2E_TAGS         two image tags of different versions, "old new", to upgrade between
//	FAIRPACT_E2E_REVISION     the commit of the images, empty if unknown
//	FAIRPACT_E2E_BLACKBOX     folder of the test binaries of e2e/api, e2e/trust and e2e/mcp
//	FAIRPACT_E2E_DEFINITIONS  folder of the CustomResourceDefinitions of all custom kinds in the chart
//	FAIRPACT_LOAD_IMAGES      command that loads one archive, such as `kind load image-archive`
//	FAIRPACT_E2E_DATA         manifest of Postgres and Redis (redis://redis:6379)
//	FAIRPACT_E2E_DATABASE     URL of that Postgres
//	FAIRPACT_E2E_BASE_URL     URL of deal-api. If empty, the tests use deal-api's Service, and must
//	                          run in the cluster's network. If "node", the tests use a NodePort.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

const (
	namespace = "fairpact-e2e"
	release   = "fairpact"
	chart     = "../../charts/fairpact"
)

type cluster struct {
	old, new     string // image tags
	base         string
	values       []string // Helm values files
	node         string   // address of a node if the tests call deal-api's NodePort, otherwise empty
	measurements []string
	overdue      *stream
	dir          string
	keySet       string // JSON of the release's key set; empty before startRotation
}

// shows writes a measurement, or the failures of a stream, to the test's log. TestCluster logs
// all of them again at the end.
func (c *cluster) shows(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	c.measurements = append(c.measurements, line)
	t.Log(line)
}

func run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), said.String())
	}
	return out.String(), nil
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), "", name, args...)
	e2e.Must(t, err)
	return out
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, "kubectl", append([]string{"-n", namespace}, args...)...)
}

// onPage runs the command of a runbook that has `part` in it, for this release, and returns the output.
func onPage(t *testing.T, page, part string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "runbooks", page))
	e2e.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "kubectl ") && strings.Contains(line, part) {
			return must(t, "bash", "-o", "pipefail", "-c", strings.ReplaceAll(line, "-n fairpact ", "-n "+namespace+" "))
		}
	}
	t.Fatalf("%s has no command with %q", page, part)
	return ""
}

func apply(t *testing.T, in, manifest string) {
	t.Helper()
	if _, err := run(t.Context(), manifest, "kubectl", "-n", in, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func restricted(t *testing.T, name string) {
	t.Helper()
	must(t, "kubectl", "create", "namespace", name)
	must(t, "kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
}

func rolledOut(t *testing.T, in string, workloads ...string) {
	t.Helper()
	for _, workload := range workloads {
		must(t, "kubectl", "-n", in, "rollout", "status", "deployment/"+workload, "--timeout=180s")
	}
}

var workloads = []string{release + "-deal-api", release + "-log-server", release + "-deadline-worker"}

func secrets(t *testing.T, in string, all map[string][2]string) {
	t.Helper()
	for name, of := range all {
		must(t, "kubectl", "-n", in, "create", "secret", "generic", name, "--from-literal="+of[0]+"="+of[1])
	}
}

func needed(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run hack/e2e-cluster.sh", name)
	}
	return value
}

func install(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{base: os.Getenv("FAIRPACT_E2E_BASE_URL"), dir: t.TempDir()}
	if c.base == "" {
		c.base = fmt.Sprintf("http://%s-deal-api.%s.svc.cluster.local:8080", release, namespace)
	}
	tags := strings.Fields(needed(t, "FAIRPACT_E2E_TAGS"))
	if len(tags) != 2 {
		t.Fatalf("FAIRPACT_E2E_TAGS has the tags %q, want two", tags)
	}
	c.old, c.new = tags[0], tags[1]
	archives, err := filepath.Glob(filepath.Join(needed(t, "FAIRPACT_E2E_IMAGES"), "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("FAIRPACT_E2E_IMAGES=%s has no archive *.tar: %v", os.Getenv("FAIRPACT_E2E_IMAGES"), err)
	}
	load := strings.Fields(needed(t, "FAIRPACT_LOAD_IMAGES"))
	for _, archive := range archives {
		for _, tag := range tags {
			if strings.HasSuffix(archive, "_"+tag+".tar") {
				must(t, load[0], append(load[1:], archive)...)
			}
		}
	}
	restricted(t, namespace)
	kubectl(t, "apply", "-f", needed(t, "FAIRPACT_E2E_DATA"))
	secrets(t, namespace, map[string][2]string{
		"db": {"url", needed(t, "FAIRPACT_E2E_DATABASE")}, "redis": {"url", "redis://redis:6379/0"},
		"server": {"server-secret", random()}, "append": {"append-secret", random()},
	})
	kubectl(t, "create", "secret", "generic", "signing", "--from-literal=key.pem="+newKey(t), "--from-literal=next.pem="+newKey(t))
	c.values = []string{"values.yaml", beaconOf(t, c.old)}
	if c.base == "node" {
		c.node = kubectl(t, "get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	}
	rolledOut(t, namespace, "postgres", "redis", "beacon")
	c.upgrade(t, c.old)
	c.updateBase(t)
	return c
}

// updateBase updates c.base, because each installation gets a new NodePort.
func (c *cluster) updateBase(t *testing.T) {
	t.Helper()
	if c.node != "" {
		c.base = "http://" + c.node + ":" + kubectl(t, "get", "service", release+"-deal-api", "-o", "jsonpath={.spec.ports[0].nodePort}")
	}
}

func (c *cluster) upgrade(t *testing.T, tag string, set ...string) {
	t.Helper()
	args := []string{"upgrade", "--install", release, chart, "-n", namespace, "--wait", "--timeout", "5m", "--set-string", "image.tag=" + tag}
	for _, file := range c.values {
		args = append(args, "--values", file)
	}
	if c.node != "" {
		set = append(set, "dealApi.service.type=NodePort", "publicHosts={"+c.node+"}")
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	must(t, "helm", args...)
}

func explain(t *testing.T) {
	ask := func(args ...string) {
		// The test's context may have ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		out, err := run(ctx, "", "kubectl", append([]string{"-n", namespace}, args...)...)
		if err != nil {
			out = err.Error()
		}
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
	ask("get", "pods,jobs,leases", "-o", "wide")
	ask("get", "events", "--field-selector=type!=Normal", "--sort-by=.lastTimestamp")
	for _, component := range []string{"deal-api", "log-server", "deadline-worker", "migration", "test"} {
		ask("logs", "-l", "app.kubernetes.io/component="+component, "--all-containers", "--prefix", "--tail=40")
	}
}

func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newKey(t *testing.T) string {
	t.Helper()
	uri, _ := e2e.KeyFile(t)
	text, err := os.ReadFile(strings.TrimPrefix(uri, "file://"))
	e2e.Must(t, err)
	return string(text)
}
