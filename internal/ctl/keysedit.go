package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/restclient"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/verification"
)

// edited is where a command writes the set it has made.
type edited struct {
	Out string `placeholder:"FILE" help:"Replace this file, whole or not at all; left out, to standard output. It may be the --file."`
}

func (e edited) write(t *terminal, keys keySet) error {
	text := append(keys.document(), '\n')
	tree, err := canon.Parse(text)
	if err == nil {
		_, err = readKeySet(tree)
	}
	if err != nil {
		return fmt.Errorf("this would leave no usable key set: %w", err)
	}
	if e.Out != "" {
		return replace(e.Out, text)
	}
	_, err = t.out.Write(text)
	return err
}

// named is a key by its label, or by the signer that holds it.
type named struct {
	Signer string `xor:"key" placeholder:"URI" help:"The key's FAIRPACT_SIGNING_KEY: it is opened and asked for its public key."`
	Pubkey string `xor:"key" placeholder:"KEY" help:"The key, es256:HEX."`
}

func (n named) label(ctx context.Context) (string, error) {
	if n.Signer == "" {
		if n.Pubkey == "" {
			return "", errors.New("give --signer or --pubkey")
		}
		return n.Pubkey, es256(n.Pubkey)
	}
	return publicKeyOf(ctx, n.Signer)
}

// publicKeyOf opens a signer and gives its label.
func publicKeyOf(ctx context.Context, uri string) (string, error) {
	signer, err := signing.Open(ctx, uri)
	if err != nil {
		return "", err
	}
	return signer.PublicKey(), nil
}

// es256 refuses what cannot sign.
func es256(label string) error {
	if _, err := signing.NewKeySet(label, nil); err != nil {
		return fmt.Errorf("%.80q: %w", label, err)
	}
	return nil
}

type keysInitCommand struct {
	named
	edited
	Retired []string `placeholder:"KEY" help:"A key that signed before this one, es256:HEX or ed25519:HEX; repeatable."`
}

func (keysInitCommand) Help() string {
	return `The file is FAIRPACT_KEY_SET_FILE of all three binaries. It holds public keys only.

Examples:

    fairpactctl keys init --signer file:///etc/fairpact/key.pem --out keys.json
    fairpactctl keys init --pubkey es256:02… --retired es256:03… --out keys.json`
}

func (c keysInitCommand) Run(ctx context.Context, t *terminal) error {
	label, err := c.label(ctx)
	if err != nil {
		return err
	}
	keys := keySet{{Label: label, State: verification.Current}}
	for _, old := range c.Retired {
		keys = append(keys, verification.Trusted{Label: old, State: verification.Retired})
	}
	return c.write(t, keys)
}

type keysAddNextCommand struct {
	named
	edited
	File string `required:"" placeholder:"FILE" help:"The key set as it is; - reads standard input."`
}

func (keysAddNextCommand) Help() string {
	return `Roll the file out to all processes before anything signs with the key: until then some would reject it.

Examples:

    fairpactctl keys add-next --file keys.json --signer gcpkms://projects/…/cryptoKeyVersions/2 --out keys.json`
}

func (c keysAddNextCommand) Run(ctx context.Context, t *terminal) error {
	keys, err := t.keySet(c.File)
	if err != nil {
		return err
	}
	label, err := c.label(ctx)
	if err != nil {
		return err
	}
	if i := keys.find(label); i >= 0 {
		return refusal{fmt.Errorf("%s is in the set already, as the %s key: a key is used once; make a new one", label, keys[i].State)}
	}
	return c.write(t, append(keys, verification.Trusted{Label: label, State: verification.Next}))
}

type keysPromoteCommand struct {
	edited
	File   string `required:"" placeholder:"FILE" help:"The key set as it is; - reads standard input."`
	Pubkey string `placeholder:"KEY" help:"Which next key, where there are several."`
}

func (keysPromoteCommand) Help() string {
	return `The key that signed until now is retired, with this moment as retired_at and still open: what is pending under it may be logged. Roll the file out together with the FAIRPACT_SIGNING_KEY of the new key, and only after keys check says that every replica publishes it.

Examples:

    fairpactctl keys promote --file keys.json --out keys.json`
}

