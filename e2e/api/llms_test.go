package api

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

type example struct{ line, script, prints string }

var exampleForm = regexp.MustCompile("(?ms)^```bash\n(.*?)^```\n(?:```text\n(.*?)^```\n)?")

func examplesOf(t *testing.T, page string) []example {
	t.Helper()
	var all []example
	for _, m := range exampleForm.FindAllStringSubmatch(page, -1) {
		first, _, _ := strings.Cut(m[1], "\n")
		all = append(all, example{first, m[1], m[2]})
	}
	if n := strings.Count(page, "```bash\n"); n != len(all) || n < 12 {
		t.Fatalf("/llms-full.txt has %d shell blocks, of which %d were read; want at least 12 and all of them", n, len(all))
	}
	return all
}

func TestLLMsExamples(t *testing.T) {
	t.Parallel()
	base := e2e.BaseURL(t)
	examples := examplesOf(t, string(newClient(t).Want(200, "GET", "/llms-full.txt", "", nil).Body))
	const mark = "=== end of example ==="
	var script strings.Builder
	script.WriteString("set -eu -o pipefail\n")
	for _, e := range examples {
		script.WriteString(e.script + "echo '" + mark + "'\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.DefaultTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-c", script.String())
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"BASE_URL=" + base, "PATH=" + toolbox(t), "HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir, "LC_ALL=C.UTF-8", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	printed := strings.Split(out.String(), mark+"\n")
	for i, e := range examples {
		if i >= len(printed)-1 {
			t.Fatalf("the example %q did not end: %v\n%s\n%s", e.line, err, printed[len(printed)-1], &stderr)
		}
		if form := printedForm(e.prints); !form.MatchString(printed[i]) {
			t.Errorf("the example %q prints\n%swant, as on the page,\n%s", e.line, printed[i], e.prints)
		}
	}
	if err != nil || stderr.Len() > 0 {
		t.Errorf("the shell of the examples ended with %v, want success and no error output:\n%s", err, &stderr)
	}
}

func printedForm(block string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(block), "…", "[^\n]+") + "$")
}

// toolbox returns a directory with links to the only programs that the examples may use.
func toolbox(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"curl", "python3", "openssl", "sha256sum", "cut", "date", "cat", "sleep"} {
		path, err := exec.LookPath(name)
		if err == nil && name == "python3" { // python3 may be a wrapper script: link the real program
			var out []byte
			out, err = exec.Command(path, "-c", "import sys; print(sys.executable)").Output()
			path = strings.TrimSpace(string(out))
		}
		if err != nil {
			t.Fatalf("the examples need %s: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The published texts have a content type and an ETag, and any origin may read them (CORS). Every
// link of /llms.txt leads to a page.
func TestPublishedTexts(t *testing.T) {
	c := newClient(t)
	for path, contentType := range map[string]string{
		"/llms.txt": "text/plain; charset=utf-8", "/llms-full.txt": "text/plain; charset=utf-8",
		"/protocol": "text/markdown; charset=utf-8", "/trust": "text/markdown; charset=utf-8", "/vectors.json": "application/json", "/verify.py": "text/x-python; charset=utf-8",
		"/use-cases": "text/markdown; charset=utf-8", "/compare": "text/markdown; charset=utf-8",
	} {
		a := c.Want(200, "GET", path, "", nil)
		if a.Header.Get("Content-Type") != contentType || a.Header.Get("Access-Control-Allow-Origin") != "*" || a.Header.Get("Content-Disposition") != "" {
			t.Errorf("GET %s: header %v, want Content-Type %s, Access-Control-Allow-Origin * and no Content-Disposition", path, a.Header, contentType)
		}
		if again := c.Want(304, "GET", path, "", nil, "If-None-Match", a.Header.Get("ETag")); len(again.Body) != 0 {
			t.Errorf("GET %s: the 304 has a body of %d bytes", path, len(again.Body))
		}
		if head := c.Want(200, "HEAD", path, "", nil); len(head.Body) != 0 {
			t.Errorf("HEAD %s: a body of %d bytes, want none", path, len(head.Body))
		}
		c.Want(204, "OPTIONS", path, "", nil)
		c.Refused(405, "METHOD_NOT_ALLOWED", "POST", path, "", string(a.Body))
	}
	var vectors []struct {
		ID       string `json:"vector_id"`
		Expected any    `json:"expected_output"`
	}
	if c.Want(200, "GET", "/vectors.json", "", nil).Into(t, &vectors); len(vectors) < 30 {
		t.Errorf("/vectors.json has %d vectors, want at least 30", len(vectors))
	}
	links := regexp.MustCompile(`\]\((/[^)]*)\)`).FindAllStringSubmatch(string(c.Want(200, "GET", "/llms.txt", "", nil).Body), -1)
	if len(links) < 4 {
		t.Errorf("/llms.txt has %d links, want at least 4", len(links))
	}
	for _, link := range links {
		c.Want(200, "GET", link[1], "", nil)
	}
}
