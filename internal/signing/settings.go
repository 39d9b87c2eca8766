package signing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// Settings names the keys of a deployment, the same way in every binary that
// signs. The tags are those of the command line (kong). All is read once, at the
// start.
type Settings struct {
	KeySetFile string   `env:"FAIRPACT_KEY_SET_FILE" type:"path" help:"File with the key set, JSON: where each key signs and from when, and the retired ones. One document for all processes; fairpactctl keys writes it."`
	SigningKey string   `env:"FAIRPACT_SIGNING_KEY" help:"Without a key set file: the one key that signs, as a URI: file://key.pem, dev://FILE, or a key of a KMS."`
	PublicKey  string   `env:"FAIRPACT_PUBLIC_KEY" help:"Without a key set file: the published public key, <scheme>:<hex>; the start fails where the signing key is another."`
	LegacyKeys []string `env:"FAIRPACT_LEGACY_KEYS" sep:"," help:"Without a key set file: retired public keys that still verify, <scheme>:<hex>, comma-separated."`
}

// Open returns the signer and the keys, or says which setting to correct. ctx
// bounds what opening asks of a remote provider.
func (c *Settings) Open(ctx context.Context, logger *slog.Logger) (*Ring, *KeySet, error) {
	if c.KeySetFile == "" {
		return c.openOne(ctx)
	}
	if c.SigningKey != "" || c.PublicKey != "" || len(c.LegacyKeys) > 0 {
		return nil, nil, errors.New("FAIRPACT_KEY_SET_FILE is set, and so is FAIRPACT_SIGNING_KEY, FAIRPACT_PUBLIC_KEY or FAIRPACT_LEGACY_KEYS: the file names all keys, unset the others")
	}
	var keys *KeySet
	var ring *Ring
	document, err := os.ReadFile(c.KeySetFile)
	if err == nil {
		keys, err = ParseKeySet(document)
	}
	if err == nil {
		ring, err = OpenRing(ctx, keys, logger)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_KEY_SET_FILE: %s: %w", c.KeySetFile, err)
	}
	return ring, keys, nil
}

func (c *Settings) openOne(ctx context.Context) (*Ring, *KeySet, error) {
	if c.SigningKey == "" {
		return nil, nil, errors.New("neither FAIRPACT_KEY_SET_FILE nor FAIRPACT_SIGNING_KEY is set: name the key that signs, " + knownURIs())
	}
	signer, err := Open(ctx, c.SigningKey)
	if err != nil {
		return nil, nil, fmt.Errorf("FAIRPACT_SIGNING_KEY: %w", err)
	}
	keys, err := NewKeySet(cmp.Or(c.PublicKey, signer.PublicKey()), c.LegacyKeys)
	if err != nil {
		err = fmt.Errorf("FAIRPACT_PUBLIC_KEY, FAIRPACT_LEGACY_KEYS: %w", err)
	} else if keys.Current() != signer.PublicKey() {
		err = fmt.Errorf("FAIRPACT_SIGNING_KEY is not the key of FAIRPACT_PUBLIC_KEY: the signer (%s) holds %s and the published key is %s; correct one of them, or rotate with fairpactctl keys", signer.Custody(), signer.PublicKey(), c.PublicKey)
	}
	if err != nil {
		_ = signer.Close()
		return nil, nil, err
	}
	return ringOf(signer, keys), keys, nil
}
