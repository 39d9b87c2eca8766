package ctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/attestation"
	"github.com/fairpact/fairpact/internal/rules/canon"
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
	if t.json {
		return t.value(map[string]string{"party_key": label, "key_file": c.Out})
	}
	t.line("%s", label)
	return nil
}

func seatKeys(given []string) (map[int]string, error) {
	keys := map[int]string{}
	for _, one := range given {
		index, key, _ := strings.Cut(one, "=")
		party, err := strconv.Atoi(index)
		if err == nil && party < 0 {
			err = fmt.Errorf("the party is %d: give 0 or more", party)
		}
		if err == nil {
			err = signing.CheckLabel(key)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not N=KEY, a party and its key: %w", one, err)
		}
		if _, twice := keys[party]; twice {
			return nil, fmt.Errorf("party %d has two keys, %s and %s: give one", party, keys[party], key)
		}
		keys[party] = key
	}
	return keys, nil
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

type declared struct {
	dealID    string
	origin    string
	party     int
	algorithm string
	params    map[string]any
	labels    []string
	key       any // the key declared for the party, or nil
	digest    string
}

// declaration fetches the deal's declaration. It computes the digest itself, so that the
// party signs exactly the declaration that was fetched.
func (c *call) declaration(ctx context.Context) (d declared, err error) {
	body, err := c.client.Get(ctx, c.path("/declaration"), c.token)
	if err != nil {
		return d, err
	}
	answer, err := canon.ParseObject(body)
	if err != nil {
		return d, fmt.Errorf("cannot parse the declaration of deal %s: %w", c.dealID, err)
	}
	of, _ := answer["declaration"].(map[string]any)
	party, isParty := answer["party"].(int64)
	origin, signs := answer["origin"].(string)
	labels, _ := of["party_labels"].([]any)
	keys, _ := of["party_keys"].([]any)
	switch {
	case !signs:
		return d, errors.New("this deployment does not accept seat keys: leave out --seat-key")
	case !isParty || party < 0 || party >= int64(len(labels)) || len(keys) != len(labels):
		return d, fmt.Errorf("the declaration of deal %s has party %v, %d party_labels and %d party_keys, which do not fit together", c.dealID, answer["party"], len(labels), len(keys))
	}
	d = declared{dealID: c.dealID, origin: origin, party: int(party), key: keys[party], digest: attestation.Digest(canon.Encode(of))}
	d.algorithm, _ = of["algorithm"].(string)
	d.params, _ = of["algorithm_params"].(map[string]any)
	for _, label := range labels {
		text, _ := label.(string)
		d.labels = append(d.labels, text)
	}
	return d, nil
}

// sign returns the body of a commit request, signed with the seat key in the file at path.
func (d declared) sign(path, commitment string) (map[string]string, error) {
	key, err := signing.ReadSeatKey(path)
	if err != nil {
		return nil, err
	}
	if d.key != nil && d.key != key.Label {
		return nil, refusal{fmt.Errorf("for party %d the deal declares the key %v, but %s holds %s: give the file of the declared key", d.party, d.key, path, key.Label)}
	}
	seat := attestation.Seat{DealID: d.dealID, Party: d.party, Commitment: commitment, Declaration: d.digest}
	signature, err := key.Sign(seat.Message(d.origin))
	return map[string]string{"commitment": commitment, "party_key": key.Label, "party_signature": signature}, err
}
