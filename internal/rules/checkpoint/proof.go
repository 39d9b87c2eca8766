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
)

// Proof is a c2sp.org/tlog-proof@v1 without extra data. It proves that a leaf is in the
// tree of a signed checkpoint.
type Proof struct {
	Index int64
	Path  [][32]byte
	Note  []byte
}

// Marshal writes the proof as a .tlog-proof file.
func (p Proof) Marshal() []byte {
	return tlogproof.TLogProof{Index: uint64(p.Index), Hashes: p.Path, Checkpoint: p.Note}.Marshal()
}

// ParseProof reads a .tlog-proof file but does not verify it. To verify it, call
// Policy.Verify and VerifyInclusion.
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

// VerifyInclusion checks that the path proves the entry under the checkpoint's root (RFC
// 9162 2.1.3.2). It does not verify signatures.
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

// VerifyConsistency checks that the newer checkpoint extends the older one
// (RFC 9162 2.1.4.2).
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

// Cosignatures returns, by Key.ID, the lines of a witness's answer that are signatures over `text`
// by the given keys. It ignores malformed lines and those of other keys. An invalid signature by
// a given key is an error.
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
