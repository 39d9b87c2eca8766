package e2e

import (
	"bytes"
	"crypto/rand"
)

// once is a POST that is sent again with the same Idempotency-Key.
type once struct {
	C                *Client
	Path, Token, Key string
	Sent             any
}

func (c *Client) Once(path, token string, sent any) once {
	return once{c, path, token, rand.Text(), sent}
}

func (o once) Want(status int) Answer {
	o.C.T.Helper()
	return o.C.Want(status, "POST", o.Path, o.Token, o.Sent, "Idempotency-Key", o.Key)
}

// Replays sends the request again and requires the very same answer.
func (o once) Replays(first Answer) {
	o.C.T.Helper()
	if a := o.Want(first.Status); !bytes.Equal(a.Body, first.Body) {
		o.C.T.Errorf("POST %s replayed %s, and first was answered %s", o.Path, a.Body, first.Body)
	}
}
