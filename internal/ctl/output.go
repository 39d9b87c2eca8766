package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/verification"
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

// report prints the checks of r, and then the lines of the parameter `more`. With --json it
// prints only the parameter `value`. It returns errFailed if a check failed.
func (t *terminal) report(r verification.Report, value any, more ...string) error {
	if t.json {
		if err := t.value(value); err != nil {
			return err
		}
	} else {
		for _, check := range r.Checks {
			word := "OK"
			if !check.OK {
				word = "FAIL"
			}
			t.line("%-4s %-22s %s", word, check.Name, check.Detail)
		}
		for _, line := range more {
			t.line("%s", line)
		}
	}
	if !r.Valid {
		return errFailed
	}
	return nil
}

func verdict(r verification.Report) string {
	if r.Valid {
		return "valid"
	}
	return "NOT VALID"
}

func checked(name string, err error, format string, args ...any) verification.Check {
	if err != nil {
		return verification.Check{Name: name, Detail: err.Error()}
	}
	return verification.Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func notProven(report verification.Report) (lines []string) {
	for _, note := range report.Notes {
		lines = append(lines, "not proven: "+note)
	}
	return append(lines, verdict(report))
}
