package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

type dealCommands struct {
	Create      createCommand      `cmd:"" help:"Create a deal and write its tokens to a state file."`
	Invite      inviteCommand      `cmd:"" help:"Write a state file or an invitation for one party."`
	Commit      commitCommand      `cmd:"" help:"Send the commitment of a sealed file."`
	Reveal      revealCommand      `cmd:"" help:"Reveal the input and salt of a sealed file."`
	Status      statusCommand      `cmd:"" help:"Show the deal."`
	Watch       watchCommand       `cmd:"" help:"Follow the deal until it has ended and its certificate is issued."`
	Draw        drawCommand        `cmd:"" help:"Make the draw of a random.v1 deal, once all parties have revealed and the beacon round is published."`
	Certificate certificateCommand `cmd:"" help:"Fetch the certificate and the evidence to verify it offline."`
	Cancel      cancelCommand      `cmd:"" help:"Cancel the deal as the initiator, if no other party has committed."`
}

// state is the content of a state file. `fairpactctl deal create` and `fairpactctl deal invite`
// write this file. It holds tokens, so its mode is 0600.
type state struct {
	BaseURL string   `json:"base_url"`
	DealID  string   `json:"deal_id"`
	APIKey  string   `json:"api_key,omitempty"`
	Invites []invite `json:"invite_tokens"`
}

type invite struct {
	Party int    `json:"party"`
	Label string `json:"label"`
	Token string `json:"token"`
}

type dealFlags struct {
	State   string `env:"FAIRPACT_STATE" placeholder:"FILE" help:"State file that fairpactctl deal create or fairpactctl deal invite wrote. It holds the deployment's URL, the deal_id and the tokens."`
	BaseURL string `env:"FAIRPACT_URL" placeholder:"URL" help:"URL of the deployment, if you have no state file."`
	Deal    string `env:"FAIRPACT_DEAL" placeholder:"ID" help:"The deal_id, if you have no state file."`
}

// partyFlags holds the flags of a command that accepts an invite token.
type partyFlags struct {
	dealFlags
	Party     *int   `placeholder:"N" help:"Index of the party whose invite token in the state file is used. Party 0 is the initiator. Not needed if the file holds only one token."`
	Token     string `env:"FAIRPACT_TOKEN" placeholder:"TOKEN" help:"Invite token. Other users of this machine can see arguments, so prefer --token-file or FAIRPACT_TOKEN."`
	TokenFile string `placeholder:"FILE" help:"File whose first line is the invite token; '-' reads standard input."`
}

type initiatorFlags struct {
	APIKey     string `env:"FAIRPACT_API_KEY" placeholder:"KEY" help:"The initiator's API key. Default: the API key in the state file."`
	APIKeyFile string `placeholder:"FILE" help:"File whose first line is the API key."`
}

type call struct {
	client *httpclient.Client
	dealID string
	token  string
}

func (p dealFlags) load(t *terminal) (s state, err error) {
	if p.State != "" {
		data, err := t.read(p.State)
		if err != nil {
			return s, err
		}
		if err := json.Unmarshal(data, &s); err != nil {
			return s, fmt.Errorf("%s is not a state file: give the file that fairpactctl deal create or fairpactctl deal invite wrote", p.State)
		}
	}
	s.BaseURL, s.DealID = cmp.Or(p.BaseURL, s.BaseURL), cmp.Or(p.Deal, s.DealID)
	if s.BaseURL == "" || s.DealID == "" {
		return s, fmt.Errorf("the base URL or the deal id is missing (base_url %q, deal %q): give --state, or --base-url and --deal", s.BaseURL, s.DealID)
	}
	return s, nil
}

func (i initiatorFlags) key(t *terminal, s state) (string, error) {
	key, err := t.secretOf(i.APIKey, i.APIKeyFile)
	return cmp.Or(key, s.APIKey), err
}

func (p partyFlags) asParty(t *terminal) (*call, error) {
	s, err := p.load(t)
	if err != nil {
		return nil, err
	}
	token, err := t.secretOf(p.Token, p.TokenFile)
	if err != nil {
		return nil, err
	}
	if token == "" {
		if token, err = s.token(p.Party); err != nil {
			return nil, err
		}
	}
	return s.call(token)
}

