package ctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

type signingKeysCommands struct {
	Check  signingKeysCheckCommand  `cmd:"" help:"Check that processes, log and certificates agree with the key set, and show the next step of a rotation."`
	Init   signingKeysInitCommand   `cmd:"" help:"Write a key set with one signing key."`
	Rotate signingKeysRotateCommand `cmd:"" help:"Write a key set in which another key signs from a later time on or, for a stolen key, at once."`
	Close  signingKeysCloseCommand  `cmd:"" help:"Close a retired key at a tree size, so that signatures of this key at later leaves become invalid."`
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

func instant(unix *int64) string {
	if unix == nil {
		return "-"
	}
	return time.Unix(*unix, 0).UTC().Format(time.RFC3339)
}

type keySetOutput struct {
	Out string `placeholder:"FILE" help:"File for the new key set; may be the file that the command reads. Default: standard output."`
}

func (e keySetOutput) write(t *terminal, set *keys.Set, err error) error {
	if err != nil {
		return refusal{err}
	}
	text := append(set.Document(), '\n')
	if e.Out != "" {
		return files.Replace(e.Out, text, 0o644) // a key set holds no secret
	}
	_, err = t.out.Write(text)
	return err
}

func labelOf(ctx context.Context, uri, label string) (string, error) {
	if label == "" {
		return signing.PublicKeyOf(ctx, uri)
	}
	if _, err := (keys.Key{Label: label}).ES256(); err != nil {
		return "", fmt.Errorf("--pubkey %.80q is not an es256 public key: %w", label, err)
	}
	return label, nil
}

const pubkeyHelp = "The key's label, es256:HEX. Default: fairpactctl reads the public key from the KMS, HSM or file of the key, and needs the permission to do so."

type signingKeysInitCommand struct {
	keySetOutput
	Signer  string   `required:"" placeholder:"URI" help:"URI of the key: file://PATH, or a key in a KMS or HSM."`
	Pubkey  string   `placeholder:"KEY" help:"${pubkey}"`
	Retired []string `placeholder:"KEY" help:"A key that signed before the key of --signer, es256:HEX or ed25519:HEX; repeatable."`
}

func (c signingKeysInitCommand) Run(ctx context.Context, t *terminal) error {
	label, err := labelOf(ctx, c.Signer, c.Pubkey)
	if err != nil {
		return err
	}
	set, err := keys.OneSigner(label, c.Signer, c.Retired, int64(signing.Margin()/time.Second))
	return c.write(t, set, err)
}

type signingKeysRotateCommand struct {
	keySetOutput
	File     string        `required:"" placeholder:"FILE" help:"File with the present key set; '-' reads standard input."`
	To       string        `required:"" placeholder:"URI" help:"URI of the new key, such as gcpkms://… or file://PATH."`
	Pubkey   string        `placeholder:"KEY" help:"${pubkey}"`
	In       time.Duration `default:"1h" help:"Time from now until the new key signs. Finish the rollout of the file some minutes earlier."`
	Now      bool          `help:"For a stolen or lost key: the new key signs at once, and the old key is closed."`
	BaseURL  string        `env:"FAIRPACT_URL" placeholder:"URL" help:"With --now: URL of the deployment, from which the command fetches the newest tree head."`
	TreeSize *int64        `placeholder:"N" help:"With --now: the tree size at which to close the old key."`
}

func (c signingKeysRotateCommand) Run(ctx context.Context, t *terminal) error {
	set, err := t.keySet(ctx, c.File)
	if err != nil {
		return err
	}
	label, err := labelOf(ctx, c.To, c.Pubkey)
	if err != nil {
		return err
	}
	now := time.Now()
	if !c.Now {
		from := now.Add(c.In)
		set, err = set.Rotate(label, c.To, from.Unix(), now.Unix())
		if err = c.write(t, set, err); err == nil && c.Out != "" && !t.json {
			t.line("%s signs from %s on: roll %s out to all processes before %s", label,
				from.UTC().Format(time.RFC3339), c.Out, from.Add(-signing.Margin()).UTC().Format(time.RFC3339))
		}
		return err
	}
	if c.TreeSize == nil {
		if c.BaseURL == "" {
			return errors.New("--now needs the tree size at which to close the old key: give --tree-size N, or --base-url URL for the size of the newest tree head")
		}
		head, err := newestHeadOf(ctx, c.BaseURL, set)
		if err != nil {
			return err
		}
		c.TreeSize = &head.size
	}
	if err := checkTreeSize(c.TreeSize); err != nil {
		return err
	}
	set, err = set.RotateNow(label, c.To, *c.TreeSize, now.Unix())
	return c.write(t, set, err)
}

func checkTreeSize(size *int64) error {
	if size != nil && (*size < 0 || *size > canon.MaxInt) {
		return fmt.Errorf("--tree-size is %d: give 0 to 2^53-1", *size)
	}
	return nil
}

func newestHeadOf(ctx context.Context, baseURL string, set *keys.Set) (signedHead, error) {
	client, err := httpclient.New(baseURL)
	if err != nil {
		return signedHead{}, err
	}
	return newestHead(ctx, client, set.At(time.Now().Unix()))
}

type signingKeysCloseCommand struct {
	keySetOutput
	databases
	Pubkey   string `arg:"" help:"The retired key, es256:HEX or ed25519:HEX."`
	File     string `required:"" placeholder:"FILE" help:"File with the present key set, which every process must have; '-' reads standard input."`
	BaseURL  string `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"URL of the deployment, from which the command fetches the newest tree head."`
	TreeSize *int64 `placeholder:"N" help:"The first leaf index at which the key's signatures are invalid. Default: the size of the newest tree head."`
	Disown   bool   `help:"For a stolen key: close the key even if genuine certificates or tree heads of this key become invalid."`
}

func (c signingKeysCloseCommand) Run(ctx context.Context, t *terminal) error {
	set, err := t.keySet(ctx, c.File)
	if err != nil {
		return err
	}
	if err := checkTreeSize(c.TreeSize); err != nil {
		return err
	}
	head, err := newestHeadOf(ctx, c.BaseURL, set)
	if err != nil {
		return err
	}
	if c.TreeSize == nil {
		c.TreeSize = &head.size
	}
	if *c.TreeSize > head.size {
		return refusal{fmt.Errorf("--tree-size %d is above the size of the log, so the key could still sign leaves: give at most %d, or leave --tree-size out", *c.TreeSize, head.size)}
	}
	closed, err := set.Close(c.Pubkey, *c.TreeSize, c.Disown, time.Now().Unix())
	if err != nil {
		return refusal{err}
	}
	processes, err := c.processes(ctx)
	if check := haveKeySet(processes, err, set.Digest()); !check.OK {
		return refusal{fmt.Errorf("the key is not closed, because a process without the current key set may still sign with it (%s): roll the key set out to all processes, then run the command again", check.Detail)}
	}
	pending, err := pendingUnder(ctx, c.DatabaseURL, c.Pubkey, set)
	if err != nil {
		return err
	}
	if pending > 0 {
		return refusal{fmt.Errorf("the key is not closed, because %d certificates of the key wait for the log: run the command again when they are logged", pending)}
	}
	if err := c.beyond(ctx, closed); err != nil {
		return refusal{fmt.Errorf("the key is not closed, because the new key set does not pass a check (%w): leave --tree-size out. Only if the key is stolen: add --disown, and accept that certificates and tree heads of the key become invalid", err)}
	}
	return c.write(t, closed, nil)
}
