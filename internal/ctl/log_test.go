package ctl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

func writeLog(t *testing.T, dir string, signer note.Signer, entry string) []byte {
	t.Helper()
	root := tlog.RecordHash([]byte(entry))
	signed, err := note.Sign(&note.Note{Text: checkpoint.Checkpoint{Origin: "log.example", Size: 1, Root: root}.Text()}, signer)
	if err != nil {
		t.Fatal(err)
	}
	hashes, entries := tlog.Tile{H: checkpoint.TileHeight, W: 1}, tlog.Tile{H: checkpoint.TileHeight, W: 1, L: -1}
	for name, data := range map[string][]byte{
		"checkpoint":                 signed,
		checkpoint.TilePath(hashes):  root[:],
		checkpoint.TilePath(entries): checkpoint.EntryBundle([][]byte{[]byte(entry)}),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return signed
}

// For a fork, log watch prints both signed checkpoints and leaves its state file unchanged.
// e2e/trust has the test with a growing log.
func TestLogCommandsExitByTheirVerdict(t *testing.T) {
	t.Parallel()
	secret, vkey, err := note.GenerateKey(nil, "log.example")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	dir, state, mirror := t.TempDir(), filepath.Join(t.TempDir(), "seen"), filepath.Join(t.TempDir(), "mirror")
	demanding := write(t, "policy", "log "+vkey+"\nwitness w log.example/w+24b982fa+BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nquorum w\n")
	exits := func(want int, what string, args ...string) string {
		t.Helper()
		r := run(t, "", append([]string{"log"}, args...)...)
		if r.code != want || !strings.Contains(r.out+r.err, what) {
			t.Errorf("log %v: %+v, want exit code %d with %q", args, r, want, what)
		}
		return r.out
	}
	watch := []string{"watch", dir, "--vkey", vkey, "--state", state, "--once"}
	exits(ExitUsage, "no such file", "audit", dir, "--vkey", vkey)
	exits(ExitUsage, "no such file", watch...)
	before := writeLog(t, dir, signer, "a")
	exits(ExitOK, "log.example has 1 leaves", "audit", dir, "--vkey", vkey)
	exits(ExitOK, "no witness was checked", watch...)
	exits(ExitOK, `"tree_size": 1`, append(watch, "--json")...)
	exits(ExitUsage, "--policy", "audit", dir)
	exits(ExitFailed, "quorum", "audit", dir, "--policy", demanding)
	exits(ExitOK, "1 leaves", "mirror", dir, mirror, "--vkey", vkey)
	seen := write(t, "seen-elsewhere", string(before))
	exits(ExitOK, "1 leaves", "audit", mirror, "--vkey", vkey, "--seen", seen, "--seen", state)

	forked := writeLog(t, dir, signer, "x")
	for _, args := range [][]string{watch, watch[:len(watch)-1]} {
		said := strings.ReplaceAll(exits(ExitForged, "the log is forked", args...), "\n\n", "\n    \n")
		for _, signed := range [][]byte{before, forked} {
			if text := "    " + strings.ReplaceAll(strings.TrimSpace(string(signed)), "\n", "\n    "); !strings.Contains(said, text) {
				t.Errorf("the output lacks the signed checkpoint\n%s\nin\n%s", text, said)
			}
		}
	}
	exits(ExitForged, "the log is forked", "audit", dir, "--vkey", vkey, "--seen", seen)
	exits(ExitForged, "the log is forked", "mirror", dir, mirror, "--vkey", vkey)
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(before, after) {
		t.Errorf("after the fork the state file holds %q (error %v), want %q", after, err, before)
	}
}
