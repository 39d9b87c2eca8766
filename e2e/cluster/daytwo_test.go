//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

func (c *cluster) ask(t *testing.T, method, path string) (status int, body string, err error) {
	t.Helper()
	client := newClient(t, c.base)
	defer client.Http.CloseIdleConnections()
	a, err := client.Try(t.Context(), method, path, "", nil)
	return a.Status, string(a.Body), err
}

func restarts(t *testing.T, in string) string {
	t.Helper()
	return must(t, "kubectl", "-n", in, "get", "pods", "-l", "app.kubernetes.io/component in (deal-api,log-server,deadline-worker)", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}{"\n"}{end}`)
}

const away = time.Minute

// postgresAway makes Postgres unreachable for a minute. Calls that need Postgres get a 503
// UNAVAILABLE, and other calls succeed. No pod becomes unready or restarts.
func postgresAway(t *testing.T, c *cluster) {
	before := restarts(t, namespace)
	selects := func(app string) {
		kubectl(t, "patch", "service", "postgres", "--type=merge", "-p", `{"spec":{"selector":{"app":"`+app+`"}}}`)
	}
	selects("nothing")
	back := sync.OnceFunc(func() { selects("postgres") })
	defer back()
	cut := func() {
		kubectl(t, "exec", "deployment/postgres", "--", "psql", "-h", "127.0.0.1", "-U", "app", "-qAt", "-c",
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app' AND pid <> pg_backend_pid()", "app")
	}
	cut()
	e2e.Eventually(t, "deal-api has no Postgres", time.Minute, func() bool {
		cut() // a pod may have opened a connection after the first cut
		status, _, err := c.ask(t, "POST", "/v1/keys")
		return err == nil && status == 503
	})
	answers, began := map[string]int{}, time.Now()
	for time.Since(began) < away {
		for path, want := range map[string]int{"/v1/keys": 503, "/v1/status": 200, "/": 200, "/openapi.json": 200, "/llms.txt": 200, "/trust": 200, "/v1/algorithms": 200} {
			method := "GET"
			if want == 503 {
				method = "POST"
			}
			status, body, err := c.ask(t, method, path)
			if err != nil || status != want || want == 503 && !strings.HasPrefix(body, `{"error":"UNAVAILABLE: `) {
				t.Fatalf("%s %s after %s without Postgres: %d %.200s (%v), want %d", method, path, time.Since(began), status, body, err, want)
			}
			answers[fmt.Sprint(status)]++
		}
	}
	for _, pod := range podsOf(t, "deal-api") {
		if !strings.Contains(metrics(t, pod), "\nfairpact_database_up 0\n") {
			t.Errorf("pod %s does not report fairpact_database_up 0", pod)
		}
	}
	if after := restarts(t, namespace); after != before {
		t.Errorf("restarts and readiness changed without Postgres, to\n%s\nfrom\n%s", after, before)
	}
	back()
	e2e.Eventually(t, "Postgres is back", time.Minute, func() bool {
		status, _, err := c.ask(t, "POST", "/v1/keys")
		return err == nil && status == 201
	})
	c.plays(t, "after the outage of Postgres")
	c.shows(t, "Postgres away for %s: answers through the Service by status %v, no connection refused, no pod restarted", away, answers)
}

func postgres(t *testing.T, args ...string) string {
	t.Helper()
	return kubectl(t, append([]string{"exec", "deployment/postgres", "--"}, args...)...)
}

// settled waits until the old pods are gone. helm --wait returns earlier, when the new
// pods are ready.
func settled(t *testing.T) {
	t.Helper()
	rolledOut(t, namespace, workloads...)
	e2e.Eventually(t, "no pod is terminating", 2*time.Minute, func() bool {
		return strings.TrimSpace(kubectl(t, "get", "pods", "-o", `go-template={{range .items}}{{if .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}`)) == ""
	})
}

