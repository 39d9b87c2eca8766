//go:build cluster

package cluster

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// rights is a test. Each ServiceAccount must have exactly the permissions that its workload needs. The
// permissions of the ServiceAccount named `default` do not count, because every account has them.
func rights(t *testing.T, _ *cluster) {
	list := func(account string) []string {
		var lines []string
		for line := range strings.Lines(kubectl(t, "auth", "can-i", "--list", "--no-headers", "--as", "system:serviceaccount:"+namespace+":"+account)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	common := list("default")
	for account, want := range map[string][]string{
		release + "-deal-api":   nil,
		release + "-migration":  nil,
		release + "-log-server": {"configmaps [] [" + release + "-fork-guard] [get update]"},
		release + "-deadline-worker": {
			"events [] [] [create patch]",
			"leases.coordination.k8s.io [] [] [create]",
			"leases.coordination.k8s.io [] [fairpact-deadline-worker] [get update]",
		},
	} {
		got := slices.DeleteFunc(list(account), func(line string) bool { return slices.Contains(common, line) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("ServiceAccount %s may %q, want %q", account, got, want)
		}
	}
}

// probePodManifest is the manifest of a test pod. The pod is never ready, so that no Service sends it traffic.
const probePodManifest = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {%s}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: probe
    image: localhost/fairpact/clustertool:%s
    imagePullPolicy: Never
    args: [wait]
    readinessProbe: {exec: {command: [/clustertool, fail]}}
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// policies tests the NetworkPolicies: each workload must reach exactly the addresses that it needs. A
// pod without labels must reach all addresses except those of log-server, which refuses unknown pods. So
// these addresses accept connections, and only a policy can prevent a workload from reaching one of them.
func policies(t *testing.T, c *cluster) {
	const (
		public = release + "-deal-api:8080"
		read   = release + "-log-read:8090"
		add    = release + "-log-append:8091"
		sql    = "postgres:5432"
		cache  = "redis:6379"
		relay  = "beacon:8080"
		api    = "kubernetes.default.svc:443"
	)
	// No NetworkPolicy of the chart allows the kubelet's port, so no pod of the release may reach it.
	kubelet := kubectl(t, "get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`) + ":10250"
	all := []string{public, read, add, sql, cache, relay, api, kubelet}
	probed := []struct {
		component string
		open      []string
	}{
		// Postgres, Redis and the relay are not part of the release. The chart does not
		// restrict who reaches them.
		{"", []string{public, sql, cache, relay, api, kubelet}},
		{"deal-api", []string{read, add, sql, cache, relay}},
		{"log-server", []string{sql, api}},
		{"deadline-worker", []string{read, add, sql, cache, relay, api}},
		{"test", []string{public}},
	}
	for _, probe := range probed {
		labels := ""
		if probe.component != "" {
			labels = fmt.Sprintf("app.kubernetes.io/name: fairpact, app.kubernetes.io/instance: %s, app.kubernetes.io/component: %s", release, probe.component)
		}
		apply(t, namespace, fmt.Sprintf(probePodManifest, "probe-"+cmp.Or(probe.component, "stranger"), labels, c.old))
	}
	for _, probe := range probed {
		name := "probe-" + cmp.Or(probe.component, "stranger")
		e2e.Eventually(t, name+" runs", 2*time.Minute, func() bool {
			return kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.phase}") == "Running"
		})
		var want []string
		for _, address := range all {
			verdict := "closed "
			if slices.Contains(probe.open, address) {
				verdict = "open "
			}
			want = append(want, verdict+address)
		}
		var got string
		// The network plugin may need a moment to learn of a new pod.
		for end := time.Now().Add(30 * time.Second); got != strings.Join(want, "\n") && time.Now().Before(end); {
			got = strings.TrimSpace(kubectl(t, append([]string{"exec", name, "--", "/clustertool", "probe"}, all...)...))
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("%s reaches\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
		}
		kubectl(t, "delete", "pod", name, "--wait=false")
		denied := slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(probe.open, address) })
		c.shows(t, "%s reaches %s, not %s", name, strings.Join(probe.open, " "), strings.Join(denied, " "))
	}
}

// dryRun renders the chart with the combinations of values that `make chart` checks. The API
// server must know every field, and admit the pods under the restricted Pod Security Standard.
func dryRun(t *testing.T, c *cluster) {
	definitions := needed(t, "FAIRPACT_E2E_DEFINITIONS")
	// Some CustomResourceDefinitions are too long for the annotation that a client-side apply adds.
	must(t, "kubectl", "apply", "--server-side", "-f", definitions)
	must(t, "kubectl", "wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
	const into = namespace + "-dry"
	restricted(t, into)
	try := func(manifest string) (said string, err error) {
		cmd := exec.CommandContext(t.Context(), "kubectl", "-n", into, "create", "--dry-run=server", "--validate=strict", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	// After a definition is Established, the API server may need a moment before it serves the custom kind.
	e2e.Eventually(t, "the custom kinds are known", time.Minute, func() bool {
		_, err := run(t.Context(), "", "kubectl", "get", "httproutes,servicemonitors,podmonitors,prometheusrules", "-n", into)
		return err == nil
	})

	minimal := chart + "/tests/values/kms.yaml"
	var all []string
	for _, pattern := range []string{"tests/values/*.yaml", "tests/combinations/*.yaml", "../../manifests/values-*.yaml"} {
		files, err := filepath.Glob(filepath.Join(chart, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s matches %d files, want at least one: %v", pattern, len(files), err)
		}
		for _, file := range files {
			args := []string{"template", release, chart, "-n", into, "--set-string", "image.tag=v1.2.3"}
			if strings.Contains(pattern, "combinations") {
				args = append(args, "--values", minimal)
			}
			documents := strings.Split(must(t, "helm", append(args, "--values", file)...), "\n---\n")
			// Only GKE defines this kind of extraObjects. `make chart` skips it too.
			documents = slices.DeleteFunc(documents, func(one string) bool { return strings.Contains(one, "\nkind: GCPBackendPolicy\n") })
			said, err := try(strings.Join(documents, "\n---\n"))
			if err != nil || strings.Contains(said, "Warning") {
				t.Errorf("server-side dry run with %s: %v\n%s", file, err, said)
			}
			all = append(all, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		}
	}
	rendered := must(t, "helm", "template", release, chart, "-n", into, "--values", minimal)
	for right, wrong := range map[string]string{"readOnlyRootFilesystem:": "readOnlyRootFileSystem:", "runAsNonRoot: true": "runAsNonRoot: false"} {
		if said, err := try(strings.ReplaceAll(rendered, right, wrong)); err == nil && !strings.Contains(said, "Warning") {
			t.Errorf("the dry run accepted %q without a warning:\n%s", wrong, said)
		}
	}
	must(t, "kubectl", "delete", "namespace", into, "--wait=false")
	c.shows(t, "server-side dry run of %d combinations of values: %s", len(all), strings.Join(all, " "))
}
