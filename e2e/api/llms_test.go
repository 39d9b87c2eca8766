package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// example is a shell block of the page and what it says that it prints.
type example struct{ line, script, prints string }

var exampleForm = regexp.MustCompile("(?ms)^```bash\n(.*?)^```\n(?:```text\n(.*?)^```\n)?")

// served gets a page as an agent would.
func served(t *testing.T, base, path string) (string, http.Header) {
	t.Helper()
	a := e2e.NewClient(t, base).Want(200, "GET", path, "", nil)
	return string(a.Body), a.Header
}

func examplesOf(t *testing.T, page string) []example {
	t.Helper()
	var all []example
	for _, m := range exampleForm.FindAllStringSubmatch(page, -1) {
		first, _, _ := strings.Cut(m[1], "\n")
		all = append(all, example{first, m[1], m[2]})
	}
	if n := strings.Count(page, "```bash\n"); n != len(all) || n < 12 {
		t.Fatalf("read %d of %d examples", len(all), n)
	}
	return all
}

// Every example of the page runs, in one shell as it says, with nothing but the
// tools it names, and prints what it says.
func TestLLMsExamples(t *testing.T) {
	t.Parallel()
	base := e2e.BaseURL(t)
	page, header := served(t, base, "/llms.txt")
	if got := header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
	examples := examplesOf(t, page)
	const mark = "=== end of example ==="
	var script strings.Builder
	script.WriteString("set -eu -o pipefail\n")
	for _, e := range examples {
		script.WriteString(e.script + "echo '" + mark + "'\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
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
			t.Errorf("the example %q prints\n%sand the page says\n%s", e.line, printed[i], e.prints)
		}
	}
	if err != nil || stderr.Len() > 0 {
		t.Errorf("%v\n%s", err, &stderr)
	}
}

// printedForm is a block of the page as a pattern: … stands for anything within
// a line.
func printedForm(block string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(block), "…", "[^\n]+") + "$")
}

// toolbox is a folder with the programs that the page names and the shell's own.
func toolbox(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"curl", "python3", "openssl", "sha256sum", "cut", "date", "cat", "sleep"} {
		path, err := exec.LookPath(name)
		if err == nil && name == "python3" { // a shim would want a shell of its own
			var out []byte
			out, err = exec.Command(path, "-c", "import sys; print(sys.executable)").Output()
			path = strings.TrimSpace(string(out))
		}
		if err != nil {
			t.Fatalf("%v: the page's examples need it", err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The published texts: their types, their CORS, their validators.
func TestPublishedTexts(t *testing.T) {
	base := e2e.BaseURL(t)
	for path, contentType := range map[string]string{
		"/llms.txt": "text/plain; charset=utf-8", "/llms-full.txt": "text/plain; charset=utf-8",
		"/protocol": "text/markdown; charset=utf-8", "/trust": "text/markdown; charset=utf-8", "/vectors.json": "application/json",
	} {
		body, header := served(t, base, path)
		if header.Get("Content-Type") != contentType || header.Get("Access-Control-Allow-Origin") != "*" || header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %v", path, header)
		}
		c := e2e.NewClient(t, base)
		if again := c.Do("GET", path, "", nil, "If-None-Match", header.Get("ETag")); again.Status != 304 || len(again.Body) != 0 {
			t.Errorf("%s again: %d", path, again.Status)
		}
		if head := c.Want(200, "HEAD", path, "", nil); len(head.Body) != 0 {
			t.Errorf("HEAD %s has a body", path)
		}
		c.Want(204, "OPTIONS", path, "", nil)
		c.Refused(405, "METHOD_NOT_ALLOWED", "POST", path, "", body)
	}
	var vectors []struct {
		ID       string `json:"vector_id"`
		Expected any    `json:"expected_output"`
	}
	e2e.NewClient(t, base).Want(200, "GET", "/vectors.json", "", nil).Into(t, &vectors)
	if len(vectors) < 30 {
		t.Errorf("%d vectors", len(vectors))
	}
}

// Nothing that the page links is missing.
func TestLLMsLinks(t *testing.T) {
	base := e2e.BaseURL(t)
	page, _ := served(t, base, "/llms.txt")
	links := regexp.MustCompile(`\]\((/[^)]*)\)`).FindAllStringSubmatch(page, -1)
	if len(links) < 4 {
		t.Errorf("%d links", len(links))
	}
	for _, link := range links {
		resp, err := http.Get(base + link[1])
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d", link[1], resp.StatusCode)
		}
	}
}
