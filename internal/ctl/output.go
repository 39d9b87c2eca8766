package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

func (t *terminal) line(format string, args ...any) {
	fmt.Fprintln(t.out, printable(fmt.Sprintf(format, args...)))
}

func (t *terminal) note(format string, args ...any) {
	fmt.Fprintln(t.err, printable(redacted(fmt.Sprintf(format, args...))))
}

func (t *terminal) value(v any) error {
	enc := json.NewEncoder(t.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (t *terminal) show(value any, format string, args ...any) error {
	if t.json {
		return t.value(value)
	}
	t.line(format, args...)
	return nil
}

// answer prints an answer of the service: unchanged with --json, otherwise one line for each
// member that is not null or "".
func (t *terminal) answer(body []byte) error {
	if t.json {
		_, err := fmt.Fprintln(t.out, string(bytes.TrimSpace(body)))
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("the service's answer is not JSON: %w", err)
	}
	for dec.More() {
		name, err := dec.Token()
		var v json.RawMessage
		if err == nil {
			err = dec.Decode(&v)
		}
		if err != nil {
			return fmt.Errorf("the service's answer is not a JSON object: %w", err)
		}
		shown := string(v)
		if text := ""; json.Unmarshal(v, &text) == nil {
			shown = text
		}
		if shown != "null" && shown != "" {
			t.line("%-18s %s", strings.ReplaceAll(fmt.Sprint(name), "_", " "), shown)
		}
	}
	return nil
}
