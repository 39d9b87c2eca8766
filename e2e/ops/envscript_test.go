package ops

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// The fakes answer as kubectl and helm do for a release whose log has a database of its own.
var fakeRelease = map[string]string{
	"kubectl": `#!/usr/bin/env bash
case "$*" in
  *REDIS_URL*.name}) echo -n fairpact-redis ;;
  *fairpact-deal-api*helm*) echo -n "$LABEL" ;;
  *fairpact-deal-api*.name}) echo -n fairpact-database ;;
  *fairpact-log-server*.name}) echo -n log-database ;;
  *.key}) echo -n url ;;
  *"secret fairpact-database"*) echo -n 'postgres://deals:p*ss@db/deals' | base64 ;;
  *"secret log-database"*) echo -n postgres://log@db/log | base64 ;;
  *"secret fairpact-redis"*) echo -n rediss://:word@redis:6379/0 | base64 ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
`,
	"helm": `#!/usr/bin/env bash
[[ $* == "get notes fairpact -n fairpact" ]] && echo "It answers at $ANSWERS"
`,
}

// env.sh sets the variables of the runbooks, names what it does not find, and prints no secret.
func TestRunbooksEnvironment(t *testing.T) {
	dir := t.TempDir()
	for name, script := range fakeRelease {
		e2e.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	for answers, missing := range map[string]string{
		"https://fairpact.example.com": "",
		"":                             "FAIRPACT_URL is empty: set it by hand\n",
		"https://*.example.com":        "FAIRPACT_URL is https://*.example.com: set it to where callers reach you\n",
		"no label":                     "CHART is empty: set it by hand\n",
	} {
		label, chart := "fairpact-0.1.0", "oci://ghcr.io/fairpact/charts/fairpact --version 0.1.0"
		if answers == "no label" {
			label, chart = "", ""
		}
		shell := exec.CommandContext(t.Context(), "bash", "-uc", `source "$0"; printf '%s\n' "$CHART" >&3; env >&3`, e2e.Repo("charts/fairpact/runbooks/env.sh"))
		shell.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "ANSWERS=" + answers, "LABEL=" + label}
		set, err := os.Create(filepath.Join(t.TempDir(), "set"))
		e2e.Must(t, err)
		shell.ExtraFiles = []*os.File{set}
		said, err := shell.CombinedOutput()
		if err != nil || string(said) != missing {
			t.Errorf("release at %q: %v, said %q, want %q", answers, err, said, missing)
		}
		got := text(t, set.Name())
		for _, want := range []string{
			chart, "DATABASE_URL=postgres://deals:p*ss@db/deals", "LOG_DATABASE_URL=postgres://log@db/log",
			"FAIRPACT_LOG_DATABASE_URL=postgres://log@db/log", "FAIRPACT_URL=" + answers, "REDIS=rediss://default:word@redis:6379/0",
		} {
			if !strings.Contains("\n"+got, "\n"+want+"\n") {
				t.Errorf("release at %q: no %s in\n%s", answers, want, got)
			}
		}
	}
}