func (s state) call(token string) (*call, error) {
	client, err := httpclient.New(s.BaseURL)
	if err != nil {
		return nil, err
	}
	return &call{client, s.DealID, token}, nil
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

func (s state) invite(party int) (invite, error) {
	for _, i := range s.Invites {
		if i.Party == party {
			return i, nil
		}
	}
	return invite{}, fmt.Errorf("the state file has no invite token of party %d: correct --party, or give that party's state file", party)
}

func (c *call) path(suffix string) string { return "/v1/deals/" + url.PathEscape(c.dealID) + suffix }

func (c *call) post(ctx context.Context, t *terminal, suffix string, body any) error {
	answer, err := c.client.Post(ctx, c.path(suffix), c.token, body)
	if err != nil {
		return err
	}
	return t.answer(answer)
}

type createCommand struct {
	Algorithm      string        `required:"" help:"One of ${algorithms}."`
	Label          []string      `required:"" sep:"none" help:"Label of a party; repeat the flag for each party. The first label belongs to the initiator, party 0."`
	SeatKey        []string      `placeholder:"N=KEY" help:"Seat key that must sign the commitment of party N, es256:HEX or ed25519:HEX (see fairpactctl seat-key); repeatable."`
	Params         string        `required:"" placeholder:"FILE" help:"File with algorithm_params, a JSON object; '-' reads standard input."`
	Out            string        `required:"" placeholder:"FILE" help:"New state file, which only you can read. It holds the deployment's URL, the deal_id, the API key and the invite tokens."`
	CommitIn       time.Duration `default:"1h" help:"Time to commit, from now."`
	RevealIn       time.Duration `default:"2h" help:"Time to reveal, from now."`
	CommitDeadline int64         `placeholder:"UNIX" help:"Commit deadline in unix seconds, instead of --commit-in."`
	RevealDeadline int64         `placeholder:"UNIX" help:"Reveal deadline in unix seconds, instead of --reveal-in."`
	Mode           string        `default:"sealed" help:"'sealed': inputs stay secret. 'open': parties may fetch all inputs after the deal is COMPUTED."`
	Retention      string        `default:"standard" help:"'standard': the deployment keeps the inputs. 'purge': the deployment deletes the inputs when the deal ends."`
	BaseURL        string        `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
	APIKey         string        `env:"FAIRPACT_API_KEY" placeholder:"KEY" help:"API key. Default: a new key, which the command writes to the state file."`
	APIKeyFile     string        `placeholder:"FILE" help:"File whose first line is the API key."`
}

func (c createCommand) Run(ctx context.Context, t *terminal) error {
	params, err := t.object(c.Params)
	if err != nil {
		return err
	}
	client, err := httpclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	key, err := t.secretOf(c.APIKey, c.APIKeyFile)
	if err != nil {
		return err
	}
	var made created
	err = createSecretFile(c.Out, func() (text []byte, err error) {
		var s state
		if s, made, err = c.create(ctx, client, key, params); err != nil {
			return nil, err
		}
		return s.file()
	})
	switch {
	case err != nil && made.DealID != "":
		return fmt.Errorf("deal %s was created, but its tokens could not be written to %s (%w) and are lost: create another deal", made.DealID, c.Out, err)
	case err != nil:
		return err
	}
	made.StateFile = c.Out
	shown, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return t.answer(shown)
}

func (s state) file() ([]byte, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// created is the output of `fairpactctl deal create`: the service's answer without the invite
// tokens, and the name of the state file.
type created struct {
	DealID    string `json:"deal_id"`
	State     string `json:"state"`
	StateFile string `json:"state_file"`
	Warning   string `json:"warning,omitempty"`
}

func (c createCommand) create(ctx context.Context, client *httpclient.Client, key string, params map[string]any) (s state, made created, err error) {
	if key == "" {
		if key, err = newKey(ctx, client); err != nil {
			return s, made, err
		}
	}
	now := time.Now()
	if c.CommitDeadline == 0 {
		c.CommitDeadline = now.Add(c.CommitIn).Unix()
	}
	if c.RevealDeadline == 0 {
		c.RevealDeadline = now.Add(c.RevealIn).Unix()
	}
	keys, err := partyKeys(c.SeatKey, len(c.Label))
	if err != nil {
		return s, made, err
	}
	request := map[string]any{
		"algorithm": c.Algorithm, "mode": c.Mode, "retention": c.Retention, "party_labels": c.Label,
		"commit_deadline": c.CommitDeadline, "reveal_deadline": c.RevealDeadline, "algorithm_params": params,
	}
	if keys != nil {
		request["party_keys"] = keys
	}
	body, err := client.Post(ctx, "/v1/deals", key, request)
	if err != nil {
		return s, made, err
	}
	var answer struct {
		created
		Invites []invite `json:"invite_tokens"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return s, made, fmt.Errorf("cannot parse the service's answer to POST /v1/deals: %w", err)
	}
	return state{client.BaseURL(), answer.DealID, key, answer.Invites}, answer.created, nil
}

