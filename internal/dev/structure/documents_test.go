package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A comment cites the contract as `SPEC 2.8`: a section, or an item of a section's list.
func TestCitationsOfTheContractResolve(t *testing.T) {
	t.Parallel()
	known, section := map[string]bool{}, ""
	heading, item := regexp.MustCompile(`^#{2,3} (\d(?:\.\d+)?)\.? `), regexp.MustCompile(`^(\d+)\. `)
	for line := range strings.Lines(document(t, ".github/CONTRACT.md")) {
		if m := heading.FindStringSubmatch(line); m != nil {
			section = m[1]
			known[section] = true
		} else if m := item.FindStringSubmatch(line); m != nil {
			known[section+"."+m[1]] = true
		}
	}
	citation, found := regexp.MustCompile(`\bSPEC (\d+(?:\.\d+)?)`), 0
	root := filepath.Join("..", "..", "..")
	for _, folder := range []string{"internal", "services", "e2e", "hack"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sql") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range citation.FindAllStringSubmatch(string(text), -1) {
				if found++; !known[m[1]] {
					t.Errorf("%s cites SPEC %s, which .github/CONTRACT.md does not have", path, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 50 {
		t.Errorf("only %d citations were found: the pattern misses some", found)
	}
}

// The README is short, and its numbers are those of the reports.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme := document(t, "README.md")
	if words, lines := len(strings.Fields(readme)), strings.Count(readme, "\n"); words > 700 || lines > 120 {
		t.Errorf("README.md has %d words in %d lines, want at most 700 in 120", words, lines)
	}
	said := strings.ReplaceAll(readme, ",", "")
	for report, number := range map[string]string{
		"hack/bench/report.md":  `(?m)^\| product \| 64 \| (\d+) `,
		"hack/faults/report.md": `with (\d+) deals and \*\*0 violations`,
	} {
		m := regexp.MustCompile(number).FindStringSubmatch(document(t, report))
		if m == nil || !strings.Contains(said, m[1]+" deals") {
			t.Errorf("%s has %q, want the same number of deals in README.md", report, m)
		}
	}
}
