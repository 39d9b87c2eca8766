package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

type grown struct {
	stored []tlog.Hash
	size   int64
}

func (g *grown) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		hashes[i] = g.stored[at]
	}
	return hashes, nil
}

func (g *grown) add(t *testing.T, entry [32]byte) {
	t.Helper()
	hashes := of(tlog.StoredHashes(g.size, entry[:], g)).ok(t)
	g.stored, g.size = append(g.stored, hashes...), g.size+1
}

func (g *grown) checkpoint(t *testing.T) Checkpoint {
	t.Helper()
	root := of(tlog.TreeHash(g.size, g)).ok(t)
	return Checkpoint{Origin: origin, Size: g.size, Root: root}
}

func entry(i int64) [32]byte { return sha256.Sum256(fmt.Appendf(nil, "entry %d", i)) }

func verifyProof(p *Policy, text []byte, entry [32]byte) (Checkpoint, error) {
	proof, err := ParseProof(text)
	if err != nil {
		return Checkpoint{}, err
	}
	c, _, err := p.Verify(proof.Note)
	if err == nil {
		err = proof.VerifyInclusion(entry[:], c)
	}
	return c, err
}

func TestProofsAgreeWithTheReference(t *testing.T) {
	keys, w := newLogKeys(t, origin), newWitness(t, "witness.example/a")
	p := of(ParsePolicy(fmt.Appendf(nil, "log %s\nwitness w %s\nquorum w\n", keys.first, w.key))).ok(t)
	var tree grown
	var before []Checkpoint
	for i := range int64(70) {
		tree.add(t, entry(i))
		c := tree.checkpoint(t)
		signed := keys.sign(t, c) + w.line(t, c.Text())
		for index := range tree.size {
			path := of(tlog.ProveRecord(tree.size, index, &tree)).ok(t)
			proof := Proof{Index: index, Note: []byte(signed)}
			for _, h := range path {
				proof.Path = append(proof.Path, h)
			}
			if got, err := verifyProof(p, proof.Marshal(), entry(index)); err != nil || got != c {
				t.Fatalf("prove leaf %d of %d: %v, want no error", index, tree.size, err)
			}
			if _, err := verifyProof(p, proof.Marshal(), entry(index+1)); err == nil {
				t.Fatalf("the proof of leaf %d of %d proves another entry, want it refused", index, tree.size)
			}
		}
		for _, older := range before {
			path := of(tlog.ProveTree(tree.size, older.Size, &tree)).ok(t)
			hashes := make([][32]byte, len(path))
			for i, h := range path {
				hashes[i] = h
			}
			if err := VerifyConsistency(older, c, hashes); err != nil {
				t.Fatalf("prove that size %d is extended by size %d: %v, want no error", older.Size, c.Size, err)
			}
			forked := older
			forked.Root[0] ^= 1
			if VerifyConsistency(forked, c, hashes) == nil {
				t.Fatalf("a fork at size %d is consistent with size %d, want it refused", older.Size, c.Size)
			}
		}
		before = append(before, c)
	}
	empty := Checkpoint{Origin: origin, Root: sha256.Sum256(nil)}
	if err := VerifyConsistency(empty, before[3], nil); err != nil {
		t.Error(err)
	}
	if VerifyConsistency(empty, before[3], [][32]byte{{}}) == nil {
		t.Error("a proof from size 0 that is not empty passed")
	}
}

