package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

type dealCommands struct {
	Create      createCommand      `cmd:"" help:"Create a deal and write its tokens to a state file."`
	Raffle      raffleCommand      `cmd:"" help:"Draw from a list of names in public: act for every name, so that the beacon alone decides."`
	Invite      inviteCommand      `cmd:"" help:"Write a state file or an invitation for one party."`
	Join        joinCommand        `cmd:"" help:"Accept an invitation: check and commit an input, sealed so that it opens by itself."`
	Commit      commitCommand      `cmd:"" help:"Send the commitment of a sealed file."`
	Reveal      revealCommand      `cmd:"" help:"Reveal the input and salt of a sealed file."`
	Status      statusCommand      `cmd:"" help:"Show the deal."`
	Watch       watchCommand       `cmd:"" help:"Follow the deal until it has ended and its certificate is issued."`
	Draw        drawCommand        `cmd:"" help:"Make the draw of a random.v1 deal, once all parties have revealed and the beacon round is published."`
	Certificate certificateCommand `cmd:"" help:"Fetch the bundle: the certificate with all that verify needs offline."`
	Seals       sealsCommand       `cmd:"" help:"Fetch all seals of a deal of mode open, with which settle computes the result without the service."`
	Disclose    discloseCommand    `cmd:"" help:"Consent to show your input to the other parties, so that all can check the result."`
	Cancel      cancelCommand      `cmd:"" help:"Cancel the deal as the initiator, if no other party has committed."`
}

// state is the content of a state file. It holds tokens, so its mode is 0600.
type state struct {
	BaseURL string        `json:"base_url"`
	DealID  string        `json:"deal_id"`
	APIKey  string        `json:"api_key,omitempty"`
	Invites []wire.Invite `json:"invite_tokens"`
	Seed    string        `json:"seed,omitempty"` // of a raffle
}

