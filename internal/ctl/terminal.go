package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

func (t *terminal) line(format string, args ...any) {
	fmt.Fprintln(t.out, printable(fmt.Sprintf(format, args...)))
}

func (t *terminal) note(format string, args ...any) {
	fmt.Fprintln(t.err, printable(redacted(fmt.Sprintf(format, args...))))
}

func (t *terminal) value(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = printable(line) // its escapes are escapes of JSON too
	}
	_, err := io.WriteString(t.out, strings.Join(lines, "\n")+"\n")
	return err
}

func (t *terminal) show(value any, format string, args ...any) error {
	if t.json {
		return t.value(value)
	}
	t.line(format, args...)
	return nil
}

// answer prints an answer of the service: its JSON on one line with --json, otherwise one line for
// each member that is not null or "".
func (t *terminal) answer(body []byte) error {
	if t.json {
		var line bytes.Buffer
		if err := json.Compact(&line, body); err != nil {
			return fmt.Errorf("the service's answer is not JSON: %w", err)
		}
		_, err := fmt.Fprintln(t.out, printable(line.String()))
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

func validity(r verification.Report) string {
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

// decided says which deal a certificate decides, and how, for a reader who expects another one. The texts are those of the file,
// cut to a length that a reader can compare.
type decided struct {
	DealID    string   `json:"deal_id"`
	Algorithm string   `json:"algorithm"`
	Outcome   string   `json:"outcome"`
	Parties   int      `json:"parties"`
	Labels    []string `json:"labels"` // of the first mostParties parties
	Result    string   `json:"result"` // the beginning of its canonical JSON
	Log       string   `json:"log"`    // the origin of the log; "": the file has no checkpoint
}

const mostParties = 16 // in a verdict

// decidedBy reads cert, which may be malformed. bundle may be nil.
func decidedBy(cert any, bundle map[string]any) decided {
	members, _ := cert.(map[string]any)
	parties, _ := members["parties"].([]any)
	of := decided{DealID: short(members["deal_id"]), Algorithm: short(members["algorithm"]), Outcome: short(members["outcome"]), Parties: len(parties), Labels: []string{}, Result: short(members["result"])}
	for _, party := range parties[:min(mostParties, len(parties))] {
		row, _ := party.(map[string]any)
		of.Labels = append(of.Labels, short(row["label"]))
	}
	text, _ := bundle["log_proof"].(string)
	if proof, err := checkpoint.ParseProof([]byte(text)); err == nil {
		origin, _, _ := strings.Cut(string(proof.Note), "\n")
		of.Log = short(origin)
	}
	return of
}

func (d decided) lines() []string {
	labels := make([]string, len(d.Labels))
	for i, label := range d.Labels {
		labels[i] = fmt.Sprintf("%d %q", i, label)
	}
	if d.Parties > len(labels) {
		labels = append(labels, fmt.Sprintf("and %d more", d.Parties-len(labels)))
	}
	lines := []string{
		fmt.Sprintf("%-23s %s, %s, %s", "certificate of deal", d.DealID, d.Algorithm, d.Outcome),
		fmt.Sprintf("%-23s %s", "parties", strings.Join(labels, ", ")),
		fmt.Sprintf("%-23s %s", "result", d.Result),
	}
	if d.Log != "" {
		lines = append(lines, fmt.Sprintf("%-23s %s", "log", d.Log))
	}
	return lines
}

// short returns a text, or the JSON of another value, with at most 200 characters.
func short(v any) string {
	text, ok := v.(string)
	if !ok {
		text = string(canon.Encode(v))
	}
	if cut := fmt.Sprintf("%.200s", text); cut != text {
		return cut + "…"
	}
	return text
}

// verdict prints the report on a certificate. It returns errUnknownIssuer if nothing is false, but the
// issuer is not proven.
func (t *terminal) verdict(of decided, r verification.Report) error {
	lines := of.lines()
	for _, claim := range r.Claims {
		lines = append(lines, fmt.Sprintf("%-14s %-8s %s", claim.Status, claim.Claim, claim.Detail))
		for _, party := range claim.Parties[:min(mostParties, len(claim.Parties))] {
			lines = append(lines, fmt.Sprintf("%-14s %-8s party %d: %s", "", "", party.Party, party.Detail))
		}
	}
	unknown := r.Valid && r.Issuer() != verification.Proven
	last := validity(r)
	if unknown {
		last = "CONSISTENT, ISSUER UNKNOWN"
	}
	value := struct {
		decided
		verification.Report
	}{of, r}
	if err := t.report(r, value, append(lines, last)...); err != nil || !unknown {
		return err
	}
	return errUnknownIssuer
}

func (t *terminal) read(path string) ([]byte, error) {
	const maxFile = 64 << 20 // bytes
	in := t.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: give a smaller file", path, maxFile)
	}
	return data, err
}

func (t *terminal) tree(path string) (any, error) { return t.treeWithin(path, 0) }

// treeWithin reads a file whose depth limit is higher by more levels.
func (t *terminal) treeWithin(path string, more int) (any, error) {
	data, err := t.read(path)
	if err != nil {
		return nil, err
	}
	v, err := canon.ParseWithin(data, more)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func (t *terminal) object(path string) (map[string]any, error) {
	v, err := t.tree(path)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", path)
	}
	return o, nil
}

// inputLevels is by how much the depth limit of a file with inputs is higher than that of one
// input. It counts the JSON levels around an input: the array and {input, salt}.
const inputLevels = 2

func (t *terminal) inputs(path string) ([]any, error) {
	v, err := t.treeWithin(path, inputLevels)
	rows, ok := v.([]any)
	if err == nil && !ok {
		err = fmt.Errorf("%s: not a JSON array of {input, salt}", path)
	}
	return rows, err
}

// secretOf returns a credential: `value`, which is from a flag or the environment, or else the
// first line of the file at path.
func (t *terminal) secretOf(value, path string) (string, error) {
	if value != "" || path == "" {
		return value, nil
	}
	data, err := t.read(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("the first line of %s is empty: write the credential there", path)
	}
	return line, nil
}

// createSecretFile calls `produce` and writes the result to a new file that only the file's owner
// may read. It creates the file before the call, because `produce` obtains a secret, which would be
// lost if the file could not be created. It refuses an existing file, which may hold the only copy
// of a secret.
func createSecretFile(path string, produce func() ([]byte, error)) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists and may hold the only copy of a salt or token: name another file", path)
	}
	if err != nil {
		return err
	}
	_ = file.Close()
	content, err := produce()
	if err != nil {
		os.Remove(path)
		return err
	}
	return files.Replace(path, content, 0o600)
}
