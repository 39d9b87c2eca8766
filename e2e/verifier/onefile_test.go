package verifier

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verify.py as one file has the exit code and prints the report of the modules that it is made of.
func TestOneFileJudgesLikeTheModules(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "verify.py")
	if err := os.WriteFile(program, []byte(OneFile()), 0o600); err != nil {
		t.Fatal(err)
	}
	codes := map[string]int{"good": 0, "good-by-itself": 4, "result": 1, "rows-draw": 0, "signature": 1}
	for name, want := range codes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../testdata/bundles/" + name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Bundle  json.RawMessage
				Pubkeys []string
			}
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			bundle := filepath.Join(dir, name+".json")
			if err := os.WriteFile(bundle, c.Bundle, 0o600); err != nil {
				t.Fatal(err)
			}
			arguments := []string{"--bundle", bundle}
			for _, key := range c.Pubkeys {
				arguments = append(arguments, "--pubkey", key)
			}
			one := exec.CommandContext(t.Context(), "python3", append([]string{"-I", program}, arguments...)...)
			said, _ := one.CombinedOutput()
			modules := exec.CommandContext(t.Context(), "python3", append([]string{"verify.py"}, arguments...)...)
			expected, _ := modules.CombinedOutput()
			if code := one.ProcessState.ExitCode(); code != want || modules.ProcessState.ExitCode() != want || string(said) != string(expected) {
				t.Errorf("the one file ends with %d and says\n%s\nthe modules with %d and\n%s\nwant %d and the same text", code, said, modules.ProcessState.ExitCode(), expected, want)
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), "python3", "-I", program).CombinedOutput(); err == nil || !strings.Contains(string(out), "give exactly one of --certificate and --bundle") {
		t.Errorf("without arguments the one file says %s (%v), want a usage error", out, err)
	}
}
