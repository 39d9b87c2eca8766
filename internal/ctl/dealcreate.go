package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

type createCommand struct {
	Algorithm      string        `required:"" help:"One of ${algorithms}."`
	Label          []string      `required:"" sep:"none" help:"Label of a party; repeat the flag for each party. The first label belongs to the initiator, party 0."`
	SeatKey        []string      `placeholder:"N=KEY" help:"Seat key that must sign the commitment of party N, es256:HEX or ed25519:HEX (see fairpactctl seat-key); repeatable."`
	Params         string        `required:"" placeholder:"FILE" help:"File with algorithm_params, a JSON object; '-' reads standard input."`
	Out            string        `required:"" placeholder:"FILE" help:"New state file, which only you can read. It holds the deployment's URL, the deal_id, the API key and the invite tokens."`
	CommitIn       time.Duration `default:"1h" help:"Time to commit, from now."`
	RevealIn       time.Duration `default:"2h" help:"Time to reveal, from now (over MCP, reveal_seconds counts from the end of the commit phase)."`
	CommitDeadline int64         `placeholder:"UNIX" help:"Commit deadline in unix seconds, instead of --commit-in."`
	RevealDeadline int64         `placeholder:"UNIX" help:"Reveal deadline in unix seconds, instead of --reveal-in."`
	Mode           string        `default:"sealed" help:"Who sees the inputs after the result. 'open': all parties, so each can recompute it. 'sealed': no party until all consent (a draw shows them anyway)."`
	Retention      string        `default:"standard" help:"'standard': the deployment keeps the inputs. 'purge': the deployment deletes the inputs when the deal ends."`
	RequireSeals   bool          `help:"Take only commitments with a timelock seal: every input opens by itself, so nobody has to reveal; a missing commitment still makes the deal VOID. The reveal deadline must be some two minutes after the commit deadline."`
	Public         bool          `help:"Let everybody who knows the deal_id read the deal and its result at /r/DEAL_ID, but no inputs other than those of a draw."`
	Title          string        `help:"What the deal is about, for the other parties: one line of at most 80 characters, without invisible ones."`
	Message        string        `help:"A message to the other parties: at most 1,000 characters, on one line or several."`
	deployment
	apiKeyFlags

	ActedBy string `kong:"-"` // of a raffle
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
	key, err := c.key(t, "")
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

// created is the output of `fairpactctl deal create`: the answer without tokens, and the state file.
type created struct {
	DealID    string     `json:"deal_id"`
	State     deal.State `json:"state"`
	StateFile string     `json:"state_file,omitempty"`
	Warning   string     `json:"warning,omitempty"`
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
	seals := ""
	if c.RequireSeals {
		seals = deal.SealsRequired
	}
	audience := ""
	if c.Public {
		audience = deal.AudiencePublic
	}
	var answer wire.Created
	if err := client.PostInto(ctx, "/v1/deals", key, request{
		c.Algorithm, c.Mode, c.Retention, c.Label, keys, c.CommitDeadline, c.RevealDeadline, params, seals, audience, c.ActedBy, c.Title, c.Message,
	}, &answer); err != nil {
		return s, made, err
	}
	return state{BaseURL: client.BaseURL(), DealID: answer.DealID, APIKey: key, Invites: answer.Invites}, created{answer.DealID, answer.State, "", answer.Warning}, nil
}

// request is the body of POST /v1/deals.
type request struct {
	Algorithm      string         `json:"algorithm"`
	Mode           string         `json:"mode"`
	Retention      string         `json:"retention"`
	Labels         []string       `json:"party_labels"`
	SeatKeys       []*string      `json:"party_keys,omitempty"`
	CommitDeadline int64          `json:"commit_deadline"`
	RevealDeadline int64          `json:"reveal_deadline"`
	Params         map[string]any `json:"algorithm_params"`
	Seals          string         `json:"seals,omitempty"`
	Audience       string         `json:"audience,omitempty"`
	ActedBy        string         `json:"acted_by,omitempty"`
	Title          string         `json:"title,omitempty"`
	Message        string         `json:"message,omitempty"`
}

type inviteCommand struct {
	State string `env:"FAIRPACT_STATE" required:"" placeholder:"FILE" help:"State file that fairpactctl deal create wrote."`
	Party int    `required:"" placeholder:"N" help:"Index of the party to invite."`
	Out   string `xor:"form" required:"" placeholder:"FILE" help:"New state file with only the token of the invited party, for a party that uses fairpactctl."`
	Text  bool   `xor:"form" required:"" help:"Print an invitation with a link, for a person or an agent."`
}

// invited is the --json output of `fairpactctl deal invite`.
type invited struct {
	StateFile  string `json:"state_file,omitempty"`
	Invitation string `json:"invitation,omitempty"`
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
			return t.value(invited{Invitation: text})
		}
		for line := range strings.SplitSeq(text, "\n") {
			t.line("%s", line)
		}
		return nil
	}
	if err := createSecretFile(c.Out, state{BaseURL: s.BaseURL, DealID: s.DealID, Invites: []wire.Invite{i}}.file); err != nil {
		return err
	}
	return t.show(invited{StateFile: c.Out}, "%s is for party %d, %s", c.Out, i.Party, i.Label)
}

// invitation returns the text of the invitation for a party. Its links use the origin that
// the service declares, because s.BaseURL may work only for this client.
func (s state) invitation(ctx context.Context, i wire.Invite) (string, error) {
	call, err := s.call(i.Token)
	if err != nil {
		return "", err
	}
	var view wire.View
	if err := call.get(ctx, "", &view); err != nil {
		return "", err
	}
	if len(view.Parties) == 0 {
		return "", fmt.Errorf("the service's answer to GET %s has no parties", call.path(""))
	}
	if view.State != string(deal.Open) && view.State != string(deal.Committing) {
		return "", refusal{fmt.Errorf("deal %s is %s, and a party can join only in OPEN or COMMITTING: create another deal", s.DealID, view.State)}
	}
	alg, known := algorithm.Lookup(view.Algorithm)
	if !known {
		return "", fmt.Errorf("this fairpactctl does not know the algorithm %s: use the fairpactctl of the service's release, or give --out instead of --text", view.Algorithm)
	}
	var declared wire.Declaration
	if err := call.get(ctx, "/declaration", &declared); err != nil {
		return "", err
	}
	var terms struct{ Seals string }
	if err := json.Unmarshal(declared.Declared, &terms); err != nil {
		return "", err
	}
	opens, chain := int64(0), ""
	if terms.Seals != "" && declared.Seals != nil {
		opens, chain = declared.Seals.OpensAt, declared.Seals.Chain
	}
	origin := call.client.BaseURL()
	if declared.Origin != nil {
		origin = *declared.Origin
	}
	return invitation.Text(origin, invitation.Seat{
		DealID: s.DealID, Algorithm: alg, From: view.Parties[0].Label, Party: i.Party, Label: i.Label, Token: i.Token,
		CommitDeadline: view.CommitDeadline, RevealDeadline: view.RevealDeadline, OpensAt: opens, Chain: chain, Title: view.Title, Message: view.Message, Public: view.Audience != "",
	}), nil
}
