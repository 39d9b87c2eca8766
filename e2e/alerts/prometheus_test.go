//go:build alerts

package alerts

import (
	"context"
	"encoding/json"
	"fmt"
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

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localservers/child"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// faster divides all durations in the rules: an hour becomes two minutes. Thresholds, such as
// seconds of lateness, stay unchanged.
const faster = 30

var duration = regexp.MustCompile(`(\[|for: )([0-9]+)([smhd])\b`)

// hastened divides the ranges and the `for` durations in a rules file or a query by `faster`.
func hastened(text string) string {
	return duration.ReplaceAllStringFunc(text, func(found string) string {
		part := duration.FindStringSubmatch(found)
		n, err := strconv.Atoi(part[2])
		if err != nil {
			panic(err)
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

// prometheus is a Prometheus server with the chart's alert rules, whose durations are divided by the
// constant `faster`. Each stack has its own value of the label `namespace`.
type prometheus struct {
	dir string
	api promv1.API
}

func startPrometheus(t testing.TB) *prometheus {
	t.Helper()
	rules, err := os.ReadFile(e2e.Repo("charts/fairpact/files/alerts.yaml"))
	e2e.Must(t, err)
	p := &prometheus{dir: t.TempDir()}
	for name, text := range map[string]string{"prometheus.yaml": prometheusConfig, "rules.yaml": hastened(string(rules))} {
		e2e.Must(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
	}
	e2e.Must(t, os.Mkdir(filepath.Join(p.dir, "targets"), 0o700))
	port, err := localservers.FreePort()
	e2e.Must(t, err)
	address := "127.0.0.1:" + strconv.Itoa(port)
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	e2e.Must(t, err)
	p.api = promv1.NewAPI(client)
	said, err := os.Create(filepath.Join(p.dir, "prometheus.log"))
	e2e.Must(t, err)
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
	e2e.Eventually(t, "Prometheus is ready", e2e.DefaultTimeout, func() bool {
		if !process.Running() {
			t.Fatalf("prometheus has ended: %v", process.Err())
		}
		_, err := p.api.Runtimeinfo(t.Context())
		return err == nil
	})
	return p
}

// watch makes Prometheus scrape the stack until the test ends, and waits for the first scrape.
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
	e2e.Must(t, err)
	path := filepath.Join(p.dir, "targets", namespace+".json")
	e2e.Must(t, os.WriteFile(path+".new", text, 0o600))
	e2e.Must(t, os.Rename(path+".new", path))
	t.Cleanup(func() { _ = os.Remove(path) })
	e2e.Eventually(t, "Prometheus scrapes "+namespace, e2e.DefaultTimeout, func() bool {
		return len(p.query(t, fmt.Sprintf(`fairpact_build_info{namespace=%q}`, namespace))) == len(all)
	})
}

func (p *prometheus) rules(t testing.TB) (all []promv1.AlertingRule) {
	t.Helper()
	loaded, err := p.api.Rules(t.Context(), nil)
	e2e.Must(t, err)
	for _, g := range loaded.Groups {
		for _, rule := range g.Rules {
			if alert, ok := rule.(promv1.AlertingRule); ok {
				all = append(all, alert)
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("Prometheus has loaded no rules")
	}
	return all
}

func (p *prometheus) query(t testing.TB, expression string) model.Vector {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	value, _, _, err := p.api.Query(ctx, expression, time.Now())
	if err != nil {
		t.Fatalf("query %s: %v", expression, err)
	}
	return value.(model.Vector)
}

func (p *prometheus) firing(t testing.TB, namespace string) []string {
	t.Helper()
	return names(p.query(t, fmt.Sprintf(`ALERTS{alertstate="firing",namespace=%q}`, namespace)))
}

func (p *prometheus) fired(t testing.TB, namespace string) []string {
	t.Helper()
	return names(p.query(t, fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing",namespace=%q}[1h])`, namespace)))
}

func names(all model.Vector) (alerts []string) {
	for _, s := range all {
		alerts = append(alerts, string(s.Metric["alertname"]))
	}
	slices.Sort(alerts)
	return slices.Compact(alerts)
}

func (p *prometheus) texts(t testing.TB, namespace, alert string) string {
	t.Helper()
	all, err := p.api.Alerts(t.Context())
	e2e.Must(t, err)
	for _, a := range all.Alerts {
		if string(a.Labels["alertname"]) == alert && string(a.Labels["namespace"]) == namespace {
			return string(a.Annotations["summary"] + " " + a.Annotations["description"])
		}
	}
	return ""
}
