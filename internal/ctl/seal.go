package ctl

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

type sealCommand struct {
	Input string  `arg:"" help:"File with the input, a JSON object; '-' reads standard input."`
	Salt  *string `help:"The salt, as text. Default: 16 random bytes as 32 hex digits."`
	Out   string  `placeholder:"FILE" help:"New file for the input and the salt. fairpactctl deal commit and fairpactctl deal reveal read this sealed file."`
}

// sealedFile has a party's input and salt. The body of a reveal request is the same.
type sealedFile struct {
	Input json.RawMessage `json:"input"`
	Salt  string          `json:"salt"`
}

func (c sealCommand) Run(t *terminal) error {
	data, err := t.read(c.Input)
	if err != nil {
		return err
	}
	input, err := canon.ParseObject(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Input, err)
	}
	salt := newSalt()
	if c.Salt != nil {
		salt = *c.Salt
	}
	if len(salt) > canon.MaxSalt {
		return fmt.Errorf("the salt has %d bytes: give at most %d", len(salt), canon.MaxSalt)
	}
	canonical := canon.Encode(input)
	if c.Out != "" {
		text, err := json.Marshal(sealedFile{canonical, salt})
		if err != nil {
			return err
		}
		if err := createSecretFile(c.Out, func() ([]byte, error) { return append(text, '\n'), nil }); err != nil {
			return err
		}
	}
	commitment := canon.Commitment(canonical, []byte(salt))
	if t.json {
		return t.value(map[string]string{"commitment": commitment, "salt": salt})
	}
	t.line("commitment %s", commitment)
	t.line("salt       %s", salt)
	if salt == "" {
		t.note("no salt: whoever sees this commitment can guess the input and check the guess")
	}
	return nil
}

func newSalt() string { return randomHex(16) }

func randomHex(bytes int) string {
	raw := make([]byte, bytes)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// sealed is the parsed content of a sealed file.
type sealed struct {
	members   map[string]any
	canonical []byte // RFC 8785
	salt      string
}

func (t *terminal) sealed(path string) (s sealed, err error) {
	file, err := t.object(path)
	if err != nil {
		return s, err
	}
	input, ok := file["input"].(map[string]any)
	salt, text := file["salt"].(string)
	if !ok || !text || len(file) != 2 {
		return s, fmt.Errorf("%s is not a sealed file of the form {\"input\": {…}, \"salt\": \"…\"}: make one with fairpactctl seal INPUT --out FILE", path)
	}
	return sealed{input, canon.Encode(input), salt}, nil
}
