package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	tlogproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
)

// Proof is a c2sp.org/tlog-proof@v1 without extra data: a leaf is in the tree of a signed checkpoint.
type Proof struct {
	Index int64
	Path  [][32]byte
	Note  []byte
}

// Marshal writes the proof as a .tlog-proof file.
func (p Proof) Marshal() []byte {
	return tlogproof.TLogProof{Index: uint64(p.Index), Hashes: p.Path, Checkpoint: p.Note}.Marshal()
}

// ParseProof reads a .tlog-proof file. Policy.Verify and VerifyInclusion verify it.
func ParseProof(text []byte) (Proof, error) {
	var read tlogproof.TLogProof
	if len(text) > 2*MaxNote {
		return Proof{}, fmt.Errorf("the tlog-proof is over %d bytes", 2*MaxNote)
	}
	if err := read.Unmarshal(text); err != nil {
		return Proof{}, err
	}
	switch {
	case !bytes.Equal(read.Marshal(), text): // for example leading zeros, or a missing line feed at the end
		return Proof{}, errors.New("the tlog-proof is not in the canonical form")
	case read.ExtraData != nil:
		return Proof{}, errors.New("the tlog-proof has an extra line, which proofs of this log never have")
	case read.Index > math.MaxInt64 || len(read.Hashes) > 63:
		return Proof{}, errors.New("the tlog-proof has more than 63 hashes, or an index over 2^63-1")
	}
	return Proof{Index: int64(read.Index), Path: read.Hashes, Note: read.Checkpoint}, nil
}

// VerifyInclusion checks that the path proves the entry under the checkpoint's root (RFC 9162 2.1.3.2).
func (p Proof) VerifyInclusion(entry []byte, c Checkpoint) error {
	if p.Index < 0 || p.Index >= c.Size {
		return fmt.Errorf("leaf %d is not in a tree of %d leaves", p.Index, c.Size)
	}
	hasher := rfc6962.DefaultHasher
	if err := proof.VerifyInclusion(hasher, uint64(p.Index), uint64(c.Size), hasher.HashLeaf(entry), asSlices(p.Path), c.Root[:]); err != nil {
		return fmt.Errorf("the path does not lead from the entry at leaf %d to the root of the tree of size %d", p.Index, c.Size)
	}
	return nil
}

// VerifyConsistency checks that the newer checkpoint extends the older one (RFC 9162 2.1.4.2).
func VerifyConsistency(older, newer Checkpoint, path [][32]byte) error {
	if older.Size == 0 && len(path) > 0 { // tlog-witness demands an empty proof here
		return errors.New("the consistency proof from size 0 has hashes: send an empty proof")
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(older.Size), uint64(newer.Size), asSlices(path), older.Root[:], newer.Root[:]); err != nil {
		return fmt.Errorf("the tree of size %d does not extend the tree of size %d by this consistency proof", newer.Size, older.Size)
	}
	return nil
}

func asSlices(hashes [][32]byte) [][]byte {
	all := make([][]byte, len(hashes))
	for i := range hashes {
		all[i] = hashes[i][:]
	}
	return all
}

// AddCheckpoint is the body of an add-checkpoint request (c2sp.org/tlog-witness): a
// signed checkpoint with the proof that it extends the tree of size Old.
type AddCheckpoint struct {
	Old   int64
	Proof [][32]byte
	Note  []byte
}

// AddCheckpointPath and SizeType are defined by c2sp.org/tlog-witness.
const (
	AddCheckpointPath = "/add-checkpoint"
	SizeType          = "text/x.tlog.size" // media type of a 409 answer; the body is the last tree size that the witness cosigned
)

// Marshal returns the body of the request.
func (a AddCheckpoint) Marshal() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", a.Old)
	for _, hash := range a.Proof {
		b.WriteString(encode64(hash[:]) + "\n")
	}
	b.WriteString("\n")
	b.Write(a.Note)
	return []byte(b.String())
}

// ParseSize reads a tree size in plain decimal digits.
func ParseSize(text string) (int64, error) {
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != text {
		return 0, fmt.Errorf("%.40q is not a tree size", text)
	}
	return size, nil
}

// Cosignatures returns, by Key.ID, the lines of a witness's answer that are signatures over `text` by the
// given keys. It ignores other lines. An invalid signature by a given key is an error.
func Cosignatures(text, answer string, keys []Key) (lines map[string]string, err error) {
	if !strings.HasSuffix(answer, "\n") {
		return nil, errors.New("the answer does not end with a line feed")
	}
	lines = map[string]string{}
	for line := range strings.Lines(answer) {
		_, signature, err := readLine(line)
		if err != nil {
			continue
		}
		for _, key := range keys {
			mine, err := key.Signed(text, line)
			if err != nil {
				return nil, err
			}
			if mine {
				lines[key.ID()] = key.Line(signature[4:])
			}
		}
	}
	return lines, nil
}

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

// EntryBundle returns the entries in the format of tlog-tiles: each after its length (2 bytes, big-endian).
func EntryBundle(entries [][]byte) []byte {
	var out []byte
	for _, entry := range entries {
		out = append(out, byte(len(entry)>>8), byte(len(entry)))
		out = append(out, entry...)
	}
	return out
}

// ParseEntryBundle reads a bundle, which must have exactly `count` entries.
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
