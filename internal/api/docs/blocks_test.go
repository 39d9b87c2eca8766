package docs

import (
	"strings"
	"testing"
)

// blocks returns the contents of the fenced blocks of a document by name. The line
// "```json certificate" opens the block with the name "certificate".
func blocks(t *testing.T, document string) map[string]string {
	t.Helper()
	found := map[string]string{}
	name, open := "", false
	var content []string
	for line := range strings.Lines(document) {
		line = strings.TrimSuffix(line, "\n")
		fence, ok := strings.CutPrefix(line, "```")
		switch {
		case ok && !open:
			open, content = true, nil
			_, name, _ = strings.Cut(fence, " ")
		case ok:
			open = false
			if _, twice := found[name]; twice && name != "" {
				t.Fatalf("two blocks have the name %s", name)
			}
			found[name] = strings.Join(content, "\n")
		case open:
			content = append(content, line)
		}
	}
	if open {
		t.Fatalf("the block %q has no closing fence", name)
	}
	return found
}

func rows(t *testing.T, block string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(block) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			t.Fatalf("line %q is not a name and a value separated by two blanks", line)
		}
		values[name] = strings.TrimSpace(value)
	}
	return values
}