func (c keysPromoteCommand) Run(t *terminal) error {
	keys, err := t.keySet(c.File)
	if err != nil {
		return err
	}
	next := keys.in(verification.Next)
	switch {
	case len(next) == 0:
		return refusal{errors.New("the set has no next key: publish one first, with keys add-next, and roll that out")}
	case c.Pubkey == "" && len(next) > 1:
		return refusal{fmt.Errorf("the set has %d next keys: say which with --pubkey", len(next))}
	case c.Pubkey == "":
		c.Pubkey = next[0].Label
	case next.find(c.Pubkey) < 0:
		return refusal{fmt.Errorf("%.80q is no next key of the set", c.Pubkey)}
	}
	now := time.Now().Unix()
	var made keySet
	for _, k := range keys {
		switch {
		case k.Label == c.Pubkey:
			made = append(keySet{{Label: k.Label, State: verification.Current}}, made...)
			continue
		case k.State == verification.Current:
			k.State, k.RetiredAt = verification.Retired, &now
		}
		made = append(made, k)
	}
	return c.write(t, made)
}

type keysCloseCommand struct {
	edited
	Pubkey   string `arg:"" help:"The retired key."`
	File     string `required:"" placeholder:"FILE" help:"The key set as it is; - reads standard input."`
	TreeSize *int64 `placeholder:"N" help:"The first leaf index that is not the key's any more. Left out: the size of the deployment's newest tree head."`
	BaseURL  string `env:"FAIRPACT_URL" placeholder:"URL" help:"The deployment, for its newest tree head."`
	Disown   bool   `help:"Close below the newest tree head, for a stolen key: certificates that the key signed at later leaves stop being valid, genuine ones too."`
}

func (keysCloseCommand) Help() string {
	return `Close a key when no certificate that it signed waits for the log any more (fairpact_certificates_pending_oldest_age_seconds is below the time since the promotion was rolled out). From then on, whoever holds the key can sign nothing that verifies at a later leaf or for a larger tree.

A closed key cannot be opened again or closed elsewhere.

Examples:

    fairpactctl keys close es256:02… --file keys.json --base-url https://fairpact.example --out keys.json
    fairpactctl keys close es256:02… --file keys.json --tree-size 4711 --out keys.json`
}

func (c keysCloseCommand) Run(ctx context.Context, t *terminal) error {
	keys, err := t.keySet(c.File)
	if err != nil {
		return err
	}
	i := keys.find(c.Pubkey)
	switch {
	case i < 0:
		return refusal{fmt.Errorf("%.80q is not in the set", c.Pubkey)}
	case keys[i].State != verification.Retired:
		return refusal{fmt.Errorf("%s is the %s key: only a retired key can be closed; promote another first", c.Pubkey, keys[i].State)}
	case c.TreeSize == nil && c.BaseURL == "":
		return errors.New("give --tree-size or --base-url")
	case c.TreeSize != nil && (*c.TreeSize < 0 || *c.TreeSize > canon.MaxInt):
		return fmt.Errorf("--tree-size is %d: it is 0 to 2^53-1", *c.TreeSize)
	}
	if c.BaseURL != "" {
		if err := c.against(ctx, keys); err != nil {
			return err
		}
	}
	if c.TreeSize == nil {
		return errors.New("the deployment's newest tree head has no size")
	}
	if old := keys[i].TreeSize; old != nil && *old != *c.TreeSize {
		return refusal{fmt.Errorf("%s is closed at tree size %d: another size would judge certificates anew that were judged before", c.Pubkey, *old)}
	}
	keys[i].TreeSize = c.TreeSize
	return c.write(t, keys)
}

// against holds the size to the deployment's newest head, or takes that one's.
func (c *keysCloseCommand) against(ctx context.Context, keys keySet) error {
	client, err := restclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	head, err := newestHead(ctx, client, trusted(keys))
	if err != nil {
		return err
	}
	switch {
	case c.TreeSize == nil:
		c.TreeSize = &head.size
	case *c.TreeSize > head.size:
		return refusal{fmt.Errorf("the log has %d leaves: a tree size of %d would leave room for what the key has yet to sign", head.size, *c.TreeSize)}
	case *c.TreeSize < head.size && !c.Disown:
		return refusal{fmt.Errorf("the log has %d leaves: at a tree size of %d certificates that the key may have signed since stop being valid; add --disown where the key is stolen and that is meant", head.size, *c.TreeSize)}
	}
	return nil
}
