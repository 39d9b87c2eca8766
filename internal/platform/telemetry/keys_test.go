package telemetry

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// logCall matches a call of a slog.Logger and captures its message and attributes.
var logCall = regexp.MustCompile(`(?:\b(?:logger|slog)|\.[Ll]ogger)\.(?:(?:Debug|Info|Warn|Error)(?:Context\([^,]+, |\()|Log\([^,]+, [^,]+, )(.*)`)

var constant = regexp.MustCompile(`^("[^"]*"|\w+)[,)]`)

// Operators search log lines by message and by the key err.
func TestLogLinesHaveConstantMessagesAndOneKeyForErrors(t *testing.T) {
	seen := 0
	for _, root := range []string{"../../../internal", "../../../services"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, call := range logCall.FindAllSubmatch(text, -1) {
				seen++
				if said := string(call[1]); !constant.MatchString(said) || strings.Contains(said, `, "error", `) || strings.Contains(said, `, "message", `) {
					t.Errorf("%s: log call %s: want a constant message and the key err for an error", path, call[0])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 30 {
		t.Errorf("%d log calls were checked, want at least 30", seen)
	}
}
