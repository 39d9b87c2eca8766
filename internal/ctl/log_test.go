package ctl

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/translog/audit"
)

func writeLog(t *testing.T, dir string, signer note.Signer, entries ...string) []byte {
	t.Helper()
	var stored []tlog.Hash
	var tile []byte
	var bundle [][]byte
	reader := tlog.HashReaderFunc(func(indexes []int64) (found []tlog.Hash, err error) {
		for _, i := range indexes {
			found = append(found, stored[i])
		}
		return found, nil
	})
	for i, entry := range entries {
		added, err := tlog.StoredHashes(int64(i), []byte(entry), reader)
		ok(t, err)
		stored, tile, bundle = append(stored, added...), append(tile, added[0][:]...), append(bundle, []byte(entry))
	}
	root, err := tlog.TreeHash(int64(len(entries)), reader)
	ok(t, err)
	signed, err := note.Sign(&note.Note{Text: checkpoint.Checkpoint{Origin: "log.example", Size: int64(len(entries)), Root: root}.Text()}, signer)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"checkpoint": signed,
		checkpoint.TilePath(tlog.Tile{H: checkpoint.TileHeight, W: len(entries)}):        tile,
		checkpoint.TilePath(tlog.Tile{H: checkpoint.TileHeight, W: len(entries), L: -1}): checkpoint.EntryBundle(bundle),
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

// An operator that closes a deal twice can choose between the two after the round. A closing of another deal,
// and the entry of a certificate, are no finding.
func TestAuditOfADealFindsASecondClosing(t *testing.T) {
	t.Parallel()
	secret, vkey, err := note.GenerateKey(nil, "log.example")
	ok(t, err)
	signer, err := note.NewSigner(secret)
	ok(t, err)
	closing := func(dealID string, round int64) string {
		entry := timelock.Closing{DealID: dealID, Round: round}.Entry()
		return string(entry[:])
	}
	first, second, other, certificate := closing("d_one", 1), closing("d_one", 2), closing("d_other", 1), strings.Repeat("c", 32)
	for _, x := range []struct {
		entries []string
		code    int
		verdict string
		want    []audit.Leaf
		says    string
	}{
		{[]string{certificate, other}, ExitOK, "good", nil, "no leaf closes the deal d_one"},
		{[]string{certificate, first, other}, ExitOK, "good", []audit.Leaf{{Index: 1, Entry: hex.EncodeToString([]byte(first))}}, ""},
		{[]string{first, certificate, other, second}, ExitForged, "closings", []audit.Leaf{{Index: 0, Entry: hex.EncodeToString([]byte(first))}, {Index: 3, Entry: hex.EncodeToString([]byte(second))}}, ""},
	} {
		dir := t.TempDir()
		writeLog(t, dir, signer, x.entries...)
		args := []string{"log", "audit", dir, "--vkey", vkey, "--deal", "d_one"}
		r := run(t, "", append(args, "--json")...)
		var report logReport
		if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != x.code || report.Verdict != x.verdict || !slices.Equal(report.Closings, x.want) || !strings.Contains(r.err, x.says) {
			t.Errorf("%d leaves: %+v (%v), want exit code %d, verdict %q and the closings %v", len(x.entries), r, err, x.code, x.verdict, x.want)
		}
		for _, leaf := range x.want {
			if line := fmt.Sprintf("leaf %d closes the deal: %s", leaf.Index, leaf.Entry); !strings.Contains(run(t, "", args...).out, line) {
				t.Errorf("%d leaves: the output has no line %q", len(x.entries), line)
			}
		}
		if r := run(t, "", args[:len(args)-2]...); r.code != ExitOK || strings.Contains(r.out, "closes") {
			t.Errorf("%d leaves, without --deal: %+v, want exit code 0", len(x.entries), r)
		}
	}
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
