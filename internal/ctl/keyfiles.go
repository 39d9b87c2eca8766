package ctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/signing"
)

// keyFilesCommand copies private keys in an init container. A group can read the files in a
// Secret volume, but signing.Open accepts a file:// key only if nobody except the owner can
// read it. The images have no shell that could copy the files.
type keyFilesCommand struct {
	From string `arg:"" help:"Folder of a Secret volume."`
	To   string `arg:"" help:"Folder in an in-memory volume, for the copies. Only the owner of a copy can read the copy."`
}

func (c keyFilesCommand) Run() error {
	entries, err := os.ReadDir(c.From)
	if err != nil {
		return err
	}
	copied := 0
	for _, file := range entries {
		if strings.HasPrefix(file.Name(), "..") { // the kubelet's own links and folders
			continue
		}
		from := filepath.Join(c.From, file.Name())
		content, err := os.ReadFile(from)
		if err == nil && len(content) == 0 {
			err = errors.New(from + " is empty: put the private key as PEM into the Secret")
		}
		if err == nil {
			err = files.Replace(filepath.Join(c.To, file.Name()), content, 0o600)
		}
		if err != nil {
			return err
		}
		copied++
	}
	if copied == 0 {
		return errors.New(c.From + " holds no file: put the private key as PEM into the Secret")
	}
	return nil
}

type logKeyCommand struct {
	Origin string `required:"" placeholder:"NAME" env:"FAIRPACT_LOG_ORIGIN" help:"Name of the log, as in the FAIRPACT_LOG_ORIGIN of log-server: the public URL without scheme, such as fairpact.example.com."`
	Out    string `placeholder:"FILE" help:"Make a key, and write the key to this new file as PEM (PKCS#8)."`
	Of     string `placeholder:"URI" help:"URI of an existing key, as in FAIRPACT_LOG_KEY. The command then makes no key, and shows the verifier key of this key."`
}

func (c logKeyCommand) Run(ctx context.Context, t *terminal) error {
	if (c.Out == "") == (c.Of == "") {
		return errors.New("--out and --of are both given or both missing: give --out FILE to make a key, or --of URI to show one")
	}
	if err := checkpoint.CheckOrigin(c.Origin); err != nil {
		return err
	}
	uri := c.Of
	if c.Out != "" {
		if _, err := signing.MakeKeyFile(c.Out, "ed25519"); err != nil {
			return err
		}
		uri = "file://" + c.Out
	}
	logKey, err := signing.OpenLogKey(ctx, uri)
	if err != nil {
		return err
	}
	defer func() { _ = logKey.Close() }()
	key, err := checkpoint.Ed25519Key(c.Origin, logKey.Public())
	if err != nil {
		return err
	}
	return t.show(map[string]string{"vkey": key.String()}, "%s", key)
}
