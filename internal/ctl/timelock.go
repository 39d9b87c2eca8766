package ctl

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

type joinCommand struct {
	Link  string `arg:"" help:"The link of your invitation, https://…/d/d_…#it_…. Other users of this machine can see arguments; '-' reads the link from standard input."`
	Input string `arg:"" help:"File with your input, a JSON object."`
	Out   string `required:"" placeholder:"FILE" help:"New file for the input and a new salt. Keep it until the deal has ended."`
	commitFlags
}

func (c joinCommand) Run(ctx context.Context, t *terminal) error {
	call, err := t.invited(c.Link)
	if err != nil {
		return err
	}
	data, err := t.read(c.Input)
	if err != nil {
		return err
	}
	input, err := canon.ParseInput(data)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Input, err)
	}
	mine := sealed{input, canon.Encode(input), newSalt()}
	text, err := json.Marshal(sealedFile{mine.canonical, mine.salt})
	if err != nil {
		return err
	}
	c.Timelock = true
	if c.Receipt == "" {
		c.Receipt = c.Out + ".receipt"
	}
	return call.commit(ctx, t, mine, c.commitFlags, func() error {
		return createSecretFile(c.Out, func() ([]byte, error) { return append(text, '\n'), nil })
	})
}

// invited returns a party's call to its deal. The link '-' is read from standard input.
func (t *terminal) invited(link string) (*call, error) {
	if link == "-" {
		raw, err := t.read("-")
		if err != nil {
			return nil, err
		}
		link = strings.TrimSpace(string(raw))
	}
	s, err := invitedBy(link)
	if err != nil {
		return nil, err
	}
	return s.call(s.Invites[0].Token)
}

// invitedBy returns what the link of an invitation says. An error does not quote the link, which holds a token.
func invitedBy(link string) (state, error) {
	u, err := url.Parse(link)
	if err != nil {
		return state{}, errors.New("the link is not a URL: copy it from the invitation")
	}
	id, ok := strings.CutPrefix(u.Path, "/d/")
	if !ok || u.Host == "" || id == "" || strings.Contains(id, "/") || !strings.HasPrefix(u.Fragment, "it_") {
		return state{}, errors.New("the link does not have the form https://HOST/d/DEAL#TOKEN: copy it from the invitation")
	}
	return state{BaseURL: u.Scheme + "://" + u.Host, DealID: id, Invites: []wire.Invite{{Token: u.Fragment}}}, nil
}

// seal is a party's opening, sealed for the beacon round of the deal.
type seal struct {
	text  string
	chain drand.Chain
	round int64

	development *wire.BeaconChain // nil: the chain is drand quicknet
}

// seal derives the round from the declaration, and takes the key of drand quicknet from this program.
func (c *call) seal(ctx context.Context, of terms, mine sealed, development bool) (s seal, err error) {
	if s.chain, s.development, err = c.chain(ctx, of, development); err != nil {
		return s, err
	}
	if err := timelock.CheckDeadlines(s.chain, of.commitBy, of.revealBy); err != nil {
		return s, refusal{fmt.Errorf("this deal takes no seals, so leave out --timelock and reveal by hand: %w", err)}
	}
	s.round = timelock.RoundOf(s.chain, of.commitBy)
	var random timelock.Random
	_, _ = rand.Read(random[:]) // never fails
	opening := timelock.Opening{DealID: c.dealID, Party: int64(*of.Party), Input: mine.members, Salt: mine.salt}
	s.text = timelock.Seal(s.chain, s.round, opening.Plaintext(), random)
	return s, nil
}

// receiptFile proves that the deployment accepted a seal in time. The seal opens for anyone once its round
// is published.
type receiptFile struct {
	Seal    string         `json:"seal"`
	Receipt escrow.Receipt `json:"receipt"`
	Pubkey  string         `json:"pubkey"`
	// Development is set if the seal is not for drand quicknet.
	Development *wire.BeaconChain `json:"development_beacon,omitempty"`
}

// keepReceipt checks the receipt of an accepted seal and writes the file.
func (c *call) keepReceipt(ctx context.Context, path string, s seal, of terms, commits string, given *escrow.Receipt) error {
	if given == nil {
		return errors.New("the deployment accepted the seal but signed no receipt, because its signing key was out of reach; your commitment and seal stand")
	}
	var status wire.Status
	if err := c.client.GetInto(ctx, "/v1/status", "", &status); err != nil {
		return err
	}
	receipt, err := timelock.ParseReceipt(given.Text)
	if err == nil {
		err = receipt.Matches(s.chain, s.text)
	}
	if err == nil && (receipt.DealID != c.dealID || receipt.Party != int64(*of.Party) || receipt.Commitment != commits || receipt.Round != s.round) {
		err = errors.New("it is for another deal, party, commitment or round")
	}
	if err == nil {
		err = keys.Verify(status.PublicKey, []byte(given.Text), given.Signature)
	}
	if err != nil {
		return refusal{fmt.Errorf("the deployment's receipt proves nothing: %w. Keep the sealed file and reveal by hand", err)}
	}
	text, err := json.Marshal(receiptFile{s.text, *given, status.PublicKey, s.development})
	if err != nil {
		return err
	}
	return createSecretFile(path, func() ([]byte, error) { return append(text, '\n'), nil })
}
