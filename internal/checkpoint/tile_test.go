package checkpoint

import (
	"bytes"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

func TestTilePaths(t *testing.T) {
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
			t.Errorf("%+v: %s, want %s", tile, got, path)
		}
		if got, err := ParseTilePath(path); err != nil || got != tile {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	for _, wrong := range []string{
		"", "tile", "tile/", "tile/0", "tile/0/", "tile/0/0", "tile/0/0000", "tile/00/000", "tile/-1/000", "tile/64/000", "tile/+1/000",
		"tile/0/001/234", "tile/0/x001/x234", "tile/0/x000/001", "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/01", "tile/0/000.p",
		"tile/0/000.p/", "tile/8/0/000", "tile/data/000", "tile/8/data/000", "tile/entries/0/000", "tile/entries/", "tile/0/000/", "/tile/0/000", "tile/0/x-01/000",
		"tile/0/x999/x999/x999/x999/x999/x999/x999/999",
	} {
		if got, err := ParseTilePath(wrong); err == nil {
			t.Errorf("%q: read as %+v", wrong, got)
		}
	}
}

func TestEntryBundles(t *testing.T) {
	entries := [][]byte{bytes.Repeat([]byte{1}, 32), {}, bytes.Repeat([]byte{2}, 300)}
	bundle := EntryBundle(entries)
	got, err := ParseEntryBundle(bundle, 3)
	if err != nil || !bytes.Equal(got[0], entries[0]) || len(got[1]) != 0 || !bytes.Equal(got[2], entries[2]) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, count := range []int{0, 2, 4} {
		if _, err := ParseEntryBundle(bundle, count); err == nil {
			t.Errorf("read as %d entries", count)
		}
	}
	for _, end := range []int{1, 33, 35, len(bundle) - 1} {
		if _, err := ParseEntryBundle(bundle[:end], 3); err == nil {
			t.Errorf("cut after %d bytes: read", end)
		}
	}
}
