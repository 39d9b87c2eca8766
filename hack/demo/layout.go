package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// width is the longest line that a transcript should have.
const width = 112

// opaque matches what nobody reads to its end: hashes, signatures, tokens.
var opaque = regexp.MustCompile(`"((?:sha256:|es256:|ed25519:)?[0-9a-f]{8})[0-9a-f]{24,}"|"((?:fp|it)_[0-9A-Za-z_-]{6})[0-9A-Za-z_-]{20,}"`)

// wordy matches the start of a long sentence, up to the end of a word.
var wordy = regexp.MustCompile(`"([^"\\]{60,72}) [^"\\]{12,}"`)

// show gives JSON for reading: members in their order, opaque and long
// strings cut, on one line where that fits.
func show(raw []byte, indent string) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return string(raw) // not JSON after all
	}
	short := opaque.ReplaceAll(compact.Bytes(), []byte(`"$1$2…"`))
	return layout(wordy.ReplaceAll(short, []byte(`"$1 …"`)), indent)
}

func layout(raw []byte, indent string) string {
	if utf8.RuneCount(raw) <= width-2*len(indent) || (raw[0] != '{' && raw[0] != '[') {
		return string(raw)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	open, err := decoder.Token()
	if err != nil {
		return string(raw)
	}
	inner := indent + "  "
	var lines []string
	for decoder.More() {
		name := ""
		if open == json.Delim('{') {
			key, err := decoder.Token()
			if err != nil {
				return string(raw)
			}
			name = fmt.Sprintf("%q: ", key)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return string(raw)
		}
		lines = append(lines, inner+name+layout(value, inner))
	}
	closing := map[json.Delim]string{'{': "}", '[': "]"}[open.(json.Delim)]
	return fmt.Sprintf("%s\n%s\n%s%s", open, strings.Join(lines, ",\n"), indent, closing)
}
