package ctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/rules/attestation"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

type seatKeyCommand struct {
	Out  string `arg:"" help:"New file for the private key, as PEM (PKCS#8). Only you can read the file."`
	Type string `enum:"ed25519,es256" default:"ed25519" help:"ed25519 or es256 (ECDSA on P-256). Every browser supports es256."`
}

func (c seatKeyCommand) Run(t *terminal) error {
	label, err := signing.MakeSeatKey(c.Out, c.Type)
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
	keys      []any  // in party order, nil for a party without a declared seat key
	digest    string // computed here, so that a party signs exactly the terms that were fetched
}

func (c *call) declaration(ctx context.Context) (d terms, err error) {
	if err = c.get(ctx, "/declaration", &d.Declaration); err != nil {
		return d, err
	}
	of, err := canon.ParseObject(d.Declared)
	if err == nil {
		m := canon.MembersOf(of, "declaration.")
		d.algorithm, d.params = m.Text("algorithm", "a text"), m.Object("algorithm_params", "an object")
		d.labels, d.keys = m.Texts("party_labels", "an array of texts"), m.List("party_keys", "an array")
		err = m.Err()
	}
	if err == nil && (d.Party == nil || *d.Party < 0 || *d.Party >= len(d.labels) || len(d.keys) != len(d.labels)) {
		err = fmt.Errorf("the party is missing, or does not fit %d party_labels and %d party_keys", len(d.labels), len(d.keys))
	}
	if err != nil {
		return d, fmt.Errorf("cannot use the declaration of deal %s: %w", c.dealID, err)
	}
	d.digest = attestation.Digest(canon.Encode(of))
	return d, nil
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
	seat := attestation.Seat{DealID: d.DealID, Party: *d.Party, Commitment: commits, Declaration: d.digest}
	signature, err := key.Sign(seat.Message(*d.Origin))
	return commitment{commits, key.Label, signature}, err
}
