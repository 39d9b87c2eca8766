package ops

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func matches(pattern, text string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// Every alert has the severity "page" or "ticket", and a section in runbooks/alerts.md that names
// the severity. In alerts_test.yaml, one test shows that the alert fires, and another that it
// stays quiet.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	rules, tests, page := e2e.Read(t, "files/alerts.yaml"), e2e.Read(t, "files/alerts_test.yaml"), e2e.Read(t, "runbooks/alerts.md")
	headings := matches(`(?m)^## (\S+)$`, page)
	var alerts []string
	for _, rule := range strings.Split(rules, "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		alerts = append(alerts, name)
		if !strings.Contains(rule, "runbook_url: RUNBOOKS/alerts.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("the runbook_url of %s is not its heading in runbooks/alerts.md", name)
		}
		severity := strings.Join(matches(`severity: (\w+)`, rule), " ")
		if severity != "page" && severity != "ticket" {
			t.Errorf("%s: severity %q, want page or ticket", name, severity)
		}
		_, section, _ := strings.Cut(page, "## "+name+"\n")
		impact, _, _ := strings.Cut(section, ".**")
		_, impact, _ = strings.Cut(impact, "**Impact (")
		shared := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(name, "Fairpact"), "ErrorBudget")) + ": " + severity // in a section of two alerts
		if impact != severity+")" && !slices.Contains(strings.Split(strings.TrimSuffix(impact, ")"), ", "), shared) {
			t.Errorf("runbooks/alerts.md: the section of %s begins with Impact (%s, want the severity %s", name, impact, severity)
		}
		for _, outcome := range []string{" fires", " stays quiet"} {
			if !strings.Contains(tests, "name: "+name+outcome) {
				t.Errorf("alerts_test.yaml has no %q", name+outcome)
			}
		}
	}
	slices.Sort(alerts)
	slices.Sort(headings)
	if !slices.Equal(alerts, headings) {
		t.Errorf("runbooks/alerts.md has the headings %v, want those of the alerts %v", headings, alerts)
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	runbooks, err := filepath.Glob(e2e.Chart + "runbooks/*.md")
	if err != nil || len(runbooks) == 0 {
		t.Fatalf("no runbooks: %v", err)
	}
	project, err := filepath.Glob(e2e.Repo(".github/*.md"))
	if err != nil || len(project) == 0 {
		t.Fatalf("no pages in .github: %v", err)
	}
	return append(append(runbooks, project...), e2e.Chart+"README.md", e2e.Chart+"VALUES.md", e2e.Repo("README.md"))
}

func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	checked := 0
	all := append(pages(t), e2e.Repo("internal/platform/database/MIGRATIONS.md"), e2e.Repo("hack/verifiers/npm/README.md"))
	for _, others := range []string{"hack/*/*.md", "e2e/verifier/*.md", "internal/api/docs/*.md"} {
		found, err := filepath.Glob(e2e.Repo(others))
		e2e.Must(t, err)
		all = append(all, found...)
	}
	for _, page := range all {
		for _, link := range matches(`\]\(([^)\s]+)\)`, text(t, page)) {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "/") { // the latter are paths of the service
				continue
			}
			checked++
			file, anchor, _ := strings.Cut(link, "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			there, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s links to %s: %v", page, link, err)
				continue
			}
			if anchor == "" || there.IsDir() {
				continue
			}
			if !slices.Contains(anchors(text(t, target)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, link)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d links were found: the pattern misses some", checked)
	}
}

// A link that names a step of another page leads to the heading of this step, so that it breaks when
// the steps are numbered again.
func TestLinksToStepsLeadToTheStep(t *testing.T) {
	step := regexp.MustCompile(`\[[^\]]*\bsteps? (\d)[^\]]*\]\(([^)]*)\)`)
	for _, page := range pages(t) {
		for _, m := range step.FindAllStringSubmatch(text(t, page), -1) {
			if _, anchor, _ := strings.Cut(m[2], "#"); !strings.HasPrefix(anchor, m[1]+"-") {
				t.Errorf("%s links to step %s by %s, want the heading of the step", page, m[1], m[2])
			}
		}
	}
}

// anchors returns the anchors that GitHub makes from a page's headings.
func anchors(page string) (all []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	for _, heading := range matches(`(?m)^#+ (.+)$`, page) {
		all = append(all, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading), ""), " ", "-"))
	}
	return all
}

// The queries of the alerts and the dashboard use only metrics and labels that a binary serves,
// and the labels cluster, namespace, pod and instance, which Prometheus adds.
func TestAlertsAndDashboardAskForWhatIsMeasured(t *testing.T) {
	labels := map[string][]string{}
	for _, metrics := range listed(t) {
		for name, shape := range metrics {
			labels[name] = append(strings.Split(shape[1], ","), "cluster", "namespace", "pod", "instance")
			if shape[0] == "histogram" {
				labels[name+"_bucket"] = append(labels[name], "le")
			}
		}
	}
	asked := 0
	metric := regexp.MustCompile(`(fairpact_[a-z_]+)(?:\{([^}]*)\})?`)
	for _, query := range append(e2e.DashboardQueries(t), matches(`(?s)expr: (.*?)\n        (?:for|labels):`, e2e.Read(t, "files/alerts.yaml"))...) {
		for _, m := range metric.FindAllStringSubmatch(query, -1) {
			asked++
			if labels[m[1]] == nil {
				t.Errorf("no binary serves %s, in %s", m[1], query)
			}
			for _, label := range matches(`(\w+)(?:=|!)`, m[2]) {
				if !slices.Contains(labels[m[1]], label) {
					t.Errorf("%s has no label %s, in %s", m[1], label, query)
				}
			}
		}
	}
	if asked < 40 {
		t.Errorf("only %d metrics were found in alerts and dashboard: the pattern misses some", asked)
	}
}

// A quote follows "says", or is in the first column of a table of log lines.
func TestRunbooksQuoteTheCode(t *testing.T) {
	var quotes []string
	for _, page := range pages(t) {
		quotes = append(quotes, matches("says `([^`]+)`", text(t, page))...)
		for _, rows := range matches(`(?m)^\| [^|\n]*(?:says|log line|you see) \|.*\n\|[-|]+\n((?:\|.*\n)+)`, text(t, page)) {
			for _, cell := range matches(`(?m)^\| ([^|]+) \|`, rows) {
				quotes = append(quotes, matches("`([^`]+ [^`]+)`", cell)...)
			}
		}
	}
	var code strings.Builder
	e2e.Must(t, filepath.WalkDir(e2e.Repo("internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		for n := range ast.Preorder(file) {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, _ := strconv.Unquote(literal.Value)
				code.WriteString(value + "\n")
			}
		}
		return err
	}))
	variable := regexp.MustCompile(`…|: |\bN\b|\d+`) // what varies in a quote; ": " joins the texts of wrapped errors
	for _, quote := range quotes {
		for _, part := range variable.Split(quote, -1) {
			if !strings.Contains(code.String(), strings.TrimSpace(part)) {
				t.Errorf("the runbooks quote %q, but no string of the code has %q", quote, part)
			}
		}
	}
	if len(quotes) < 20 {
		t.Errorf("only %d quotes were found: the pattern misses some", len(quotes))
	}
}
