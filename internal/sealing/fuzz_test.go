package sealing

import (
	"bytes"
	"testing"
)

// FuzzOpenInput calls OpenInput for party 1 twice. The first call passes the fuzzed bytes as
// they are. It must fail, because these bytes were never sealed for party 1. The second call
// passes the fuzzed bytes after sealing them for party 1. It may succeed or fail. Neither call
// may panic.
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
		in, err := s.OpenInput("d_1", 1, s.inputs.Seal(nil, nil, data, place("d_1", 1)))
		if err != nil {
			return
		}
		if got := len(in.Canonical) + len(in.Salt) + len(in.SaltBytes) + 8; got != len(data) {
			t.Fatalf("OpenInput of the plaintext %x: the parts have %d bytes, want %d", data, got, len(data))
		}
	})
}
