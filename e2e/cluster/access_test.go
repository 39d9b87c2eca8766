//go:build cluster

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each ServiceAccount may do what its workload needs and nothing more: beyond
// what every account may, exactly these.
func rights(t *testing.T, _ *cluster) {
	list := func(account string) []string {
		var lines []string
		for line := range strings.Lines(kubectl(t, "auth", "can-i", "--list", "--no-headers", "--as", "system:serviceaccount:"+namespace+":"+account)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	anybody := list("default")
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
		got := slices.DeleteFunc(list(account), func(line string) bool { return slices.Contains(anybody, line) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s may %q, want %q", account, got, want)
		}
	}
}

// probes is a pod with the labels of a component, or none, that is never ready
// and so behind no Service.
const probes = `
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

// The policies let each workload reach what it needs and nothing else, and
// nobody else in. The stranger, whom no policy covers, shows that all of it is
// there to be reached.
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
	// Of a node: an address that is no pod's, on a port that no rule names.
	kubelet := kubectl(t, "get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`) + ":10250"
	all := []string{public, read, add, sql, cache, relay, api, kubelet}
	probed := []struct {
		component string
		open      []string
	}{
		// Postgres, Redis and the relay are the user's, and so are the policies of who enters them.
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
		apply(t, fmt.Sprintf(probes, "probe-"+cmp.Or(probe.component, "stranger"), labels, c.old))
	}
	for _, probe := range probed {
		name := "probe-" + cmp.Or(probe.component, "stranger")
		eventually(t, name+" runs", 2*time.Minute, func() bool {
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
		// An enforcer may need a moment to know a new pod.
		for end := time.Now().Add(30 * time.Second); got != strings.Join(want, "\n") && time.Now().Before(end); {
			got = strings.TrimSpace(kubectl(t, append([]string{"exec", name, "--", "/clustertool", "probe"}, all...)...))
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("%s finds\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
		}
		kubectl(t, "delete", "pod", name, "--wait=false")
		denied := slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(probe.open, address) })
		c.shows(t, "%s reaches %s, not %s", name, strings.Join(probe.open, " "), strings.Join(denied, " "))
	}
}
