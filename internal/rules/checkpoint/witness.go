package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
