//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ask makes one request through the Service.
func (c *cluster) ask(t *testing.T, method, path string) (status int, body string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := &stream{base: c.base, http: newHTTP()}
	defer s.http.CloseIdleConnections()
	status, text, err := s.attempt(ctx, method, path, "", random(), []byte("{}"))
	return status, string(text), err
}

// restarts names each pod of the workloads and how often its container was restarted.
func restarts(t *testing.T, in string) string {
	t.Helper()
	return must(t, "kubectl", "-n", in, "get", "pods", "-l", "app.kubernetes.io/component in (deal-api,log-server,deadline-worker)", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}{"\n"}{end}`)
}

const away = time.Minute

// postgresAway takes Postgres away for a minute. Through the Service every call
// that needs it is a 503 that says so, the others go on, no connection is refused,
// and no pod leaves or restarts.
func postgresAway(t *testing.T, c *cluster) {
	before := restarts(t, namespace)
	kubectl(t, "patch", "service", "postgres", "--type=merge", "-p", `{"spec":{"selector":{"app":"nobody"}}}`)
	back := func() {
		kubectl(t, "patch", "service", "postgres", "--type=merge", "-p", `{"spec":{"selector":{"app":"postgres"}}}`)
	}
	returned := false
	defer func() {
		if !returned {
			back()
		}
	}()
	cut := func() {
		kubectl(t, "exec", "deployment/postgres", "--", "psql", "-h", "127.0.0.1", "-U", "app", "-qAt", "-c",
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app' AND pid <> pg_backend_pid()", "app")
	}
	cut()
	eventually(t, "Postgres is missed", time.Minute, func() bool {
		cut() // connections that were on their way
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
				t.Fatalf("%s %s after %s without Postgres: %v, %d %.200s", method, path, time.Since(began), err, status, body)
			}
			answers[fmt.Sprint(status)]++
		}
	}
	for _, pod := range podsOf(t, "deal-api") {
		if !strings.Contains(metrics(t, pod), "\nfairpact_database_up 0\n") {
			t.Errorf("%s does not measure that Postgres is away", pod)
		}
	}
	if after := restarts(t, namespace); after != before {
		t.Errorf("pods without Postgres:\n%s\nbefore:\n%s", after, before)
	}
	back()
	returned = true
	eventually(t, "Postgres is back", time.Minute, func() bool {
		status, _, err := c.ask(t, "POST", "/v1/keys")
		return err == nil && status == 201
	})
	s := startStream(t, c.base)
	s.flows(t, 100)
	s.stop(t, c, "after the outage of Postgres")
	c.shows(t, "Postgres away for %s: answers through the Service by status %v, no connection refused, no pod restarted", away, answers)
}

func postgres(t *testing.T, args ...string) string {
	t.Helper()
	return kubectl(t, append([]string{"exec", "deployment/postgres", "--"}, args...)...)
}

// settled waits until no earlier pod drains any more.
func settled(t *testing.T) {
	t.Helper()
	eventually(t, "no pod is terminating", 2*time.Minute, func() bool {
		return strings.TrimSpace(kubectl(t, "get", "pods", "-o", `go-template={{range .items}}{{if .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}`)) == ""
	})
}

// readOnlyAndRestore follows runbooks/restore.md: read-only, an older dump that the
// fork guard refuses, the newest one, and traffic again.
func readOnlyAndRestore(t *testing.T, c *cluster) {
	database := needed(t, "FAIRPACT_E2E_DATABASE")
	postgres(t, "pg_dump", "--format=custom", "--file=/tmp/older.dump", database)
	s := startStream(t, c.base)
	s.flows(t, 100)
	s.stop(t, c, "before the maintenance")

	c.upgrade(t, c.old, "maintenance.readOnly=true")
	settled(t)
	readOnly := func() {
		t.Helper()
		if status, body, err := c.ask(t, "GET", "/v1/status"); err != nil || status != 200 || !strings.Contains(body, "in maintenance") {
			t.Errorf("the status: %v, %d %s", err, status, body)
		}
		if status, body, err := c.ask(t, "POST", "/v1/keys"); err != nil || status != 503 || !strings.HasPrefix(body, `{"error":"READ_ONLY: `) {
			t.Errorf("a change: %v, %d %s", err, status, body)
		}
	}
	readOnly()
	const count = "SELECT (SELECT count(*) FROM deals), (SELECT count(*) FROM certificates), (SELECT count(*) FROM translog.leaves)"
	kept := psql(t, count)
	postgres(t, "pg_dump", "--format=custom", "--file=/tmp/newest.dump", database)

	restore := func(dump string) {
		t.Helper()
		postgres(t, "pg_restore", "--clean", "--if-exists", "--exit-on-error", "--dbname="+database, "/tmp/"+dump+".dump")
		kubectl(t, "exec", "deployment/redis", "--", "redis-cli", "flushall")
		kubectl(t, "rollout", "restart", "deployment/"+release+"-log-server")
		kubectl(t, "rollout", "status", "deployment/"+release+"-log-server", "--timeout=180s")
		settled(t)
	}
	refusals := func() (says int) {
		for _, pod := range podsOf(t, "log-server") {
			if strings.Contains(kubectl(t, "logs", pod), "the database is older than what was signed") {
				says++
			}
		}
		return says
	}
	restore("older")
	eventually(t, "the fork guard refuses the older dump", time.Minute, func() bool { return refusals() > 0 })
	readOnly()
	restore("newest")
	readOnly()
	if got := psql(t, count); got != kept {
		t.Errorf("deals, certificates and leaves after the restore: %s, want %s", got, kept)
	}
	c.upgrade(t, c.old)
	settled(t)
	s = startStream(t, c.base)
	s.flows(t, 100)
	s.stop(t, c, "after the restore")
	if n := refusals(); n > 0 {
		t.Errorf("%d log-servers refuse the newest dump", n)
	}
	c.shows(t, "read-only, an older dump refused, the newest restored: %s deals|certificates|leaves kept", kept)
}

