package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/signing"
)

type signingKeysCommands struct {
	Show   signingKeysShowCommand   `cmd:"" help:"Show the keys of a deployment or of a key set file, and what each key may sign."`
	Check  signingKeysCheckCommand  `cmd:"" help:"Check that processes, log and certificates agree with the key set, and show the next step of a rotation."`
	Init   signingKeysInitCommand   `cmd:"" help:"Write a key set with one signing key."`
	Rotate signingKeysRotateCommand `cmd:"" help:"Write a key set in which another key signs from a later time on or, for a stolen key, at once."`
	Close  signingKeysCloseCommand  `cmd:"" help:"Close a retired key at a tree size, so that signatures of this key at later leaves become invalid."`
}

type published []verification.Trusted

// readPublished parses the answer of GET /v1/pubkeys. Unlike verification.ReadKeys it
// refuses an answer of GET /v1/status, which does not state what each key may sign.
func readPublished(document any) (published, error) {
	keys, problem := verification.ReadKeys(document)
	if problem == "" && keys[0].State == "" {
		problem = "has the form of a GET /v1/status answer: check which server answers GET /v1/pubkeys at --base-url"
	}
	if problem != "" {
		return nil, errors.New("the published key set is malformed: the document " + problem)
	}
	return keys, nil
}

func (p published) in(state string) (found published) {
	for _, k := range p {
		if k.State == state {
			found = append(found, k)
		}
	}
	return found
}

func (p published) keys() (keys []signing.Key) {
	for _, k := range p {
		keys = append(keys, signing.Key{PublicKey: k.Label, State: k.State, RetiredAt: k.RetiredAt, TreeSize: k.TreeSize})
	}
	return keys
}

// publishedBy returns the keys that GET /v1/pubkeys of a process with this key set returns now.
func publishedBy(set *signing.KeySet) (keys published) {
	for _, k := range set.Keys() {
		keys = append(keys, verification.Trusted{Label: k.PublicKey, State: k.State, RetiredAt: k.RetiredAt, TreeSize: k.TreeSize})
	}
	return keys
}

func (t *terminal) keySet(path string) (*signing.KeySet, error) {
	document, err := t.read(path)
	if err != nil {
		return nil, err
	}
	keys, err := signing.ParseKeySet(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

type signingKeysShowCommand struct {
	BaseURL string `env:"FAIRPACT_URL" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
	File    string `placeholder:"FILE" help:"Key set file to show instead of the keys of a deployment; '-' reads standard input."`
}

type shownKeys struct {
	Keys      []signing.Key `json:"keys"`
	KeySet    string        `json:"key_set,omitempty"`
	Custody   string        `json:"key_custody,omitempty"`
	Ephemeral bool          `json:"dev_ephemeral_key,omitempty"`
}

func (c signingKeysShowCommand) Run(ctx context.Context, t *terminal) error {
	var shown shownKeys
	switch {
	case c.File != "":
		set, err := t.keySet(c.File)
		if err != nil {
			return err
		}
		shown.Keys, shown.KeySet = set.Keys(), set.Digest()
	case c.BaseURL == "":
		return errors.New("no source for the keys: give --base-url or --file")
	default:
		client, err := httpclient.New(c.BaseURL)
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
		var keys published
		document, err := fetch(ctx, client, "/v1/pubkeys")
		if err == nil {
			keys, err = readPublished(document)
		}
		if err != nil {
			return unreadable(err)
		}
		shown.Keys = keys.keys()
	}
	if t.json {
		return t.value(shown)
	}
	t.line("%-8s %-20s %-20s %-10s %s", "state", "signs from", "retired at", "tree size", "key")
	for _, k := range shown.Keys {
		size := "-"
		if k.TreeSize != nil {
			size = fmt.Sprint(*k.TreeSize)
		} else if k.State == verification.Retired {
			size = "open"
		}
		t.line("%-8s %-20s %-20s %-10s %s", k.State, instant(k.SignsFrom), instant(k.RetiredAt), size, k.PublicKey)
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
