package signing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
)

// Settings is how a deployment names the key that it signs with and the keys
// that it is verified under, the same way in every binary that signs. The tags
// are those of the command line (kong). Both are read once, at the start: a
// rotation is a restart of one process after the other.
type Settings struct {
	SigningKey string   `env:"FAIRPACT_SIGNING_KEY" help:"Deployment key that signs, as a URI: file://key.pem, dev://FILE, or a key of a KMS."`
	KeySetFile string   `env:"FAIRPACT_KEY_SET_FILE" type:"path" help:"File with the published key set, JSON: the current key, next keys and retired ones. One document for all processes; the start fails where the signing key is not its current one."`
	PublicKey  string   `env:"FAIRPACT_PUBLIC_KEY" help:"Without a key set file: the published public key, <scheme>:<hex>; the start fails where the signing key is another."`
	LegacyKeys []string `env:"FAIRPACT_LEGACY_KEYS" sep:"," help:"Without a key set file: retired public keys that still verify, <scheme>:<hex>, comma-separated."`
}

// Open gives the signer and the key set whose current key it holds, or says
// which setting to mend. ctx bounds what opening asks of a remote provider.
func (c *Settings) Open(ctx context.Context) (*Signer, *KeySet, error) {
	if c.SigningKey == "" {
		return nil, nil, errors.New("FAIRPACT_SIGNING_KEY is not set: name the key that signs, " + knownSchemes)
	}
	if c.KeySetFile != "" && (c.PublicKey != "" || len(c.LegacyKeys) > 0) {
		return nil, nil, errors.New("FAIRPACT_KEY_SET_FILE is set, and so is FAIRPACT_PUBLIC_KEY or FAIRPACT_LEGACY_KEYS: the file says it all, unset the others")
	}
	var keys *KeySet
	if c.KeySetFile != "" {
		document, err := os.ReadFile(c.KeySetFile)
		if err == nil {
			keys, err = ParseKeySet(document)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("FAIRPACT_KEY_SET_FILE: %s: %w", c.KeySetFile, err)
		}
	}
	signer, err := Open(ctx, c.SigningKey)
	if err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_SIGNING_KEY: %w", err)
	}
	if keys == nil {
		keys, err = NewKeySet(cmp.Or(c.PublicKey, signer.PublicKey()), c.LegacyKeys)
		if err != nil {
			err = fmt.Errorf("FAIRPACT_PUBLIC_KEY, FAIRPACT_LEGACY_KEYS: %w", err)
		}
	}
	if err == nil {
		err = c.fit(keys, signer)
	}
	if err != nil {
		return nil, nil, err
	}
	return signer, keys, nil
}

func (c *Settings) fit(keys *KeySet, signer *Signer) error {
	err := keys.CheckSigner(signer)
	switch {
	case err == nil:
		return nil
	case c.KeySetFile != "":
		return fmt.Errorf("FAIRPACT_SIGNING_KEY is not the current key of FAIRPACT_KEY_SET_FILE (%s): %w", c.KeySetFile, err)
	default:
		return fmt.Errorf("FAIRPACT_SIGNING_KEY is not the key of FAIRPACT_PUBLIC_KEY: %w", err)
	}
}
