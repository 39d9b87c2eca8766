//go:build cluster

// Package cluster tries Fairpact on a Kubernetes cluster: the chart, installed
// where the restricted Pod Security Standard is enforced, answers, keeps strangers
// out, and is upgraded and disturbed under load. hack/e2e-cluster.sh runs it.
//
// It needs kubectl and helm on the PATH, KUBECONFIG, and:
//
//	FAIRPACT_E2E_IMAGES       folder of the archives of hack/images
//	FAIRPACT_E2E_TAGS         the two tags to upgrade between, "old new"; their versions differ
//	FAIRPACT_E2E_REVISION     the commit that they were built from, where it is known
//	FAIRPACT_E2E_BLACKBOX     test binary of e2e/
//	FAIRPACT_E2E_DEFINITIONS  folder of the definitions of the custom kinds that the chart may make
//	FAIRPACT_LOAD_IMAGES      command that loads one archive, such as `kind load image-archive`
//	FAIRPACT_E2E_DATA         manifest of Postgres and Redis (redis://redis:6379)
//	FAIRPACT_E2E_DATABASE     URL of that Postgres
//	FAIRPACT_E2E_BASE_URL     where deal-api answers (default: its Service, for tests that run in the cluster's
//	                          network; "node": a port of a node, where only those can be reached)
package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	namespace = "fairpact-e2e"
	release   = "fairpact"
	chart     = "../../charts/fairpact"
)

// cluster is the installed release.
type cluster struct {
	old, new string // tags
	base     string
	values   []string // files
	node     string   // address of a node, where deal-api is reached by its port
	numbers  []string // what the phases have measured
	overdue  *stream  // of deals that miss a deadline
	dir      string   // for files of the test's own
	keySet   string   // the document that the release has; empty: one key
}

// shows keeps a line of numbers for the end.
func (c *cluster) shows(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	c.numbers = append(c.numbers, line)
	t.Log(line)
}

// run runs a program and gives what it printed.
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectl works in the release's namespace.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, "kubectl", append([]string{"-n", namespace}, args...)...)
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := run(t.Context(), manifest, "kubectl", "-n", namespace, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
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

// install makes the namespace, the servers and secrets that are the user's, and
// the release.
func install(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{base: os.Getenv("FAIRPACT_E2E_BASE_URL"), dir: t.TempDir()}
	if c.base == "" {
		c.base = fmt.Sprintf("http://%s-deal-api.%s.svc.cluster.local:8080", release, namespace)
	}
	tags := strings.Fields(needed(t, "FAIRPACT_E2E_TAGS"))
	if len(tags) != 2 {
		t.Fatalf("FAIRPACT_E2E_TAGS=%q: want two tags", tags)
	}
	c.old, c.new = tags[0], tags[1]
	archives, err := filepath.Glob(filepath.Join(needed(t, "FAIRPACT_E2E_IMAGES"), "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives in FAIRPACT_E2E_IMAGES: %v", err)
	}
	load := strings.Fields(needed(t, "FAIRPACT_LOAD_IMAGES"))
	for _, archive := range archives {
		for _, tag := range tags {
			if strings.HasSuffix(archive, "_"+tag+".tar") {
				must(t, load[0], append(load[1:], archive)...)
			}
		}
	}
	must(t, "kubectl", "create", "namespace", namespace)
	must(t, "kubectl", "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	kubectl(t, "apply", "-f", needed(t, "FAIRPACT_E2E_DATA"))
	secret := func(name, key, value string) {
		kubectl(t, "create", "secret", "generic", name, "--from-literal="+key+"="+value)
	}
	secret("db", "url", needed(t, "FAIRPACT_E2E_DATABASE"))
	secret("redis", "url", "redis://redis:6379/0")
	secret("server", "server-secret", random())
	secret("append", "append-secret", random())
	kubectl(t, "create", "secret", "generic", "signing", "--from-literal=key.pem="+newKey(t), "--from-literal=next.pem="+newKey(t))
	c.values = []string{"values.yaml", beaconOf(t, c.old)}
	if c.base == "node" {
		c.node = kubectl(t, "get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	}
	for _, name := range []string{"postgres", "redis", "beacon"} {
		kubectl(t, "rollout", "status", "deployment/"+name, "--timeout=180s")
	}
	c.upgrade(t, c.old)
	if c.node != "" {
		c.base = "http://" + c.node + ":" + kubectl(t, "get", "service", release+"-deal-api", "-o", "jsonpath={.spec.ports[0].nodePort}")
	}
	return c
}

// upgrade brings the release to a tag and waits until it is there.
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

// explain logs what a reader needs who was not there.
func explain(t *testing.T) {
	ask := func(args ...string) {
		// The test's own context may have ended.
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// eventually asks again until it is so.
func eventually(t *testing.T, what string, within time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
