package ops

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// fakeKubectl stores each Secret in a file of the directory $STATE. If $FAIL is the name of a call,
// such as "get secret", this call fails. If $FAIL is "partial" or "stale", "secret add" succeeds but
// omits some of the secrets.
const fakeKubectl = `#!/usr/bin/env bash
[[ "$1 $2" == "-n fairpact" ]] && shift 2
call="$1 $2"; [[ $1 == exec ]] && call="${*: -2}"
[[ $call == "$FAIL" ]] && { echo "the server could not be reached" >&2; exit 1; }
case $call in
  "get secret") base64 < "$STATE/$3" ;;
  "secret add")
    case $FAIL in
      partial) echo "$ADDED" ;;
      stale) echo "$ADDED"; tail -n 1 "$STATE/fairpact-server" ;;
      *) echo "$ADDED"; cat "$STATE/fairpact-server" ;;
    esac ;;
  "secret check") echo "next: $NEXT" ;;
  "create secret") file=${5#--from-file=*=}; echo "$4"; cat "$file" ;;
  "apply -f")
    read -r name || { echo "error: no objects passed to apply" >&2; exit 1; }
    cat > "$STATE/$name"; cat "$STATE/$name" >> "$STATE/applied"; echo >> "$STATE/applied" ;;
  "rollout restart" | "rollout status") echo "$call" >> "$STATE/rollouts" ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
`

// The shell blocks of secrets.md for the server secret and the append secret stop at the first call
// that fails, and leave the Secret unchanged then.
func TestRotationBlocksStopAtTheFirstFailure(t *testing.T) {
	first, second, added := strings.Repeat("1a", 32), strings.Repeat("2b", 32), strings.Repeat("3c", 32)
	const remove = "remove all lines but the first from the file and roll the file out: nothing needs the secrets [x]"
	for _, x := range []struct {
		name, heading, holds string // `heading`: the heading above the block in secrets.md; `holds`: a text in the block
		secret, fails, next  string
		want                 string // the Secret afterwards; empty if unchanged
		done                 bool
	}{
		{name: "add", heading: "Server secret", holds: "secret add", want: added + "\n" + first + "\n" + second + "\n", done: true},
		{name: "add to a Secret of one line without an end", heading: "Server secret", holds: "secret add", secret: first, want: added + "\n" + first, done: true},
		{name: "add where exec fails", heading: "Server secret", holds: "secret add", fails: "secret add"},
		{name: "add where the Secret cannot be read", heading: "Server secret", holds: "secret add", fails: "get secret"},
		{name: "add where exec is cut off", heading: "Server secret", holds: "secret add", fails: "partial"},
		{name: "add where the pod has an older Secret", heading: "Server secret", holds: "secret add", fails: "stale"},
		{name: "add where no Secret is made", heading: "Server secret", holds: "secret add", fails: "create secret"},
		{name: "remove", heading: "Server secret", holds: "secret check | grep", next: remove, want: first + "\n", done: true},
		{name: "remove too early", heading: "Server secret", holds: "secret check | grep", next: "wait: deadline-worker encrypts the inputs again"},
		{name: "remove where the check fails", heading: "Server secret", holds: "secret check | grep", next: remove, fails: "secret check"},
		{name: "remove where the Secret cannot be read", heading: "Server secret", holds: "secret check | grep", next: remove, fails: "get secret"},
		{name: "remove where the Secret begins with something else", heading: "Server secret", holds: "secret check | grep", next: remove, secret: "\n" + first + "\n"},
		{name: "append where the Secret cannot be read", heading: "Append secret", fails: "get secret"},
		{name: "append where no Secret is made", heading: "Append secret", fails: "create secret"},
		{name: "append to an empty Secret", heading: "Append secret", secret: "\n"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			secret := cmp.Or(x.secret, first+"\n"+second+"\n")
			cluster := newFakeCluster(t, secret)
			out, err := cluster.run(rotationBlock(t, x.heading, x.holds), "FAIL="+x.fails, "ADDED="+added, "NEXT="+x.next)
			if done := err == nil && strings.HasSuffix(out, "done\n"); done != x.done {
				t.Errorf("the block ended: %v, want %v: %v\n%s", done, x.done, err, out)
			}
			name := map[string]string{"Server secret": "fairpact-server", "Append secret": "fairpact-append"}[x.heading]
			if got := text(t, filepath.Join(cluster.state, name)); got != cmp.Or(x.want, secret) {
				t.Errorf("the Secret is %q, want %q", got, cmp.Or(x.want, secret))
			}
			if strings.Contains(out, first) || strings.Contains(out, added) {
				t.Errorf("the block prints a secret:\n%s", out)
			}
		})
	}
}

