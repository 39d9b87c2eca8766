package ctl

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

type receiptCommand struct {
	File        string   `arg:"" help:"Receipt file that fairpactctl deal join wrote."`
	Certificate string   `placeholder:"FILE" help:"Certificate or bundle of the deal: check that it does not name the party for an absence, or for a rejection that was not sealed."`
	Pubkey      []string `sep:"," placeholder:"KEY" help:"Key of the deployment that you know. Without it, the key is the one in the receipt file."`
	relayFlags
}

// proven is the output of fairpactctl receipt.
type proven struct {
	DealID     string         `json:"deal_id"`
	Party      int64          `json:"party"`
	Commitment string         `json:"commitment"`
	SealedAt   int64          `json:"sealed_at"`
	SealHash   string         `json:"seal_hash"`
	Round      int64          `json:"round"`
	OpensAt    int64          `json:"opens_at"`
	Key        string         `json:"signed_by"`
	Input      map[string]any `json:"input"`
	Salt       string         `json:"salt"`
}

func (c receiptCommand) Run(ctx context.Context, t *terminal) error {
	file, err := t.receipt(c.File)
	if err != nil {
		return err
	}
	chain, err := chainOf(file.Development)
	if err != nil {
		return err
	}
	p, err := file.signed(chain, c.Pubkey)
	if err != nil {
		return refusal{err}
	}
	relays, err := c.client(chain)
	if err != nil {
		return err
	}
	round, err := relays.Fetch(ctx, p.Round)
	if err != nil {
		return fmt.Errorf("the seal cannot be opened yet: %w", err)
	}
	if err := p.open(chain, file.Seal, round.Signature); err != nil {
		return refusal{fmt.Errorf("the seal does not prove a reveal: %w. The deployment may name party %d", err, p.Party)}
	}
	if c.Certificate != "" {
		document, err := t.tree(c.Certificate)
		if err != nil {
			return err
		}
		if err := p.contradicts(document); err != nil {
			return refusal{err}
		}
	}
	if len(c.Pubkey) == 0 {
		t.note("the key %s comes from the receipt file: compare it with the key of the deployment that you know, or give --pubkey", p.Key)
	}
	if chain.BeaconID == "" {
		t.note("nothing shows that the key in the file belongs to beacon chain %s: compare it with the key that you know", chain.Hash)
	}
	return t.show(p, "party %d of deal %s committed and sealed at %d, before round %d of beacon chain %s was due at %d; the seal opens to the commitment", p.Party, p.DealID, p.SealedAt, p.Round, chain.Hash, p.OpensAt)
}

func (t *terminal) receipt(path string) (file receiptFile, err error) {
	data, err := t.read(path)
	if err != nil {
		return file, err
	}
	if json.Unmarshal(data, &file) != nil || file.Seal == "" {
		return file, fmt.Errorf("%s is not a receipt file: give the file that fairpactctl deal join wrote", path)
	}
	if file.Receipt == nil {
		return file, fmt.Errorf("%s has no receipt: the deployment signed none, so the file proves nothing", path)
	}
	return file, nil
}

// signed checks everything that needs no round.
func (f receiptFile) signed(chain drand.Chain, known []string) (p proven, err error) {
	receipt, err := timelock.ParseReceipt(f.Receipt.Text)
	if err == nil {
		err = receipt.Matches(chain, f.Seal)
	}
	if err != nil {
		return p, err
	}
	if len(known) == 0 {
		if f.Pubkey == "" {
			return p, errors.New("the file names no key that signed the receipt: give the key of the deployment with --pubkey")
		}
		known = []string{f.Pubkey}
	}
	p = proven{DealID: receipt.DealID, Party: receipt.Party, Commitment: receipt.Commitment, SealHash: receipt.SealHash, SealedAt: receipt.Time, Round: receipt.Round, OpensAt: chain.RoundTime(receipt.Round)}
	for _, key := range known {
		if keys.Verify(key, []byte(f.Receipt.Text), f.Receipt.Signature) == nil {
			p.Key = key
			return p, nil
		}
	}
	return p, errors.New("no key of the deployment signed the receipt")
}

// open opens the seal with the signature of its round.
func (p *proven) open(chain drand.Chain, seal, signature string) error {
	raw, err := hex.DecodeString(signature)
	if err != nil {
		return err
	}
	key, err := timelock.NewKey(chain, p.Round, raw)
	if err != nil {
		return err
	}
	opening, _, _, err := key.Reveal(seal, p.DealID, p.Party, p.Commitment)
	p.Input, p.Salt = opening.Input, opening.Salt
	return err
}

// contradicts returns an error if the certificate says that the party was absent, committed to something
// else, or rejected although its input does not.
func (p proven) contradicts(document any) error {
	members, _ := document.(map[string]any)
	closing, _ := members["closing"].(map[string]any)
	if inner, ok := members["certificate"].(map[string]any); ok {
		members = inner
	}
	c, err := certificate.Parse(canon.Encode(members))
	switch {
	case err != nil:
		return fmt.Errorf("the certificate is malformed: %w", err)
	case c.DealID != p.DealID || p.Party >= int64(len(c.Parties)):
		return fmt.Errorf("the certificate is of deal %s, and the receipt is for deal %s", c.DealID, p.DealID)
	}
	if hashes, ok := closing["seal_hashes"].([]any); ok && (int64(len(hashes)) <= p.Party || hashes[p.Party] != p.SealHash) {
		return fmt.Errorf("the bundle is false: its closing does not show the seal %s of party %d, for which the deployment signed a receipt", p.SealHash, p.Party)
	}
	committed := c.Parties[p.Party].Commitment
	a, known := algorithm.Lookup(c.Algorithm)
	absent := slices.Contains(c.Properties, certificate.MissedCommit) || slices.Contains(c.Properties, certificate.MissedReveal)
	switch {
	case committed == nil || *committed != p.Commitment:
		return fmt.Errorf("the certificate is false: it does not show the commitment %s of party %d, for which the deployment signed a receipt", p.Commitment, p.Party)
	case !slices.Contains(c.VoidFlakers, int(p.Party)):
	case absent:
		return fmt.Errorf("the certificate is false: it names party %d for an absence, but the deployment signed a receipt for a seal that opens to the party's commitment", p.Party)
	case !known || !a.Rejects(p.Input):
		return fmt.Errorf("the certificate is false: it names party %d, but the deployment signed a receipt for a seal that opens to an input that does not reject", p.Party)
	}
	return nil
}