// readOnlyAndRestore follows runbooks/restore.md. It makes the release read-only and
// restores an older dump, which the fork guard must refuse. It then restores the newest
// dump and allows changes again.
func readOnlyAndRestore(t *testing.T, c *cluster) {
	database := needed(t, "FAIRPACT_E2E_DATABASE")
	postgres(t, "pg_dump", "--format=custom", "--file=/tmp/older.dump", database)
	c.plays(t, "before the maintenance")

	c.upgrade(t, c.old, "maintenance.readOnly=true")
	settled(t)
	readOnly := func() {
		t.Helper()
		if status, body, err := c.ask(t, "GET", "/v1/status"); err != nil || status != 200 || !strings.Contains(body, "in maintenance") {
			t.Errorf("GET /v1/status: %d %s (%v), want 200 and a note about the maintenance", status, body, err)
		}
		if status, body, err := c.ask(t, "POST", "/v1/keys"); err != nil || status != 503 || !strings.HasPrefix(body, `{"error":"READ_ONLY: `) {
			t.Errorf("POST /v1/keys: %d %s (%v), want 503 READ_ONLY", status, body, err)
		}
	}
	readOnly()
	kept := psql(t, count)
	postgres(t, "pg_dump", "--format=custom", "--file=/tmp/newest.dump", database)

	restore := func(dump string) {
		t.Helper()
		postgres(t, "pg_restore", "--clean", "--if-exists", "--single-transaction", "--dbname="+database, "/tmp/"+dump+".dump")
		kubectl(t, "exec", "deployment/redis", "--", "redis-cli", "flushall")
		kubectl(t, "rollout", "restart", "deployment/"+release+"-log-server")
		rolledOut(t, namespace, release+"-log-server")
		settled(t)
	}
	refusals := func() (pods int) {
		for _, pod := range podsOf(t, "log-server") {
			if strings.Contains(kubectl(t, "logs", pod), "the database is older than what was signed") {
				pods++
			}
		}
		return pods
	}
	restore("older")
	e2e.Eventually(t, "the fork guard refuses the older dump", time.Minute, func() bool { return refusals() > 0 })
	readOnly()
	restore("newest")
	readOnly()
	if got := psql(t, count); got != kept {
		t.Errorf("deals, certificates and leaves after the restore: %s, want %s", got, kept)
	}
	c.upgrade(t, c.old)
	settled(t)
	c.plays(t, "after the restore")
	if n := refusals(); n > 0 {
		t.Errorf("%d pods of log-server refuse the newest dump, want 0", n)
	}
	c.shows(t, "read-only, an older dump refused, the newest restored: %s deals|certificates|leaves kept", kept)
}

const count = "SELECT (SELECT count(*) FROM deals), (SELECT count(*) FROM certificates), (SELECT count(*) FROM translog.leaves)"

// uninstallAndBack follows runbooks/operations.md. The log must continue when the release
// is installed again, because the fork guard, the Secrets and the database stay.
func uninstallAndBack(t *testing.T, c *cluster) {
	guard := func() string {
		return kubectl(t, "get", "configmap", release+"-fork-guard", "-o", "jsonpath={.data.size} {.data.root}")
	}
	c.plays(t, "before the release is uninstalled")
	must(t, "helm", "uninstall", release, "-n", namespace, "--wait", "--timeout", "3m")
	onPage(t, "operations.md", "wait --for=delete pod")
	kept, guarded := psql(t, count), guard()
	kubectl(t, "get", "secret", "server")
	c.upgrade(t, c.old)
	c.updateBase(t)
	if got, now := psql(t, count), guard(); got != kept || now != guarded {
		t.Errorf("after the installation: deals|certificates|leaves %s and the guard at %s, want %s and %s", got, now, kept, guarded)
	}
	c.plays(t, "after the release is installed again")
	c.shows(t, "uninstalled and installed again: %s deals|certificates|leaves kept, the guard at %s", kept, guarded)
}

// dataImage returns the image of the `postgres` Deployment, which also contains Redis.
func dataImage(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, "get", "deployment", "postgres", "-o", "jsonpath={.spec.template.spec.containers[0].image}"))
}

