package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

// Marker is a text, usually a secret, that Shown searches for. Shown looks up 8-byte prefixes, so
// Text must have at least 8 bytes. Shown also searches for the decoded bytes of hex, so Text in hex
// must have at least 16 digits.
type Marker struct{ Name, Text string }

// needles returns all forms in which a marker may appear: unchanged, in hex, and in base64. The
// base64 forms cover the standard and the URL alphabet, and any number of bytes before the marker.
// needles also returns the hex of each form, because a dump shows bytea in hex. If the marker is a
// credential or hex, needles adds the same forms of the decoded bytes.
func (m Marker) needles() (all [][]byte) {
	plain := [][]byte{[]byte(m.Text)}
	_, payload, _ := strings.Cut(m.Text, "_") // a credential is fp_… or it_…
	if raw, err := base64.RawURLEncoding.DecodeString(payload); err == nil && len(raw) >= 16 {
		plain = append(plain, raw)
	}
	if raw, err := hex.DecodeString(m.Text); err == nil {
		plain = append(plain, raw)
	}
	for _, p := range plain {
		shown := [][]byte{p, []byte(hex.EncodeToString(p)), bytes.ToUpper([]byte(hex.EncodeToString(p)))}
		for offset := range 3 {
			// Omit the base64 characters that also encode neighbouring bytes.
			for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				text := alphabet.EncodeToString(append(make([]byte, offset), p...))
				shown = append(shown, []byte(text[(offset*8+5)/6:(offset+len(p))*8/6]))
			}
		}
		for _, s := range shown {
			all = append(all, s, []byte(hex.EncodeToString(s)))
		}
	}
	return all
}

// Shown returns the names of the places that show each marker, by the marker's index. It reads each
// place once for all markers.
func Shown(markers []Marker, places map[string][]byte) map[int][]string {
	type needle struct {
		marker int
		text   []byte
	}
	byPrefix := map[uint64][]needle{}
	for i, m := range markers {
		for _, text := range m.needles() {
			prefix := binary.LittleEndian.Uint64(text)
			byPrefix[prefix] = append(byPrefix[prefix], needle{i, text})
		}
	}
	found := map[int][]string{}
	for name, place := range places {
		for at := 0; at+8 <= len(place); at++ {
			for _, n := range byPrefix[binary.LittleEndian.Uint64(place[at:])] {
				if bytes.HasPrefix(place[at:], n.text) && !slices.Contains(found[n.marker], name) {
					found[n.marker] = append(found[n.marker], name)
				}
			}
		}
	}
	return found
}
