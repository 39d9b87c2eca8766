package ctl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

type deployment struct {
	BaseURL string `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
}

type apiKeyCommand struct {
	deployment
	Out string `placeholder:"FILE" help:"Write the key to this new file instead of printing it."`
}

func (k apiKeyCommand) Run(ctx context.Context, t *terminal) error {
	client, err := httpclient.New(k.BaseURL)
	if err != nil {
		return err
	}
	if k.Out == "" {
		key, err := newKey(ctx, client)
		if err != nil {
			return err
		}
		return t.show(wire.NewKey{APIKey: key}, "%s", key)
	}
	err = createSecretFile(k.Out, func() ([]byte, error) {
		key, err := newKey(ctx, client)
		return []byte(key + "\n"), err
	})
	if err != nil {
		return err
	}
	return t.show(map[string]string{"api_key_file": k.Out}, "%s", k.Out)
}

func newKey(ctx context.Context, client *httpclient.Client) (string, error) {
	var made wire.NewKey
	err := client.PostInto(ctx, "/v1/keys", "", nil, &made)
	return made.APIKey, err
}

type seatKeyCommand struct {
	Out  string `arg:"" help:"New file for the private key, as PEM (PKCS#8). Only you can read the file."`
	Type string `enum:"ed25519,es256" default:"ed25519" help:"ed25519 or es256 (ECDSA on P-256). Every browser supports es256."`
}

func (c seatKeyCommand) Run(t *terminal) error {
	label, err := signing.MakeKeyFile(c.Out, c.Type)
	if err != nil {
		return err
	}
	return t.show(struct {
		Label string `json:"party_key"`
		File  string `json:"key_file"`
	}{label, c.Out}, "%s", label)
}

func seatKeys(given []string) (map[int]string, error) {
	named := map[int]string{}
	for _, one := range given {
		index, key, _ := strings.Cut(one, "=")
		party, err := strconv.Atoi(index)
		if err == nil && party < 0 {
			err = fmt.Errorf("the party is %d: give 0 or more", party)
		}
		if err == nil {
			err = keys.Check(key)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not N=KEY, a party and its key: %w", one, err)
		}
		if _, twice := named[party]; twice {
			return nil, fmt.Errorf("party %d has two keys, %s and %s: give one", party, named[party], key)
		}
		named[party] = key
	}
	return named, nil
}

// partyKeys returns the member party_keys of a creation request from flags of the form
// N=KEY, or nil if there are no such flags.
func partyKeys(given []string, parties int) ([]*string, error) {
	named, err := seatKeys(given)
	if err != nil || len(named) == 0 {
		return nil, err
	}
	keys := make([]*string, parties)
	for party, key := range named {
		if party >= parties {
			return nil, fmt.Errorf("--seat-key names party %d: give one of the parties 0 to %d", party, parties-1)
		}
		keys[party] = &key
	}
	return keys, nil
}

// terms are what a deal's declaration says.
type terms struct {
	wire.Declaration
	algorithm string
	params    map[string]any
	labels    []string
	commitBy  int64
	revealBy  int64
	chain     any    // hash of the declared beacon chain, or nil
	keys      []any  // in party order, nil for a party without a declared seat key
	digest    string // computed here, so that a party signs exactly the terms that were fetched
}

func (c *call) declaration(ctx context.Context) (d terms, err error) {
	if err = c.get(ctx, "/declaration", &d.Declaration); err != nil {
		return d, err
	}
	if d.DealID != c.dealID {
		return d, refusal{fmt.Errorf("the deployment answered with the declaration of deal %.100q instead of %s, so nothing was signed or sent: check the link, and ask the initiator", d.DealID, c.dealID)}
	}
	of, err := canon.ParseObject(d.Declared)
	if err == nil {
		m := canon.MembersOf(of, "declaration.")
		d.algorithm, d.params = m.Text("algorithm", "a text"), m.Object("algorithm_params", "an object")
		d.labels, d.keys = m.Texts("party_labels", "an array of texts"), m.List("party_keys", "an array")
		d.commitBy, d.revealBy, d.chain = m.Integer("commit_deadline", "an integer"), m.Integer("reveal_deadline", "an integer"), of["beacon_chain"]
		err = m.Err()
	}
	if err == nil && (d.Party == nil || *d.Party < 0 || *d.Party >= len(d.labels) || len(d.keys) != len(d.labels)) {
		err = fmt.Errorf("the party is missing, or does not fit %d party_labels and %d party_keys", len(d.labels), len(d.keys))
	}
	if err != nil {
		return d, fmt.Errorf("cannot use the declaration of deal %s: %w", c.dealID, err)
	}
	d.digest = certificate.DeclarationDigest(canon.Encode(of))
	return d, nil
}

// check returns a refusal if the reveal of this input would be refused. A newer service may have an algorithm
// that is unknown here; it checks the input at the reveal.
func (d terms) check(input map[string]any) error {
	a, known := algorithm.Lookup(d.algorithm)
	if !known {
		return nil
	}
	if err := a.CheckInput(d.labels, d.params, input, a.InputLimit(d.params)); err != nil {
		return refusal{fmt.Errorf("nothing was sent, because the reveal of this input would be refused: %w", err)}
	}
	return nil
}

func (d terms) sign(path, commits string) (c commitment, err error) {
	if d.Origin == nil {
		return c, errors.New("this deployment does not accept seat keys: leave out --seat-key")
	}
	key, err := signing.ReadSeatKey(path)
	if err != nil {
		return c, err
	}
	if own := d.keys[*d.Party]; own != nil && own != key.Label {
		return c, refusal{fmt.Errorf("for party %d the deal declares the key %v, but %s holds %s: give the file of the declared key", *d.Party, own, path, key.Label)}
	}
	seat := certificate.Seat{DealID: d.DealID, Party: *d.Party, Commitment: commits, Declaration: d.digest}
	signature, err := key.Sign(seat.Message(*d.Origin))
	return commitment{Commitment: commits, Key: key.Label, Signature: signature}, err
}

type sealCommand struct {
	Input string  `arg:"" help:"File with the input, a JSON object; '-' reads standard input."`
	Salt  *string `help:"The salt, as text. Default: 16 random bytes as 32 hex digits."`
	Out   string  `placeholder:"FILE" help:"New file for the input and the salt. fairpactctl deal commit and fairpactctl deal reveal read this sealed file."`

	Timelock          string `placeholder:"LINK" help:"Also seal input and salt for the beacon round of the deal of this invitation; '-' reads the link from standard input. Nothing is committed."`
	DevelopmentBeacon bool   `help:"With --timelock: accept a beacon chain other than drand quicknet. Its operator may be able to open the seal at any time."`
}

// sealedFile has a party's input and salt. The body of a reveal request is the same.
type sealedFile struct {
	Input json.RawMessage `json:"input"`
	Salt  string          `json:"salt"`
}

func (c sealCommand) Run(ctx context.Context, t *terminal) error {
	data, err := t.read(c.Input)
	if err != nil {
		return err
	}
	input, err := canon.ParseInput(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Input, err)
	}
	salt := newSalt()
	if c.Salt != nil {
		salt = *c.Salt
	}
	if len(salt) > canon.MaxSalt {
		return fmt.Errorf("the salt has %d bytes: give at most %d", len(salt), canon.MaxSalt)
	}
	canonical := canon.Encode(input)
	text := ""
	if c.Timelock != "" {
		call, err := t.invited(c.Timelock)
		if err != nil {
			return err
		}
		of, err := call.declaration(ctx)
		if err != nil {
			return err
		}
		if err := of.check(input); err != nil {
			return err
		}
		made, err := call.seal(ctx, of, sealed{input, canonical, salt}, c.DevelopmentBeacon)
		if err != nil {
			return err
		}
		text = made.text
	}
	if c.Out != "" {
		text, err := json.Marshal(sealedFile{canonical, salt})
		if err != nil {
			return err
		}
		if err := createSecretFile(c.Out, func() ([]byte, error) { return append(text, '\n'), nil }); err != nil {
			return err
		}
	}
	commitment := canon.Commitment(canonical, []byte(salt))
	if t.json {
		out := map[string]string{"commitment": commitment, "salt": salt}
		if text != "" {
			out["seal"] = text
		}
		return t.value(out)
	}
	t.line("commitment %s", commitment)
	t.line("salt       %s", salt)
	if text != "" {
		t.line("%s", strings.TrimSpace(text))
	}
	if salt == "" {
		t.note("no salt: whoever sees this commitment can guess the input and check the guess")
	}
	return nil
}

func newSalt() string { return randomHex(16) }

func randomHex(bytes int) string {
	raw := make([]byte, bytes)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// sealed is the parsed content of a sealed file.
type sealed struct {
	members   map[string]any
	canonical []byte // RFC 8785
	salt      string
}

func (t *terminal) sealed(path string) (s sealed, err error) {
	file, err := t.object(path)
	if err != nil {
		return s, err
	}
	input, ok := file["input"].(map[string]any)
	salt, text := file["salt"].(string)
	unknown := canon.MembersOf(file, "").Unknown("input", "salt", "deal_id", "party", "commitment", "seat_key") // the page of a deal saves all of these
	if !ok || !text || len(unknown) > 0 {
		return s, fmt.Errorf("%s is not a sealed file of the form {\"input\": {…}, \"salt\": \"…\"}: make one with fairpactctl seal INPUT --out FILE", path)
	}
	return sealed{input, canon.Encode(input), salt}, nil
}
