package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
)

// exchangeWidth is the line length in characters above which layout breaks an object or
// array into several lines.
const exchangeWidth = 112

var (
	// opaque matches hashes, signatures, salts, tokens and keys, and captures the start of each.
	opaque = regexp.MustCompile(`"((?:sha256:|es256:|ed25519:)?[0-9a-f]{8})[0-9a-f]{24,}"|"((?:fp|it)_[0-9A-Za-z_-]{6})[0-9A-Za-z_-]{20,}"`)
	// longText matches a string of more than about 70 characters and captures its start, up
	// to the end of a word.
	longText = regexp.MustCompile(`"([^"\\]{60,72}) [^"\\]{12,}"`)
)

func (t *terminal) exchange(e httpclient.Exchange) {
	request := "> " + e.Method + " " + e.Path
	if e.Token != "" {
		request += "   Authorization: Bearer " + strings.Trim(shortened([]byte(`"`+e.Token+`"`), ""), `"`)
	}
	if body := bytes.TrimSpace(e.Body); len(body) > 2 { // more than {}
		request += "\n> " + shortened(body, "  ")
	}
	fmt.Fprintf(t.err, "%s\n< %d %s\n\n", request, e.Status, shortened(e.Answer, "  "))
}

// shortened cuts hashes, credentials and long texts in JSON, and breaks JSON that does not fit on one line.
func shortened(text []byte, indent string) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return printable(redacted(string(text)))
	}
	short := opaque.ReplaceAll(compact.Bytes(), []byte(`"$1$2…"`))
	return layout(longText.ReplaceAll(short, []byte(`"$1 …"`)), indent)
}

// layout breaks an object or array that does not fit into exchangeWidth: one line for each member, in order.
func layout(text []byte, indent string) string {
	if utf8.RuneCount(text) <= exchangeWidth-2*len(indent) || (text[0] != '{' && text[0] != '[') {
		return printable(string(text))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	open, _ := decoder.Token()
	inner := indent + "  "
	var lines []string
	for decoder.More() {
		name := ""
		if open == json.Delim('{') {
			key, _ := decoder.Token()
			name = fmt.Sprintf("%q: ", key)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return printable(string(text))
		}
		lines = append(lines, inner+name+layout(value, inner))
	}
	closing := map[json.Delim]string{'{': "}", '[': "]"}[open.(json.Delim)]
	return fmt.Sprintf("%s\n%s\n%s%s", open, strings.Join(lines, ",\n"), indent, closing)
}
