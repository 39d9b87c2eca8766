package devwitness

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

func TestARequestHasOneForm(t *testing.T) {
	a := checkpoint.AddCheckpoint{Old: 20852014, Proof: [][32]byte{{1}, {2}, {3}}, Note: []byte("log.example\n7\n\n— log.example AAAAAAAA\n")}
	read, err := parseRequest(a.Marshal())
	if err != nil || read.Old != a.Old || len(read.Proof) != 3 || read.Proof[2] != a.Proof[2] || !bytes.Equal(read.Note, a.Note) {
		t.Fatalf("parsed request %+v, %v; want the marshalled one", read, err)
	}
	whole := string(a.Marshal())
	for name, wrong := range map[string]string{
		"no old line":      strings.TrimPrefix(whole, "old 20852014\n"),
		"leading zero":     strings.Replace(whole, "old 2", "old 02", 1),
		"negative":         strings.Replace(whole, "old 2", "old -2", 1),
		"not base64":       strings.Replace(whole, "AAAA", "!!!!", 1),
		"short hash":       strings.Replace(whole, "AAAA", "", 1),
		"too many hashes":  string(checkpoint.AddCheckpoint{Proof: make([][32]byte, 64), Note: a.Note}.Marshal()),
		"no blank line":    "old 3\n",
		"nothing":          "",
		"carriage returns": strings.ReplaceAll(whole, "\n", "\r\n"),
	} {
		if _, err := parseRequest([]byte(wrong)); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}
