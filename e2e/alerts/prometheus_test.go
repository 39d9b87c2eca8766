//go:build alerts

package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localservers/child"
	"github.com/fairpact/fairpact/internal/localstack"
)

// faster is by what every duration of the rules is divided, so that an hour's
// window is two minutes. Numbers that are compared (seconds of lateness, parts
// of all calls) stay as they are.
const faster = 30

var duration = regexp.MustCompile(`(\[|for: )([0-9]+)([smhd])\b`)

// hastened rewrites the durations of rules or of a query: those of ranges and of
// `for`, and no others.
func hastened(text string) string {
	return duration.ReplaceAllStringFunc(text, func(found string) string {
		part := duration.FindStringSubmatch(found)
		n, err := strconv.Atoi(part[2])
		if err != nil {
			panic(err) // only for a number of more than 18 digits
		}
		unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[part[3]]
		return fmt.Sprintf("%s%dms", part[1], (time.Duration(n) * unit / faster).Milliseconds())
	})
}

const prometheusConfig = `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: fairpact
    file_sd_configs: [{files: ["targets/*.json"]}]
`

// prometheus is a Prometheus with the chart's rules. Each stack that it scrapes
// has a namespace of its own.
type prometheus struct{ dir, base string }

func startPrometheus(t testing.TB) *prometheus {
	t.Helper()
	rules, err := os.ReadFile(e2e.Repo("charts/fairpact/files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{dir: t.TempDir()}
	for name, text := range map[string]string{"prometheus.yaml": prometheusConfig, "rules.yaml": hastened(string(rules))} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(p.dir, "targets"), 0o700); err != nil {
		t.Fatal(err)
	}
	port, err := localservers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	p.base = "http://" + address
	said, err := os.Create(filepath.Join(p.dir, "prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(p.dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(p.dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = said, said
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("start prometheus (make alerts installs it): %v", err)
	}
	t.Cleanup(func() {
		process.Kill()
		if tail, err := localstack.Tail(said.Name(), 20); t.Failed() {
			t.Logf("prometheus: %v\n%s", err, tail)
		}
	})
	e2e.Eventually(t, "Prometheus is ready", e2e.Patience, func() bool {
		if !process.Running() {
			t.Fatalf("prometheus has ended: %v", process.Err())
		}
		resp, err := http.Get(p.base + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// watch has the stack scraped from now on, under a namespace, until the end of
// the test.
func (p *prometheus) watch(t testing.TB, stack *localstack.Stack, namespace string) {
	t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var all []group
	for _, name := range stack.Names() {
		all = append(all, group{
			[]string{strings.TrimPrefix(stack.AdminURL(name), "http://")},
			map[string]string{"namespace": namespace, "pod": name},
		})
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, "targets", namespace+".json")
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	e2e.Eventually(t, "Prometheus scrapes "+namespace, e2e.Patience, func() bool {
		return len(p.query(t, fmt.Sprintf(`fairpact_build_info{namespace=%q}`, namespace))) == len(all)
	})
}

// alertRule is an alert as Prometheus has read it.
type alertRule struct{ Name, Query string }

func (p *prometheus) rules(t testing.TB) (all []alertRule) {
	t.Helper()
	var told struct {
		Data struct{ Groups []struct{ Rules []alertRule } }
	}
	p.get(t, "/api/v1/rules?type=alert", &told)
	for _, g := range told.Data.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("Prometheus has read no rules")
	}
	return all
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any // unix time, and the value as text
}

// query asks for what an expression gives now.
func (p *prometheus) query(t testing.TB, expression string) []sample {
	t.Helper()
	var told struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expression), &told)
	if told.Status != "success" {
		t.Fatalf("%s: %s", expression, told.Error)
	}
	return told.Data.Result
}

func (p *prometheus) get(t testing.TB, path string, into any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// firing names the alerts that fire in a namespace now.
func (p *prometheus) firing(t testing.TB, namespace string) []string {
	t.Helper()
	return names(p.query(t, fmt.Sprintf(`ALERTS{alertstate="firing",namespace=%q}`, namespace)))
}

// fired names the alerts that have fired in a namespace at any time.
func (p *prometheus) fired(t testing.TB, namespace string) []string {
	t.Helper()
	return names(p.query(t, fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing",namespace=%q}[1h])`, namespace)))
}

func names(all []sample) (alerts []string) {
	for _, s := range all {
		alerts = append(alerts, s.Metric["alertname"])
	}
	slices.Sort(alerts)
	return slices.Compact(alerts)
}

// texts are the words of an alert that fires in a namespace: what a person who
// is woken reads.
func (p *prometheus) texts(t testing.TB, namespace, alert string) string {
	t.Helper()
	var told struct {
		Data struct {
			Alerts []struct{ Labels, Annotations map[string]string }
		}
	}
	p.get(t, "/api/v1/alerts", &told)
	for _, a := range told.Data.Alerts {
		if a.Labels["alertname"] == alert && a.Labels["namespace"] == namespace {
			return a.Annotations["summary"] + " " + a.Annotations["description"]
		}
	}
	return ""
}
