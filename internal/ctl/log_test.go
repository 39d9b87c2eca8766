package ctl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

// small is a log of fewer than 256 leaves in a directory, with its verifier key.
type small struct {
	dir, vkey string
	signer    note.Signer
}

func newSmall(t *testing.T) small {
	t.Helper()
	secret, vkey, err := note.GenerateKey(nil, "log.example")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	return small{t.TempDir(), vkey, signer}
}

// holds replaces the log's content with these entries and returns its checkpoint.
func (s small) holds(t *testing.T, entries ...string) []byte {
	t.Helper()
	var raw [][]byte
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var all []tlog.Hash
		for _, x := range indexes {
			all = append(all, stored[x])
		}
		return all, nil
	})
	for i, entry := range entries {
		raw = append(raw, []byte(entry))
		more, err := tlog.StoredHashes(int64(i), []byte(entry), read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
	}
	size := int64(len(entries))
	root, err := tlog.TreeHash(size, read)
	if err != nil {
		t.Fatal(err)
	}
	tile := tlog.Tile{H: checkpoint.TileHeight, W: len(entries)}
	data, err := tlog.ReadTileData(tile, read)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: checkpoint.Checkpoint{Origin: "log.example", Size: size, Root: root}.Text()}, s.signer)
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, checkpoint.TilePath(tile), data)
	tile.L = -1
	s.write(t, checkpoint.TilePath(tile), checkpoint.EntryBundle(raw))
	s.write(t, "checkpoint", signed)
	return signed
}

func (s small) write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each verdict has its exit code, for cron.
func TestLogCommandsExitByTheirVerdict(t *testing.T) {
	t.Parallel()
	s, state := newSmall(t), filepath.Join(t.TempDir(), "seen")
	witness := "witness w log.example/w+24b982fa+BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"
	demanding := s.write(t, "policy", []byte("log "+s.vkey+"\n"+witness+"quorum w\n"))
	run := func(want int, what string, args ...string) string {
		t.Helper()
		var out, stderr bytes.Buffer
		code := Main(t.Context(), append([]string{"log"}, args...), strings.NewReader(""), &out, &stderr)
		if text := out.String() + stderr.String(); code != want || !strings.Contains(text, what) {
			t.Errorf("%v exits %d, want %d with %q:\n%s", args, code, want, what, text)
		}
		return out.String()
	}
	watch := []string{"watch", s.dir, "--vkey", s.vkey, "--state", state, "--once"}
	run(ExitUsage, "no such file", "audit", s.dir, "--vkey", s.vkey)
	run(ExitUsage, "no such file", watch...)
	first := s.holds(t, "a", "b")
	run(ExitOK, "log.example has 2 leaves", "audit", s.dir, "--vkey", s.vkey)
	run(ExitOK, "no witness was checked", watch...)
	run(ExitUsage, "--policy", "audit", s.dir)
	run(ExitFailed, "quorum", "audit", s.dir, "--policy", demanding)

	s.holds(t, "a", "b", "c")
	seen := s.write(t, "seen-elsewhere", first)
	run(ExitOK, `"tree_size": 3`, append(watch, "--json")...)
	run(ExitOK, "3 leaves", "audit", s.dir, "--vkey", s.vkey, "--seen", seen, "--seen", state)
	mirror := filepath.Join(t.TempDir(), "mirror")
	run(ExitOK, "3 leaves", "mirror", s.dir, mirror, "--vkey", s.vkey)
	run(ExitOK, "3 leaves", "audit", mirror, "--vkey", s.vkey)

	before, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	forked := s.holds(t, "a", "x", "c", "d")
	for _, args := range [][]string{watch, watch[:len(watch)-1], {"audit", s.dir, "--vkey", s.vkey, "--seen", seen}} {
		said := run(ExitForged, "the log is forked", args...)
		for _, signed := range [][]byte{before, forked} {
			text := "    " + strings.ReplaceAll(strings.TrimSpace(string(signed)), "\n", "\n    ")
			if strings.Contains(args[0], "watch") && !strings.Contains(strings.ReplaceAll(said, "\n\n", "\n    \n"), text) {
				t.Errorf("the evidence lacks\n%s\nin\n%s", text, said)
			}
		}
	}
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a fork changed the state file: %v", err)
	}
	run(ExitForged, "the log is forked", "mirror", s.dir, mirror, "--vkey", s.vkey)
}