// dataImage holds Postgres and Redis, as the manifest of FAIRPACT_E2E_DATA does.
func dataImage(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, "get", "deployment", "postgres", "-o", "jsonpath={.spec.template.spec.containers[0].image}"))
}

// trial keeps its Postgres and Redis through a restart of the three workloads, and
// takes no value of production.
func trial(t *testing.T, c *cluster) {
	const in = "fairpact-trial"
	must(t, "kubectl", "create", "namespace", in)
	defer must(t, "kubectl", "delete", "namespace", in, "--wait=false")
	must(t, "kubectl", "label", "namespace", in, "pod-security.kubernetes.io/enforce=restricted")
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
	must(t, "kubectl", "-n", in, "rollout", "restart", "deployment", release+"-deal-api", release+"-log-server", release+"-deadline-worker")
	for _, component := range []string{"deal-api", "log-server", "deadline-worker"} {
		must(t, "kubectl", "-n", in, "rollout", "status", "deployment/"+release+"-"+component, "--timeout=180s")
	}
	if after := servers(); after != before || leaves() != "1" {
		t.Errorf("the trial's servers: %s, before %s; %s leaves, want 1", after, before, leaves())
	}
	if restarts(t, in) == pods {
		t.Error("no workload was restarted")
	}
	must(t, "helm", "test", release, "-n", in, "--timeout", "3m")
	if _, err := run(t.Context(), "", "helm", append(args, "--set", "secrets.database.existingSecret=db")...); err == nil || !strings.Contains(err.Error(), "dev.enabled is for trials") {
		t.Errorf("dev.enabled beside a Secret of production: %v", err)
	}
	c.shows(t, "a trial keeps its servers through a restart of the three workloads, and refuses the database of production")
}

// gitOps installs as a tool does that renders the chart: the hooks as plain objects
// first, in the order of their weights, and the rest when the Job is through.
func gitOps(t *testing.T, c *cluster) {
	const in = "fairpact-gitops"
	must(t, "kubectl", "create", "namespace", in)
	defer must(t, "kubectl", "delete", "namespace", in, "--wait=false")
	must(t, "kubectl", "label", "namespace", in, "pod-security.kubernetes.io/enforce=restricted")
	psql(t, "CREATE DATABASE gitops")
	inNamespace := func(manifest string) {
		t.Helper()
		if _, err := run(t.Context(), manifest, "kubectl", "-n", in, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	url := strings.NewReplacer("@postgres:", "@postgres."+namespace+":", "/app?", "/gitops?").Replace(needed(t, "FAIRPACT_E2E_DATABASE"))
	for name, of := range map[string][2]string{
		"db": {"url", url}, "redis": {"url", "redis://redis." + namespace + ":6379/1"}, "server": {"server-secret", random()},
		"append": {"append-secret", random()}, "signing": {"key.pem", newKey(t)},
	} {
		must(t, "kubectl", "-n", in, "create", "secret", "generic", name, "--from-literal="+of[0]+"="+of[1])
	}
	rendered := must(t, "helm", "template", release, chart, "-n", in, "--values", "values.yaml", "--set-string", "image.tag="+c.old,
		"--set-json", `networkPolicy={"egress":{"postgres":{"to":[]},"redis":{"to":[]}}}`)
	hooks, rest := hooksOf(t, rendered)
	inNamespace(hooks["-10"])
	inNamespace(hooks["0"])
	must(t, "kubectl", "-n", in, "wait", "--for=condition=complete", "job/"+release+"-migration", "--timeout=120s")
	inNamespace(rest)
	for _, component := range []string{"deal-api", "log-server", "deadline-worker"} {
		must(t, "kubectl", "-n", in, "rollout", "status", "deployment/"+release+"-"+component, "--timeout=180s")
	}
	smoke := func() string {
		return must(t, "kubectl", "-n", in, "exec", "deployment/"+release+"-deal-api", "--", "/fairpactctl", "smoke", "--base-url", "http://"+release+"-deal-api:8080", "--timeout", "60s")
	}
	smoke()
	guard := func() string {
		return must(t, "kubectl", "-n", in, "get", "configmap", release+"-fork-guard", "-o", "jsonpath={.data}")
	}
	record := guard()
	inNamespace(rest) // the next sync
	if after := guard(); after != record || !strings.Contains(record, "root") {
		t.Errorf("the fork guard's record after a sync: %s, before %s", after, record)
	}
	smoke()
	c.shows(t, "helm template, its hooks as a Job before the rest: a deal is played, and a second sync keeps the fork guard's record")
}

// hooksOf parts what was rendered into the objects of the migration's hook by weight,
// and those that are no hook.
func hooksOf(t *testing.T, rendered string) (hooks map[string]string, rest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "kubectl", "create", "--dry-run=client", "-o", "json", "-f", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	hooks = map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var text json.RawMessage
		var object struct {
			Metadata struct{ Annotations map[string]string }
		}
		if err := decoder.Decode(&text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		switch a := object.Metadata.Annotations; {
		case a["helm.sh/hook"] == "":
			rest += string(text) + "\n---\n"
		case strings.Contains(a["helm.sh/hook"], "pre-install"):
			hooks[a["helm.sh/hook-weight"]] += string(text) + "\n---\n"
		}
	}
	return hooks, rest
}
