package ops

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestPagesShowCommandsThatExist(t *testing.T) {
	shown := map[string][]string{}
	command := regexp.MustCompile(`fairpactctl ((?:[a-z]+(?:-[a-z]+)* ?){1,2})([^\n` + "`" + `|;]*)`)
	for _, page := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(text(t, page), -1) {
			name := strings.Join(strings.Fields(m[1]), " ")
			shown[name] = append(shown[name], matches(`(--[a-z-]+)`, m[2])...)
		}
	}
	ctl := e2e.NewCtl(t, "http://127.0.0.1:1")
	help, _ := ctl.Run(0, "--help")
	known := matches(`(?m)^  ([a-z-]+(?: [a-z]+)?)  `, help)
	checked := 0
	for name, flags := range shown {
		if !slices.Contains(known, name) { // the second word is an argument or the next word of a sentence
			name, _, _ = strings.Cut(name, " ")
		}
		if !slices.ContainsFunc(known, func(k string) bool { return k == name || strings.HasPrefix(k, name+" ") }) {
			t.Errorf("there is no fairpactctl %s", name)
			continue
		}
		help, _ := ctl.Run(0, append(strings.Fields(name), "--help")...)
		for _, flag := range flags {
			checked++
			if !strings.Contains(help, flag) {
				t.Errorf("fairpactctl %s has no flag %s", name, flag)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d flags were found: the pattern misses some", checked)
	}
}

func TestRunbooksGrepForWhatIsLogged(t *testing.T) {
	var source strings.Builder
	election, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/client-go/tools/leaderelection").Output()
	e2e.Must(t, err)
	for _, root := range []string{e2e.Repo("internal"), e2e.Repo("services"), strings.TrimSpace(string(election))} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source.WriteString(text(t, path))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for _, page := range pages(t) {
		for _, pattern := range matches(`logs -l .*\| grep (?:-E )?'([^']+)'`, text(t, page)) {
			if strings.Contains(pattern, `"level"`) {
				continue // levels come from log/slog, not from this source code
			}
			pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, `"msg":"`), `"`)
			for _, alternative := range alternatives(pattern) {
				checked++
				if !strings.Contains(source.String(), alternative) {
					t.Errorf("%s greps for %q, which nothing logs", page, alternative)
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d patterns were found: the search misses some", checked)
	}
}

// alternatives returns the texts that a pattern of the form `a|b` or `a (b|c)` matches.
func alternatives(pattern string) []string {
	group := regexp.MustCompile(`\(([^)]*)\)`)
	if m := group.FindStringSubmatchIndex(pattern); m != nil {
		var all []string
		before := pattern[:m[0]]
		head := before[:strings.LastIndex(before, "|")+1]
		for _, one := range strings.Split(pattern[m[2]:m[3]], "|") {
			all = append(all, alternatives(before[len(head):]+one+pattern[m[1]:])...)
		}
		if head != "" {
			all = append(all, alternatives(strings.TrimSuffix(head, "|"))...)
		}
		return all
	}
	return strings.Split(pattern, "|")
}

// Every shell block is valid Bash and names only deployments that the chart creates.
func TestShellBlocksOfThePages(t *testing.T) {
	blocks := 0
	for _, page := range pages(t) {
		for _, block := range matches("(?ms)^ *```sh\n(.*?)^ *```", text(t, page)) {
			blocks++
			parse := exec.CommandContext(t.Context(), "bash", "-n")
			parse.Stdin = strings.NewReader(block)
			if out, err := parse.CombinedOutput(); err != nil {
				t.Errorf("%s: a shell block does not parse: %v: %s\n%s", page, err, out, block)
			}
			for _, name := range matches(`\b(fairpact-(?:deal|log|deadline|dev)[a-z-]*)`, block) {
				if !slices.Contains([]string{"fairpact-deal-api", "fairpact-log-server", "fairpact-deadline-worker", "fairpact-dev-postgres", "fairpact-dev-redis"}, name) {
					t.Errorf("%s names %s, which the chart does not create", page, name)
				}
			}
		}
	}
	if blocks < 30 {
		t.Errorf("only %d blocks were found: the search misses some", blocks)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	e2e.Must(t, err)
	return string(b)
}