func TestProofsInOtherFormsAreRefused(t *testing.T) {
	keys := newLogKeys(t, origin)
	var tree grown
	for i := range int64(5) {
		tree.add(t, entry(i))
	}
	path := of(tlog.ProveRecord(5, 2, &tree)).ok(t)
	proof := Proof{Index: 2, Note: []byte(keys.sign(t, tree.checkpoint(t)))}
	for _, h := range path {
		proof.Path = append(proof.Path, h)
	}
	good := string(proof.Marshal())
	read, err := ParseProof([]byte(good))
	if err != nil || read.Index != 2 || len(read.Path) != len(path) || !bytes.Equal(read.Note, proof.Note) {
		t.Fatalf("parsed proof %+v, %v; want the marshalled one", read, err)
	}
	open := of(ParsePolicy(fmt.Appendf(nil, "log %s\nquorum none\n", keys.other))).ok(t)
	if _, err := verifyProof(open, []byte(good), entry(2)); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]string{
		"another version":   strings.Replace(good, "@v1", "@v2", 1),
		"no header":         good[strings.Index(good, "\n")+1:],
		"leading zero":      strings.Replace(good, "index 2", "index 02", 1),
		"another index":     strings.Replace(good, "index 2", "index 3", 1),
		"an index too high": strings.Replace(good, "index 2", "index 5", 1),
		"extra":             strings.Replace(good, "index 2", "extra AAAA\nindex 2", 1),
		"a hash less":       strings.Replace(good, encode64(proof.Path[0][:])+"\n", "", 1),
		"a hash more":       strings.Replace(good, "index 2\n", "index 2\n"+encode64(make([]byte, 32))+"\n", 1),
		"a short hash":      strings.Replace(good, "index 2\n", "index 2\nAAAA\n", 1),
		"another root":      strings.Replace(good, "\n5\n", "\n6\n", 1),
		"no end":            strings.TrimSuffix(good, "\n"),
		"carriage returns":  strings.ReplaceAll(good, "\n", "\r\n"),
		"empty":             "",
	} {
		if _, err := verifyProof(open, []byte(wrong), entry(2)); err == nil || errors.Is(err, ErrQuorum) {
			t.Errorf("%s: %v, want a refusal other than ErrQuorum", name, err)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add("c2sp.org/tlog-proof@v1\nindex 0\n\nlog.example\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n— log.example AAAAAAAA\n")
	f.Add("tile/entries/x001/234.p/7")
	f.Add("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParseProof([]byte(text)); err == nil && string(p.Marshal()) != text {
			t.Errorf("the proof %q is accepted and is not canonical", text)
		}
		if tile, err := ParseTilePath(text); err == nil && TilePath(tile) != text {
			t.Errorf("the path %q is accepted and is not canonical", text)
		}
		if c, err := Parse(text); err == nil && c.Text() != text {
			t.Errorf("the checkpoint %q is accepted and is not canonical", text)
		}
		if _, err := ParsePolicy([]byte(text)); err == nil {
			_, _ = ParseKey(text)
		}
	})
}

func TestTilePathsHaveOneForm(t *testing.T) {
	for path, tile := range map[string]tlog.Tile{
		"tile/0/000":                    {H: 8, L: 0, N: 0, W: 256},
		"tile/1/x001/x234/067":          {H: 8, L: 1, N: 1234067, W: 256},
		"tile/2/999.p/1":                {H: 8, L: 2, N: 999, W: 1},
		"tile/63/000.p/255":             {H: 8, L: 63, N: 0, W: 255},
		"tile/entries/000":              {H: 8, L: -1, N: 0, W: 256},
		"tile/entries/x001/000.p/8":     {H: 8, L: -1, N: 1000, W: 8},
		"tile/0/x999/x999/x999/999.p/9": {H: 8, L: 0, N: 999_999_999_999, W: 9},
	} {
		if got := TilePath(tile); got != path {
			t.Errorf("path of %+v: %s, want %s", tile, got, path)
		}
		if got, err := ParseTilePath(path); err != nil || got != tile {
			t.Errorf("ParseTilePath(%q): %+v, %v; want %+v", path, got, err, tile)
		}
	}
	for _, wrong := range []string{
		"", "tile", "tile/", "tile/0", "tile/0/", "tile/0/0", "tile/0/0000", "tile/00/000", "tile/-1/000", "tile/64/000", "tile/+1/000",
		"tile/0/001/234", "tile/0/x001/x234", "tile/0/x000/001", "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000.p",
		"tile/0/000.p/", "tile/8/0/000", "tile/data/000", "tile/8/data/000", "tile/entries/0/000", "tile/entries/", "tile/0/000/", "/tile/0/000", "tile/0/x-01/000",
		"tile/0/x999/x999/x999/x999/x999/x999/x999/999",
	} {
		if got, err := ParseTilePath(wrong); err == nil {
			t.Errorf("the path %q is accepted as %+v, want an error", wrong, got)
		}
	}
}

func TestEntryBundlesRoundTrip(t *testing.T) {
	entries := [][]byte{bytes.Repeat([]byte{1}, 32), {}, bytes.Repeat([]byte{2}, 300)}
	bundle := EntryBundle(entries)
	got, err := ParseEntryBundle(bundle, 3)
	if err != nil || !bytes.Equal(got[0], entries[0]) || len(got[1]) != 0 || !bytes.Equal(got[2], entries[2]) {
		t.Fatalf("parsed bundle %v, %v; want the three entries", got, err)
	}
	for _, count := range []int{0, 2, 4} {
		if _, err := ParseEntryBundle(bundle, count); err == nil {
			t.Errorf("accepted as a bundle of %d entries, want an error", count)
		}
	}
	for _, end := range []int{1, 33, 35, len(bundle) - 1} {
		if _, err := ParseEntryBundle(bundle[:end], 3); err == nil {
			t.Errorf("a bundle cut after %d bytes is accepted, want an error", end)
		}
	}
}