// trial installs the chart with dev.enabled. The chart's Postgres and Redis must survive a restart
// of the three workloads. The chart must refuse the Secret of a production database.
func trial(t *testing.T, c *cluster) {
	const in = "fairpact-trial"
	restricted(t, in)
	defer must(t, "kubectl", "delete", "namespace", in, "--wait=false")
	args := []string{"upgrade", "--install", release, chart, "-n", in, "--wait", "--timeout", "5m", "--set-string", "image.tag=" + c.old,
		"--set", "image.registry=localhost/fairpact,image.pullPolicy=Never,dev.enabled=true,dev.postgresImage=" + dataImage(t) + ",dev.redisImage=" + dataImage(t)}
	must(t, "helm", args...)
	must(t, "helm", "test", release, "-n", in, "--timeout", "3m")
	servers := func() string {
		return must(t, "kubectl", "-n", in, "get", "pods", "-l", "app.kubernetes.io/component in (dev-postgres,dev-redis)", "-o", `jsonpath={.items[*].metadata.uid}`)
	}
	leaves := func() string {
		return strings.TrimSpace(must(t, "kubectl", "-n", in, "exec", "deployment/"+release+"-dev-postgres", "--", "psql", "-h", "/tmp", "-U", "fairpact", "-qAt", "-c",
			"SELECT count(*) FROM translog.leaves", "fairpact"))
	}
	before, pods := servers(), restarts(t, in)
	must(t, "kubectl", append([]string{"-n", in, "rollout", "restart", "deployment"}, workloads...)...)
	rolledOut(t, in, workloads...)
	if after := servers(); after != before || leaves() != "1" {
		t.Errorf("after the restart the pods of Postgres and Redis are %s, want %s; the log has %s leaves, want 1", after, before, leaves())
	}
	if restarts(t, in) == pods {
		t.Errorf("no workload was restarted: the pods are still\n%s", pods)
	}
	must(t, "helm", "test", release, "-n", in, "--timeout", "3m")
	if _, err := run(t.Context(), "", "helm", append(args, "--set", "secrets.database.existingSecret=db")...); err == nil || !strings.Contains(err.Error(), "dev.enabled is for trials") {
		t.Errorf("dev.enabled with a Secret of production: %v, want an error that it is for trials", err)
	}
	c.shows(t, "a trial keeps its servers through a restart of the three workloads, and refuses the database of production")
}

// gitOps installs the chart as a GitOps tool does. It applies the rendered hooks in the order of
// their weights, waits for the migration Job, and then applies the other objects.
func gitOps(t *testing.T, c *cluster) {
	const in = "fairpact-gitops"
	restricted(t, in)
	defer must(t, "kubectl", "delete", "namespace", in, "--wait=false")
	psql(t, "CREATE DATABASE gitops")
	url := strings.NewReplacer("@postgres:", "@postgres."+namespace+":", "/app?", "/gitops?").Replace(needed(t, "FAIRPACT_E2E_DATABASE"))
	secrets(t, in, map[string][2]string{
		"db": {"url", url}, "redis": {"url", "redis://redis." + namespace + ":6379/1"}, "server": {"server-secret", random()},
		"append": {"append-secret", random()}, "signing": {"key.pem", newKey(t)},
	})
	rendered := must(t, "helm", "template", release, chart, "-n", in, "--values", "values.yaml", "--set-string", "image.tag="+c.old,
		"--set-json", `networkPolicy={"egress":{"postgres":{"to":[]},"redis":{"to":[]}}}`)
	hooks, rest := hooksOf(t, rendered)
	apply(t, in, hooks["-10"])
	apply(t, in, hooks["0"])
	must(t, "kubectl", "-n", in, "wait", "--for=condition=complete", "job", "-l", "app.kubernetes.io/component=migration", "--timeout=120s")
	apply(t, in, rest)
	rolledOut(t, in, workloads...)
	smoke := func() string {
		return must(t, "kubectl", "-n", in, "exec", "deployment/"+release+"-deal-api", "--", "/fairpactctl", "smoke", "--base-url", "http://"+release+"-deal-api:8080", "--timeout", "60s")
	}
	smoke()
	guard := func() string {
		return must(t, "kubectl", "-n", in, "get", "configmap", release+"-fork-guard", "-o", "jsonpath={.data}")
	}
	record := guard()
	apply(t, in, rest) // a GitOps tool applies the objects again at each sync
	if after := guard(); after != record || !strings.Contains(record, "root") {
		t.Errorf("the fork guard's record after a sync is %s, want %s with a root", after, record)
	}
	smoke()
	c.shows(t, "helm template, its hooks as a Job before the rest: a deal is played, and a second sync keeps the fork guard's record")
}

// hooksOf returns the rendered pre-install hooks by weight, and the objects that are not hooks.
func hooksOf(t *testing.T, rendered string) (hooks map[string]string, rest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	e2e.Must(t, os.WriteFile(file, []byte(rendered), 0o600))
	out, err := exec.CommandContext(t.Context(), "kubectl", "create", "--dry-run=client", "-o", "json", "-f", file).Output()
	e2e.Must(t, err)
	hooks = map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var text json.RawMessage
		var object struct {
			Metadata struct{ Annotations map[string]string }
		}
		e2e.Must(t, decoder.Decode(&text))
		e2e.Must(t, json.Unmarshal(text, &object))
		switch a := object.Metadata.Annotations; {
		case a["helm.sh/hook"] == "":
			rest += string(text) + "\n---\n"
		case strings.Contains(a["helm.sh/hook"], "pre-install"):
			hooks[a["helm.sh/hook-weight"]] += string(text) + "\n---\n"
		}
	}
	return hooks, rest
}
