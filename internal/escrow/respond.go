package escrow

import (
	"bytes"
	"encoding/json"

	"github.com/fairpact/fairpact/internal/idempotency"
)

// Encode is how every answer is written: JSON without HTML escapes.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func respond(status int, v any) (idempotency.Response, error) {
	body, err := Encode(v)
	return idempotency.Response{Status: status, Body: body}, err
}
