package ctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

type signingKeysCommands struct {
	Show   signingKeysShowCommand   `cmd:"" help:"Show the keys of a deployment or of a key set file, and what each key may sign."`
	Check  signingKeysCheckCommand  `cmd:"" help:"Check that processes, log and certificates agree with the key set, and show the next step of a rotation."`
	Init   signingKeysInitCommand   `cmd:"" help:"Write a key set with one signing key."`
	Rotate signingKeysRotateCommand `cmd:"" help:"Write a key set in which another key signs from a later time on or, for a stolen key, at once."`
	Close  signingKeysCloseCommand  `cmd:"" help:"Close a retired key at a tree size, so that signatures of this key at later leaves become invalid."`
}

// readPublished parses the answer of GET /v1/pubkeys. Unlike keys.ParsePublished it
// refuses an answer of GET /v1/status, which does not state what each key may sign.
func readPublished(document any) (keys.List, error) {
	list, err := keys.ParsePublished(document)
	if err == nil && list[0].State == "" {
		err = errors.New("the document has the form of a GET /v1/status answer: check which server answers GET /v1/pubkeys at --base-url")
	}
	if err != nil {
		return nil, fmt.Errorf("the published key set is malformed: %w", err)
	}
	return list, nil
}

func (t *terminal) keySet(ctx context.Context, path string) (*keys.Set, error) {
	document, err := t.read(path)
	if err != nil {
		return nil, err
	}
	var set *keys.Set
	if err = devKeyExists(document); err == nil {
		set, err = signing.ParseKeySet(ctx, document)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// devKeyExists returns an error if signing.ParseKeySet would make a development key to learn a
// missing pubkey. Only the services make keys, not a command that reads a document.
func devKeyExists(document []byte) error {
	list, err := keys.ParseDocument(document)
	for _, key := range list {
		path, dev := strings.CutPrefix(key.URI, "dev://")
		if _, missing := os.Stat(path); dev && key.Label == "" && errors.Is(missing, fs.ErrNotExist) {
			return fmt.Errorf("the key %s has no pubkey, and its file does not exist here: run this where the key file is, or add pubkey", key.URI)
		}
	}
	return err
}

type signingKeysShowCommand struct {
	BaseURL string `env:"FAIRPACT_URL" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
	File    string `placeholder:"FILE" help:"Key set file to show instead of the keys of a deployment; '-' reads standard input."`
}

func (c signingKeysShowCommand) Run(ctx context.Context, t *terminal) error {
	var shown struct {
		Keys      keys.List `json:"keys"`
		KeySet    string    `json:"key_set,omitempty"`
		Custody   string    `json:"key_custody,omitempty"`
		Ephemeral bool      `json:"dev_ephemeral_key,omitempty"`
	}
	switch {
	case c.File != "":
		set, err := t.keySet(ctx, c.File)
		if err != nil {
			return err
		}
		shown.Keys, shown.KeySet = set.At(time.Now().Unix()), set.Digest()
	case c.BaseURL == "":
		return errors.New("no source for the keys: give --base-url or --file")
	default:
		client, err := httpclient.New(c.BaseURL)
		if err != nil {
			return err
		}
		var status wire.Status
		if err := client.GetInto(ctx, "/v1/status", "", &status); err != nil {
			return unreadable(err)
		}
		shown.Custody, shown.Ephemeral = status.Custody, status.DevEphemeral
		document, err := fetch(ctx, client, "/v1/pubkeys")
		if err == nil {
			shown.Keys, err = readPublished(document)
		}
		if err != nil {
			return unreadable(err)
		}
	}
	if t.json {
		return t.value(shown)
	}
	t.line("%-8s %-20s %-20s %-10s %s", "state", "signs from", "retired at", "tree size", "key")
	for _, k := range shown.Keys {
		size := "-"
		if k.TreeSize != nil {
			size = fmt.Sprint(*k.TreeSize)
		} else if k.State == keys.Retired {
			size = "open"
		}
		t.line("%-8s %-20s %-20s %-10s %s", k.State, instant(k.SignsFrom), instant(k.RetiredAt), size, k.Label)
	}
	if shown.Custody != "" {
		t.line("custody of the current key: %s", shown.Custody)
	}
	if shown.Ephemeral {
		t.line("the current key is a development key: its certificates prove nothing")
	}
	return nil
}

func instant(unix *int64) string {
	if unix == nil {
		return "-"
	}
	return time.Unix(*unix, 0).UTC().Format(time.RFC3339)
}
