package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/restclient"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/verification"
)

type keysCommands struct {
	Show    keysShowCommand    `cmd:"" help:"Show the keys of a deployment or a file, and what each may sign."`
	Check   keysCheckCommand   `cmd:"" help:"Check that a deployment's replicas, its log and a file agree, and say what is next in a rotation."`
	Init    keysInitCommand    `cmd:"" help:"Write a key set with one key, the current one."`
	AddNext keysAddNextCommand `cmd:"" help:"Add the key that is to sign next."`
	Promote keysPromoteCommand `cmd:"" help:"Make the next key the current one; the current one retires."`
	Close   keysCloseCommand   `cmd:"" help:"Close a retired key at a tree size: nothing from there on is its own."`
}

// keySet is the document of FAIRPACT_KEY_SET_FILE and of GET /v1/pubkeys.
type keySet []verification.Trusted

// readKeySet reads a document as every verifier does, and holds it to what the
// processes start with: an ed25519 key is good for one and not for the other. A
// status is none.
func readKeySet(document any) (keySet, error) {
	keys, problem := verification.ReadKeys(document)
	if problem == "" && keys[0].State == "" {
		problem = "is a status: give the answer of GET /v1/pubkeys"
	}
	if problem != "" {
		return nil, errors.New("the key set " + problem)
	}
	for _, k := range trusted(keys) {
		if k.Problem != nil {
			return nil, fmt.Errorf("the key set holds %.80q: %w", k.Label, k.Problem)
		}
	}
	if _, err := signing.ParseKeySet(keySet(keys).document()); err != nil {
		return nil, fmt.Errorf("no process starts with this key set: %w", err)
	}
	return keys, nil
}

func (t *terminal) keySet(path string) (keySet, error) {
	document, err := t.tree(path)
	if err != nil {
		return nil, err
	}
	keys, err := readKeySet(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// document is the set's RFC 8785 form.
func (s keySet) document() []byte {
	rows := make([]any, len(s))
	for i, k := range s {
		row := map[string]any{"pubkey": k.Label, "state": k.State}
		if k.RetiredAt != nil {
			row["retired_at"] = *k.RetiredAt
		}
		if k.TreeSize != nil {
			row["tree_size"] = *k.TreeSize
		}
		rows[i] = row
	}
	return canon.Encode(map[string]any{"keys": rows})
}

// in gives the keys of a state.
func (s keySet) in(state string) (found keySet) {
	for _, k := range s {
		if k.State == state {
			found = append(found, k)
		}
	}
	return found
}

// find gives the place of a label, -1 where there is none.
func (s keySet) find(label string) int {
	for i, k := range s {
		if k.Label == label {
			return i
		}
	}
	return -1
}

// replace writes a file whole or not at all.
func replace(path string, content []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".keys-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	if err := errors.Join(file.Chmod(0o644), fill(file, content)); err != nil { // public keys
		return err
	}
	return os.Rename(file.Name(), path)
}

type keysShowCommand struct {
	BaseURL string `env:"FAIRPACT_URL" placeholder:"URL" help:"The deployment, like https://fairpact.example."`
	File    string `placeholder:"FILE" help:"Show this key set instead; - reads standard input."`
}

func (keysShowCommand) Help() string {
	return `current signs now; next is published and does not sign yet; retired has signed, and verifies for ever. A retired key with a tree size is closed: no leaf from that index on is its own.

Examples:

    fairpactctl keys show --base-url https://fairpact.example
    fairpactctl keys show --file keys.json --json`
}

// shownKeys is what --json gives.
type shownKeys struct {
	Keys      []shownKey `json:"keys"`
	Custody   string     `json:"key_custody,omitempty"`
	Ephemeral bool       `json:"dev_ephemeral_key,omitempty"`
}

type shownKey struct {
	Pubkey    string `json:"pubkey"`
	State     string `json:"state"`
	RetiredAt *int64 `json:"retired_at,omitempty"`
	TreeSize  *int64 `json:"tree_size,omitempty"`
}

func (c keysShowCommand) Run(ctx context.Context, t *terminal) error {
	var keys keySet
	var shown shownKeys
	switch {
	case c.File != "":
		var err error
		if keys, err = t.keySet(c.File); err != nil {
			return err
		}
	case c.BaseURL == "":
		return errors.New("give --base-url or --file")
	default:
		client, err := restclient.New(c.BaseURL)
		if err != nil {
			return err
		}
		status, err := fetch(ctx, client, "/v1/status")
		if err != nil {
			return unreadable(err)
		}
		members, _ := status.(map[string]any)
		shown.Custody, _ = members["key_custody"].(string)
		shown.Ephemeral, _ = members["dev_ephemeral_key"].(bool)
		document, err := fetch(ctx, client, "/v1/pubkeys")
		if err == nil {
			keys, err = readKeySet(document)
		}
		if err != nil {
			return unreadable(err)
		}
	}
	for _, k := range keys {
		shown.Keys = append(shown.Keys, shownKey{k.Label, k.State, k.RetiredAt, k.TreeSize})
	}
	if t.json {
		return t.value(shown)
	}
	t.line("%-8s %-20s %-10s %s", "state", "retired at", "tree size", "key")
	for _, k := range keys {
		at, size := "-", "-"
		if k.RetiredAt != nil {
			at = time.Unix(*k.RetiredAt, 0).UTC().Format(time.RFC3339)
		}
		if k.TreeSize != nil {
			size = fmt.Sprint(*k.TreeSize)
		} else if k.State == verification.Retired {
			size = "open"
		}
		t.line("%-8s %-20s %-10s %s", k.State, at, size, k.Label)
	}
	if shown.Custody != "" {
		t.line("custody of the current key: %s", shown.Custody)
	}
	if shown.Ephemeral {
		t.line("a development key: its certificates prove nothing")
	}
	return nil
}
