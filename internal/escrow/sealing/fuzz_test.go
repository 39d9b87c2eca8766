package sealing

import (
	"bytes"
	"testing"
)

// OpenInput must refuse fuzzed bytes that were never sealed for party 1. If the bytes are sealed
// for party 1 first, OpenInput may succeed or fail. OpenInput must never panic.
func FuzzOpenInput(f *testing.F) {
	s := secretOf(f, 1)
	whole := s.SealInput("d_1", 0, Input{Canonical: []byte("{}"), Salt: "s", SaltBytes: []byte("s")})
	f.Add([]byte{})
	f.Add(whole)
	f.Add(whole[:12])
	f.Add(append(bytes.Clone(whole), 0))
	f.Add([]byte{0, 0, 0, 1, 's', 0, 0, 0, 1, 's', '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if in, err := s.OpenInput("d_1", 1, data); err == nil {
			t.Fatalf("OpenInput of the unsealed bytes %x = %+v, want an error", data, in)
		}
		in, err := s.OpenInput("d_1", 1, s.inputs.Seal(nil, nil, data, additionalData("input", "d_1", 1)))
		if err != nil {
			return
		}
		if got := len(in.Canonical) + len(in.Salt) + len(in.SaltBytes) + 8; got != len(data) {
			t.Fatalf("OpenInput of the plaintext %x: the parts have %d bytes, want %d", data, got, len(data))
		}
	})
}
