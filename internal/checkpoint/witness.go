package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AddCheckpoint is the body of an add-checkpoint request (c2sp.org/tlog-witness):
// a signed checkpoint, and the proof that it extends the one of size Old.
type AddCheckpoint struct {
	Old   int64
	Proof [][32]byte
	Note  []byte
}

// Path and media type of tlog-witness.
const (
	AddCheckpointPath = "/add-checkpoint"
	SizeType          = "text/x.tlog.size" // the body of a 409: the size that the witness has
)

// maxProof is the most hashes of a consistency proof.
const maxProof = 63

// Marshal writes the request.
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

// ParseAddCheckpoint reads the request and verifies nothing.
func ParseAddCheckpoint(body []byte) (a AddCheckpoint, err error) {
	head, signedNote, ok := strings.Cut(string(body), "\n\n")
	if !ok || len(body) > 2*MaxNote {
		return a, errors.New("no blank line after the consistency proof, or a body that is too large")
	}
	lines := strings.Split(head, "\n")
	old, ok := strings.CutPrefix(lines[0], "old ")
	if a.Old, err = ParseSize(old); !ok || err != nil {
		return a, errors.New("the first line is not old SIZE")
	}
	if len(lines)-1 > maxProof {
		return a, fmt.Errorf("a consistency proof of more than %d hashes", maxProof)
	}
	for _, line := range lines[1:] {
		hash, err := decodeHash(line)
		if err != nil {
			return a, err
		}
		a.Proof = append(a.Proof, hash)
	}
	a.Note = []byte(signedNote)
	return a, nil
}

// ParseSize reads a tree size in plain decimal digits.
func ParseSize(text string) (int64, error) {
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != text {
		return 0, fmt.Errorf("%.40q is not a tree size", text)
	}
	return size, nil
}

// Cosignatures picks the signatures of a witness's answer that are by the keys, as
// lines of a note. A line under a known key that does not verify over the text is
// an error; all other lines are ignored.
func Cosignatures(text, answer string, keys []Key) (lines map[string]string, err error) {
	if !strings.HasSuffix(answer, "\n") {
		return nil, errors.New("the answer does not end with a line feed")
	}
	lines = map[string]string{} // by the ID of the key
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
				lines[key.ID()] = key.Line(signature[4:]) // never the text that was received
			}
		}
	}
	return lines, nil
}
