package checkpoint

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// TileHeight and TileWidth are those of c2sp.org/tlog-tiles. Every tlog.Tile here has
// H = TileHeight, and an entry bundle has L = -1.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
)

// The first line has the path prefixes of package tlog, the second those of tlog-tiles.
// Package tlog adds the tile height, 8, and writes "data" instead of "entries".
const (
	tlogTile, tlogEntries = "tile/8/", "tile/8/data/"
	tilePath, entriesPath = "tile/", "tile/entries/"
)

// TilePath returns tile/<L>/<N>[.p/<W>] or tile/entries/<N>[.p/<W>].
func TilePath(t tlog.Tile) string {
	path := t.Path()
	if rest, data := strings.CutPrefix(path, tlogEntries); data {
		return entriesPath + rest
	}
	return tilePath + strings.TrimPrefix(path, tlogTile)
}

// ParseTilePath reads a path in the form that TilePath returns, and refuses every other path.
func ParseTilePath(path string) (tlog.Tile, error) {
	rest, ok := strings.CutPrefix(path, entriesPath)
	inner := tlogEntries + rest
	if !ok {
		rest, ok = strings.CutPrefix(path, tilePath)
		inner = tlogTile + rest
	}
	t, err := tlog.ParseTilePath(inner)
	if !ok || err != nil || t.L > 63 || strings.HasPrefix(rest, "data/") || TilePath(t) != path {
		return tlog.Tile{}, fmt.Errorf("%.100q is not the path of a tile: write \"tile/<L>/<N>\" or \"tile/entries/<N>\", append \".p/<W>\" for a partial tile, and split N into groups of three digits, such as \"x001/234\"", path)
	}
	return t, nil
}

// EntryBundle returns the entries in the format of tlog-tiles: for each entry, two bytes with
// its length (big-endian), and then the entry.
func EntryBundle(entries [][]byte) []byte {
	var out []byte
	for _, entry := range entries {
		out = append(out, byte(len(entry)>>8), byte(len(entry)))
		out = append(out, entry...)
	}
	return out
}

// ParseEntryBundle reads a bundle. It returns an error if the bundle does not have exactly
// `count` entries.
func ParseEntryBundle(bundle []byte, count int) ([][]byte, error) {
	var all [][]byte
	for rest := bundle; len(rest) > 0; {
		if len(rest) < 2 {
			return nil, fmt.Errorf("the entry bundle ends inside the 2-byte length field of entry %d", len(all))
		}
		size := int(rest[0])<<8 | int(rest[1])
		if len(rest) < 2+size {
			return nil, fmt.Errorf("the entry bundle ends inside entry %d", len(all))
		}
		all = append(all, rest[2:2+size])
		rest = rest[2+size:]
	}
	if len(all) != count {
		return nil, fmt.Errorf("the entry bundle has %d entries instead of %d", len(all), count)
	}
	return all, nil
}