type inviteCommand struct {
	State string `env:"FAIRPACT_STATE" required:"" placeholder:"FILE" help:"State file that fairpactctl deal create wrote."`
	Party int    `required:"" placeholder:"N" help:"Index of the party to invite."`
	Out   string `xor:"form" required:"" placeholder:"FILE" help:"New state file with only the token of the invited party, for a party that uses fairpactctl."`
	Text  bool   `xor:"form" required:"" help:"Print an invitation with a link, for a person or an agent."`
}

func (c inviteCommand) Run(ctx context.Context, t *terminal) error {
	s, err := dealFlags{State: c.State}.load(t)
	if err != nil {
		return err
	}
	i, err := s.invite(c.Party)
	if err != nil {
		return err
	}
	if c.Text {
		if c.Party == 0 {
			return errors.New("party 0 is the initiator, who sends the invitations: give another --party, or --out instead of --text")
		}
		text, err := s.invitation(ctx, i)
		if err != nil {
			return err
		}
		if t.json {
			return t.value(map[string]string{"invitation": text})
		}
		for line := range strings.SplitSeq(text, "\n") {
			t.line("%s", line)
		}
		return nil
	}
	if err := createSecretFile(c.Out, state{BaseURL: s.BaseURL, DealID: s.DealID, Invites: []invite{i}}.file); err != nil {
		return err
	}
	return t.show(map[string]string{"state_file": c.Out}, "%s is for party %d, %s", c.Out, i.Party, i.Label)
}

// invitation returns the text of the invitation for a party. Its links use the origin that
// the service declares, because s.BaseURL may work only for this client.
func (s state) invitation(ctx context.Context, i invite) (string, error) {
	call, err := s.call(i.Token)
	if err != nil {
		return "", err
	}
	body, err := call.client.Get(ctx, call.path(""), call.token)
	if err != nil {
		return "", err
	}
	var view struct {
		State          string
		Algorithm      string
		Parties        []struct{ Label string }
		CommitDeadline int64 `json:"commit_deadline"`
		RevealDeadline int64 `json:"reveal_deadline"`
	}
	if err := json.Unmarshal(body, &view); err != nil {
		return "", fmt.Errorf("cannot parse the service's answer to GET %s: %w", call.path(""), err)
	}
	if len(view.Parties) == 0 {
		return "", fmt.Errorf("the service's answer to GET %s has no parties", call.path(""))
	}
	if view.State != "OPEN" && view.State != "COMMITTING" {
		return "", refusal{fmt.Errorf("deal %s is %s, and a party can join only in OPEN or COMMITTING: create another deal", s.DealID, view.State)}
	}
	alg, known := algorithm.Lookup(view.Algorithm)
	if !known {
		return "", fmt.Errorf("this fairpactctl does not know the algorithm %s: use the fairpactctl of the service's release, or give --out instead of --text", view.Algorithm)
	}
	if body, err = call.client.Get(ctx, call.path("/declaration"), call.token); err != nil {
		return "", err
	}
	var declared struct{ Origin string }
	if err := json.Unmarshal(body, &declared); err != nil {
		return "", fmt.Errorf("cannot parse the service's answer to GET %s: %w", call.path("/declaration"), err)
	}
	return invitation.Text(cmp.Or(declared.Origin, call.client.BaseURL()), invitation.Seat{
		DealID: s.DealID, Algorithm: alg, From: view.Parties[0].Label, Party: i.Party, Label: i.Label, Token: i.Token,
		CommitDeadline: view.CommitDeadline, RevealDeadline: view.RevealDeadline,
	}), nil
}
