//go:build cluster

// Package cluster tries Fairpact on a Kubernetes cluster: the chart, installed
// where the restricted Pod Security Standard is enforced, answers, keeps strangers
// out, and is upgraded and disturbed under load. hack/e2e-cluster.sh runs it.
//
// It needs kubectl and helm on the PATH, KUBECONFIG, and:
//
//	FAIRPACT_E2E_IMAGES    folder of the archives of hack/images
//	FAIRPACT_E2E_TAGS      the two tags to upgrade between, "old new"; their versions differ
//	FAIRPACT_LOAD_IMAGES   command that loads one archive, such as `kind load image-archive`
//	FAIRPACT_E2E_DATA      manifest of Postgres and Redis (redis://redis:6379)
//	FAIRPACT_E2E_DATABASE  URL of that Postgres
//	FAIRPACT_E2E_BASE_URL  where deal-api answers (default: its Service, for tests that run in the cluster's
//	                       network; "node": a port of a node, where only those can be reached)
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
	c := &cluster{base: os.Getenv("FAIRPACT_E2E_BASE_URL")}
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
	secret("signing", "key.pem", newKey(t))
	kubectl(t, "rollout", "status", "deployment/postgres", "--timeout=120s")
	kubectl(t, "rollout", "status", "deployment/redis", "--timeout=120s")
	c.upgrade(t, c.old)
	if c.base == "node" {
		c.base = "http://" + kubectl(t, "get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`) +
			":" + kubectl(t, "get", "service", release+"-deal-api", "-o", "jsonpath={.spec.ports[0].nodePort}")
	}
	return c
}

// upgrade brings the release to a tag and waits until it is there.
func (c *cluster) upgrade(t *testing.T, tag string, set ...string) {
	t.Helper()
	args := []string{"upgrade", "--install", release, chart, "-n", namespace, "--wait", "--timeout", "5m",
		"--values", "values.yaml", "--set-string", "image.tag=" + tag}
	if os.Getenv("FAIRPACT_E2E_BASE_URL") == "node" {
		set = append(set, "dealApi.service.type=NodePort")
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	if _, err := run(t.Context(), "", "helm", args...); err != nil {
		state, _ := run(t.Context(), "", "kubectl", "-n", namespace, "get", "pods,jobs,events")
		t.Fatalf("%v\n%s", err, state)
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
