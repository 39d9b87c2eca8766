// Package structure tests the shape of this repository: the rooms of internal/ import only the rooms
// below them, and the packages of rules/ import no clock, no I/O, no randomness and no logger.
package structure

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/fairpact/fairpact/"

// forbidden lists paths that a pure package must not import. A path also forbids all packages
// below it.
var forbidden = []string{
	"time", "os", "io/fs", "io/ioutil", "net", "syscall", "plugin", "unsafe",
	"math/rand", "crypto/rand", "hash/maphash",
	"log", "runtime", "testing", "flag",
	"database", "expvar",
	"github.com/jackc", "github.com/redis", "go.opentelemetry.io", "golang.org/x/sys", "golang.org/x/net",
}

func isForbidden(path string) bool {
	return slices.ContainsFunc(forbidden, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") })
}

// violations returns the forbidden imports of the packages in dirs, and of the packages of this
// module that they import directly or indirectly.
func violations(t *testing.T, root string, dirs []string) (bad []string) {
	t.Helper()
	var visited []string
	queue := slices.Clone(dirs)
	for len(queue) > 0 {
		dir := queue[0]
		queue = queue[1:]
		if slices.Contains(visited, dir) {
			continue
		}
		visited = append(visited, dir)
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if isForbidden(path) {
					bad = append(bad, dir+": "+path)
				}
				if below, ours := strings.CutPrefix(path, module); ours {
					queue = append(queue, below)
				}
			}
		}
	}
	return bad
}

func TestRulesImportNothingImpure(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	var pure []string
	err := filepath.WalkDir(filepath.Join(root, "internal", "rules"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			path, err = filepath.Rel(root, path)
			pure = append(pure, path)
		}
		return err
	})
	if err != nil || len(pure) < 8 {
		t.Fatalf("found %v below internal/rules (%v), want the pure packages", pure, err)
	}
	for _, b := range violations(t, root, pure) {
		t.Errorf("%s: a pure package must not import this: pass the time, bytes or random number as an argument", b)
	}
}

// violations must also check the packages that the given packages import. It must skip test
// files.
func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("internal/a/a.go", "package a\nimport (\n\"fmt\"\n\""+module+"internal/b\"\n)\nvar _ = fmt.Sprint\n")
	write("internal/a/a_test.go", "package a\nimport _ \"os\"\n")
	write("internal/b/b.go", "package b\nimport (\n_ \"time\"\n_ \"log/slog\"\n_ \"math/rand/v2\"\n_ \"embed\"\n)\n")
	bad := violations(t, root, []string{"internal/a"})
	want := []string{"internal/b: time", "internal/b: log/slog", "internal/b: math/rand/v2"}
	if !slices.Equal(bad, want) {
		t.Errorf("violations of internal/a: got %v, want %v", bad, want)
	}
}