// The shell block of secrets.md that rotates the append secret can run again after it stopped in
// the middle. During each rollout, log-server accepts the append secret of every caller, restarted
// or not. At the end, the Kubernetes Secret contains only a new append secret.
func TestRotationBlockOfTheAppendSecretIsRepeatable(t *testing.T) {
	t.Parallel()
	old := `100%\n-of-what-printf-reads`
	cluster := newFakeCluster(t, old)
	block := rotationBlock(t, "Append secret", "")
	if out, err := cluster.run(block, "FAIL=rollout status"); err == nil || strings.Contains(out, "done") {
		t.Errorf("the block continues after a failed rollout:\n%s", out)
	}
	if out, err := cluster.run(block, "FAIL="); err != nil || !strings.HasSuffix(out, "done\n") {
		t.Fatalf("run the block: %v\n%s", err, out)
	}
	steps := []string{old}
	for _, step := range strings.Split(strings.TrimSpace(text(t, filepath.Join(cluster.state, "applied"))), "\n\n") {
		steps = append(steps, strings.TrimSpace(step))
	}
	if len(steps) != 5 {
		t.Fatalf("%d Secrets were applied, want 4: %q", len(steps)-1, steps)
	}
	for i := 1; i < len(steps); i++ {
		before, after := strings.Split(steps[i-1], "\n"), strings.Split(steps[i], "\n")
		if !slices.Contains(before, after[0]) || !slices.Contains(after, before[0]) {
			t.Errorf("step %d: %q follows %q: during the rollout some processes refuse what the others send", i, after, before)
		}
	}
	if last := steps[len(steps)-1]; !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(last) {
		t.Errorf("the rotation ends with the Secret %q, want one new secret", last)
	}
}

type fakeCluster struct {
	t          *testing.T
	dir, state string
}

func newFakeCluster(t *testing.T, secret string) fakeCluster {
	t.Helper()
	c := fakeCluster{t: t, dir: t.TempDir(), state: t.TempDir()}
	for path, content := range map[string]string{
		filepath.Join(c.dir, "kubectl"):           fakeKubectl,
		filepath.Join(c.state, "fairpact-server"): secret,
		filepath.Join(c.state, "fairpact-append"): secret,
	} {
		e2e.Must(t, os.WriteFile(path, []byte(content), 0o700))
	}
	return c
}

// run runs a shell block of a runbook as if pasted into a shell: without options such as -e.
func (c fakeCluster) run(block string, env ...string) (string, error) {
	shell := exec.CommandContext(c.t.Context(), "bash")
	shell.Dir = c.t.TempDir()
	shell.Env = append(os.Environ(), append(env, "STATE="+c.state, "PATH="+c.dir+":"+os.Getenv("PATH"))...)
	shell.Stdin = strings.NewReader(block)
	out, err := shell.CombinedOutput()
	return string(out), err
}

func rotationBlock(t *testing.T, heading, holds string) string {
	t.Helper()
	_, section, found := strings.Cut(e2e.Read(t, "runbooks/secrets.md"), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range matches("(?ms)^ *```sh\n(.*?)^ *```", section) {
		if found && strings.Contains(block, holds) {
			return block
		}
	}
	t.Fatalf("runbooks/secrets.md has no block with %q below %q", holds, heading)
	return ""
}
