package devwitness

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// maxProof is the maximum number of hashes that tlog-witness allows in a consistency proof.
const maxProof = 63

// parseRequest parses the body of an add-checkpoint request. It verifies neither the
// proof nor the signatures.
func parseRequest(body []byte) (a checkpoint.AddCheckpoint, err error) {
	head, signedNote, ok := strings.Cut(string(body), "\n\n")
	if !ok || len(body) > 2*checkpoint.MaxNote {
		return a, errors.New("the body has no blank line after the consistency proof, or is too large")
	}
	lines := strings.Split(head, "\n")
	old, ok := strings.CutPrefix(lines[0], "old ")
	if a.Old, err = checkpoint.ParseSize(old); !ok || err != nil {
		return a, fmt.Errorf("the first line is %.40q: write \"old SIZE\"", lines[0])
	}
	if len(lines)-1 > maxProof {
		return a, fmt.Errorf("the consistency proof has more than %d hashes", maxProof)
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

func decodeHash(text string) (hash [32]byte, err error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != len(hash) || base64.StdEncoding.EncodeToString(b) != text {
		return hash, fmt.Errorf("%.60q is not 32 bytes in base64", text)
	}
	return [32]byte(b), nil
}