func (s state) file() ([]byte, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

func (s state) token(party *int) (string, error) {
	switch {
	case party != nil:
		i, err := s.invite(*party)
		return i.Token, err
	case len(s.Invites) == 0:
		return "", errors.New("no invite token: give --state, --token-file or FAIRPACT_TOKEN")
	case len(s.Invites) > 1:
		return "", fmt.Errorf("the state file holds %d invite tokens: choose one with --party", len(s.Invites))
	}
	return s.Invites[0].Token, nil
}

func (s state) invite(party int) (wire.Invite, error) {
	for _, i := range s.Invites {
		if i.Party == party {
			return i, nil
		}
	}
	return wire.Invite{}, fmt.Errorf("the state file has no invite token of party %d: correct --party, or give that party's state file", party)
}

type dealFlags struct {
	State   string `env:"FAIRPACT_STATE" placeholder:"FILE" help:"State file that deal create or deal invite wrote: the deployment's URL, the deal_id and the tokens."`
	BaseURL string `env:"FAIRPACT_URL" placeholder:"URL" help:"URL of the deployment, if you have no state file."`
	Deal    string `env:"FAIRPACT_DEAL" placeholder:"ID" help:"The deal_id, if you have no state file."`
}

func (d dealFlags) load(t *terminal) (s state, err error) {
	if d.State != "" {
		data, err := t.read(d.State)
		if err != nil {
			return s, err
		}
		if err := json.Unmarshal(data, &s); err != nil {
			return s, fmt.Errorf("%s is not a state file: give the file that fairpactctl deal create or fairpactctl deal invite wrote", d.State)
		}
	}
	s.BaseURL, s.DealID = cmp.Or(d.BaseURL, s.BaseURL), cmp.Or(d.Deal, s.DealID)
	if s.BaseURL == "" || s.DealID == "" {
		return s, fmt.Errorf("the base URL or the deal id is missing (base_url %q, deal %q): give --state, or --base-url and --deal", s.BaseURL, s.DealID)
	}
	return s, nil
}

type partyFlags struct {
	dealFlags
	Party     *int   `placeholder:"N" help:"Party whose invite token in the state file is used; the initiator is party 0. Not needed if the file holds one token."`
	Token     string `env:"FAIRPACT_TOKEN" placeholder:"TOKEN" help:"Invite token. Other users of this machine can see arguments, so prefer --token-file or FAIRPACT_TOKEN."`
	TokenFile string `placeholder:"FILE" help:"File whose first line is the invite token; '-' reads standard input."`
}

func (p partyFlags) call(t *terminal) (*call, error) { return p.callAs(t, apiKeyFlags{}, false) }

// callAs prefers the token of a flag or the environment. Without one, an initiator uses the API key if
// there is one and --party is not given, and everybody else a token of the state file.
func (p partyFlags) callAs(t *terminal, key apiKeyFlags, initiator bool) (*call, error) {
	s, err := p.load(t)
	if err != nil {
		return nil, err
	}
	credential, err := t.secretOf(p.Token, p.TokenFile)
	if err == nil && credential == "" && initiator && p.Party == nil {
		credential, err = key.key(t, s.APIKey)
	}
	if err == nil && credential == "" {
		credential, err = s.token(p.Party)
	}
	if err != nil {
		return nil, err
	}
	return s.call(credential)
}

type apiKeyFlags struct {
	APIKey     string `env:"FAIRPACT_API_KEY" placeholder:"KEY" help:"The initiator's API key. Default: the API key in the state file or, for deal create, a new key."`
	APIKeyFile string `placeholder:"FILE" help:"File whose first line is the API key."`
}

func (a apiKeyFlags) key(t *terminal, other string) (string, error) {
	key, err := t.secretOf(a.APIKey, a.APIKeyFile)
	return cmp.Or(key, other), err
}

// eitherFlags are the flags of a command that both a party and the initiator may run.
type eitherFlags struct {
	partyFlags
	apiKeyFlags
}

func (e eitherFlags) call(t *terminal) (*call, error) { return e.callAs(t, e.apiKeyFlags, true) }

type call struct {
	client *httpclient.Client
	dealID string
	token  string // an invite token or the initiator's API key
}

func (s state) call(token string) (*call, error) {
	client, err := httpclient.New(s.BaseURL)
	if err != nil {
		return nil, err
	}
	return &call{client, s.DealID, token}, nil
}

func (c *call) path(suffix string) string { return "/v1/deals/" + url.PathEscape(c.dealID) + suffix }

func (c *call) get(ctx context.Context, suffix string, v any) error {
	return c.client.GetInto(ctx, c.path(suffix), c.token, v)
}

// post prints the answer.
func (c *call) post(ctx context.Context, t *terminal, suffix string, body any) error {
	answer, err := c.client.Post(ctx, c.path(suffix), c.token, body)
	if err != nil {
		return err
	}
	return t.answer(answer)
}

// commitFlags are the flags of the commands that commit.
type commitFlags struct {
	SeatKey           string `placeholder:"FILE" help:"File with the seat key that signs the commitment (see fairpactctl seat-key)."`
	Origin            string `placeholder:"URL" help:"With --seat-key: the public URL of the deployment, if you reach the deployment under another URL."`
	Timelock          bool   `help:"Also send the input, sealed for the beacon round of the deal: it opens by itself, and you need not come back. fairpactctl deal join always does so."`
	Receipt           string `placeholder:"FILE" help:"With --timelock: new file for the seal and the deployment's receipt, which proves that you sealed in time. Default: the name of the sealed file, with .receipt appended."`
	DevelopmentBeacon bool   `help:"With --timelock: accept a beacon chain other than drand quicknet. Its operator may be able to open the seal at any time."`
}

type commitCommand struct {
	Sealed string `arg:"" help:"Sealed file that fairpactctl seal --out wrote."`
	commitFlags
	partyFlags
}

func (c commitCommand) Run(ctx context.Context, t *terminal) error {
	mine, err := t.sealed(c.Sealed)
	if err != nil {
		return err
	}
	call, err := c.call(t)
	if err != nil {
		return err
	}
	of, err := call.declaration(ctx)
	if err != nil {
		return err
	}
	name := c.Sealed
	if name == "-" {
		name = call.file(of)
	}
	c.Receipt = cmp.Or(c.Receipt, name+".receipt")
	return call.commit(ctx, t, of, mine, c.commitFlags, func(store func() error) error { return store() })
}

// commit checks the input against the deal, sends its commitment and prints the answer. With a seal it
// first calls keep with a function that stores the seal, because a party cannot commit again.
func (c *call) commit(ctx context.Context, t *terminal, of terms, mine sealed, flags commitFlags, keep func(store func() error) error) (err error) {
	if known := cmp.Or(flags.Origin, c.client.BaseURL()); flags.SeatKey != "" && of.Origin != nil && *of.Origin != known {
		return refusal{fmt.Errorf("the expected public URL is %s, but the deployment says that its public URL is %s: if the deployment is right, give --origin %s", known, *of.Origin, *of.Origin)}
	}
	if err := of.check(mine.members); err != nil {
		return err
	}
	request := commitment{Commitment: canon.Commitment(mine.canonical, []byte(mine.salt))}
	if flags.SeatKey != "" {
		if request, err = of.sign(flags.SeatKey, request.Commitment); err != nil {
			return err
		}
	}
	if !flags.Timelock {
		answer, err := c.client.Post(ctx, c.path("/commit"), c.token, request)
		if err == nil {
			_, err = c.committed(t, answer, of)
		}
		return err
	}
	made, err := c.seal(ctx, of, mine, flags.DevelopmentBeacon)
	if err != nil {
		return err
	}
	request.Seal = made.text
	file := receiptFile{Seal: made.text, Development: made.development}
	if err := keep(func() error { return createSecretFile(flags.Receipt, file.text) }); err != nil {
		return err
	}
	t.note("your seal, and the receipt for it, are in %s: keep this file until the deal has ended", flags.Receipt)
	answer, err := c.client.Post(ctx, c.path("/commit"), c.token, request)
	if err != nil {
		return err
	}
	committed, err := c.committed(t, answer, of)
	if err != nil {
		return err
	}
	if file.Receipt = committed.Receipt; file.Receipt == nil {
		return refusal{fmt.Errorf("you have committed, but the deployment signed no receipt, because its signing key was out of reach: keep %s, which has your seal", flags.Receipt)}
	}
	if err := file.replace(flags.Receipt); err != nil {
		return fmt.Errorf("you have committed, but the receipt could not be added to %s: keep the receipt in the answer. %w", flags.Receipt, err)
	}
	if file.Pubkey, err = c.receiptKey(ctx, made, of, request.Commitment, *file.Receipt); err != nil {
		return refusal{fmt.Errorf("you have committed, but the receipt in %s proves nothing yet: %w. Keep this file and the sealed file, and reveal by hand before the reveal deadline", flags.Receipt, err)}
	}
	return file.replace(flags.Receipt)
}

// committed prints the answer to a commitment. Its member next names calls of REST, and without --json commands of fairpactctl.
func (c *call) committed(t *terminal, answer []byte, of terms) (made wire.Committed, err error) {
	if err := json.Unmarshal(answer, &made); err != nil {
		return made, fmt.Errorf("cannot read the answer to the commitment: %w", err)
	}
	if t.json {
		return made, t.answer(answer)
	}
	watch := fmt.Sprintf("fairpactctl deal watch (--state FILE, or --base-url %s --deal %s with your token in FAIRPACT_TOKEN)", c.client.BaseURL(), c.dealID)
	switch sealed := made.OpensAt > 0; {
	case sealed && (made.State == deal.Committing || made.State == deal.Revealing):
		made.Next = fmt.Sprintf("you are done: your seal opens by itself from %d (unix time) on. Read the result then with %s", made.OpensAt, watch)
	case made.State == deal.Committing:
		made.Next = fmt.Sprintf("wait until the deal is REVEALING with %s, then call fairpactctl deal reveal before reveal_deadline %d", watch, of.revealBy)
	case made.State == deal.Revealing:
		made.Next = fmt.Sprintf("all have committed: call fairpactctl deal reveal before reveal_deadline %d, then %s", of.revealBy, watch)
	default:
		made.Next = fmt.Sprintf("the deal is %s: read it with %s", made.State, watch)
	}
	text, err := json.Marshal(made)
	if err == nil {
		err = t.answer(text)
	}
	return made, err
}

type commitment struct {
	Commitment string `json:"commitment"`
	Key        string `json:"party_key,omitempty"`
	Signature  string `json:"party_signature,omitempty"`
	Seal       string `json:"seal,omitempty"`
}

type revealCommand struct {
	Sealed string `arg:"" help:"The sealed file that you committed with."`
	partyFlags
}

func (c revealCommand) Run(ctx context.Context, t *terminal) error { return c.open(ctx, t, "/reveal") }

// open sends the sealed file.
func (c revealCommand) open(ctx context.Context, t *terminal, path string) error {
	mine, err := t.sealed(c.Sealed)
	if err != nil {
		return err
	}
	call, err := c.call(t)
	if err != nil {
		return err
	}
	return call.post(ctx, t, path, sealedFile{mine.canonical, mine.salt})
}

type discloseCommand struct{ revealCommand }

func (c discloseCommand) Run(ctx context.Context, t *terminal) error {
	return c.open(ctx, t, "/disclose")
}

type statusCommand struct{ eitherFlags }

func (c statusCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
	if err != nil {
		return err
	}
	var view json.RawMessage
	if err := call.get(ctx, "", &view); err != nil {
		return err
	}
	return t.answer(view)
}

type drawCommand struct{ eitherFlags }

func (c drawCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/entropy", nil)
}

type cancelCommand struct {
	dealFlags
	apiKeyFlags
}

func (c cancelCommand) Run(ctx context.Context, t *terminal) error {
	s, err := c.load(t)
	if err != nil {
		return err
	}
	key, err := c.key(t, s.APIKey)
	if err == nil && key == "" {
		err = errors.New("no API key: give --state, --api-key-file or FAIRPACT_API_KEY")
	}
	if err != nil {
		return err
	}
	call, err := s.call(key)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/cancel", nil)
}
