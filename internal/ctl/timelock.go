package ctl

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

type joinCommand struct {
	Link  string `arg:"" help:"The link of your invitation, https://…/d/d_…#it_…. Other users of this machine can see arguments; '-' reads the link from standard input."`
	Input string `arg:"" help:"File with your input, a JSON object."`
	Out   string `placeholder:"FILE" help:"New file for the input and a new salt. Keep it until the deal has ended. Default: fairpact-DEAL-PARTY.json in this folder."`
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
	of, err := call.declaration(ctx)
	if err != nil {
		return err
	}
	mine := sealed{input, canon.Encode(input), newSalt()}
	text, err := json.Marshal(sealedFile{mine.canonical, mine.salt})
	if err != nil {
		return err
	}
	c.Timelock = true
	c.Out = cmp.Or(c.Out, call.file(of))
	c.Receipt = cmp.Or(c.Receipt, c.Out+".receipt")
	return call.commit(ctx, t, of, mine, c.commitFlags, func(store func() error) error {
		err := createSecretFile(c.Out, func() ([]byte, error) { return append(text, '\n'), store() })
		if err == nil {
			t.note("your input and salt are in %s", c.Out)
		}
		return err
	})
}

// file returns the default name of the party's file for its input and salt.
func (c *call) file(of terms) string { return fmt.Sprintf("fairpact-%s-%d.json", c.dealID, *of.Party) }

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
	// The declaration is the deployment's word: an old deadline would let it open the seal at once. The round is later than
	// the deadline.
	if now := time.Now().Unix(); of.commitBy <= now {
		return s, refusal{fmt.Errorf("the deployment says that the commit_deadline is %s, but by the clock of this machine it is %s, so the seal could be opened at once, and nothing was sent: if the clock is right, ask the initiator for the deadline", utc(of.commitBy), utc(now))}
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
	Seal    string          `json:"seal"`
	Receipt *escrow.Receipt `json:"receipt"`          // nil: the deployment has signed none
	Pubkey  string          `json:"pubkey,omitempty"` // the key that signed the receipt; "" if the check of the receipt failed
	// Development is set if the seal is not for drand quicknet.
	Development *wire.BeaconChain `json:"development_beacon,omitempty"`
}

func (f receiptFile) text() ([]byte, error) {
	text, err := json.Marshal(f)
	return append(text, '\n'), err
}

func (f receiptFile) replace(path string) error {
	text, err := f.text()
	if err != nil {
		return err
	}
	return files.Replace(path, text, 0o600)
}

// mostSkew is how far the clocks of the deployment and of this machine may differ.
const mostSkew = 5 * time.Minute

// receiptKey checks the receipt of an accepted seal and returns the key that signed it. The deployment may
// have rotated its key since, so every key that it publishes counts.
func (c *call) receiptKey(ctx context.Context, s seal, of terms, commits string, given escrow.Receipt) (string, error) {
	receipt, err := timelock.ParseReceipt(given.Text)
	if err == nil {
		err = receipt.Matches(s.chain, s.text)
	}
	if err == nil && (receipt.DealID != c.dealID || receipt.Party != int64(*of.Party) || receipt.Commitment != commits || receipt.Round != s.round) {
		err = errors.New("it is for another deal, party, commitment or round")
	}
	if now := time.Now(); err == nil && now.Sub(time.Unix(receipt.Time, 0)).Abs() > mostSkew {
		err = fmt.Errorf("its time is %s, but by the clock of this machine it is %s", utc(receipt.Time), utc(now.Unix()))
	}
	if err != nil {
		return "", err
	}
	published, err := fetchList(ctx, c.client, "/v1/pubkeys")
	if err != nil {
		return "", fmt.Errorf("its signature was not checked: %w", err)
	}
	signer, err := published.SignerOf([]byte(given.Text), given.Signature)
	if err != nil {
		return "", fmt.Errorf("no key of GET /v1/pubkeys signed it: %w", err)
	}
	return signer.Label, nil
}
