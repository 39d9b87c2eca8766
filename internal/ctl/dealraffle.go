package ctl

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// actsAtOnce is the most calls of a raffle under way.
const actsAtOnce = 16

type raffleCommand struct {
	Names   string        `arg:"" help:"File with one name per line; a name may appear more than once; '-' reads standard input."`
	Out     string        `required:"" placeholder:"FILE" help:"New state file, which only you can read. If it exists, the command continues its raffle."`
	DrawIn  time.Duration `default:"1h" help:"Time until the draw, from now. Half of it is for commitments: allow 2 minutes and 20 ms a name."`
	Title   string        `help:"What is drawn: one line of at most 80 characters."`
	Message string        `help:"Prizes and rules: at most 1,000 characters. The draw gives all names an order, so say which places win."`
	deployment
	apiKeyFlags
}

// raffle is the output of `fairpactctl deal raffle`.
type raffle struct {
	DealID string `json:"deal_id"`
	Names  int    `json:"names"`
	DrawAt int64  `json:"draw_at"` // unix time after which the beacon round is published
	Page   string `json:"page"`
}

// Run makes a draw in which this command acts for every name, and ends once all numbers are revealed. The nonces follow from a seed
// in the state file, so that an interrupted command can continue.
func (c raffleCommand) Run(ctx context.Context, t *terminal) error {
	client, err := httpclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	s, err := c.state(ctx, t, client)
	if err != nil {
		return err
	}
	mine := &call{client, s.DealID, s.Invites[0].Token}
	var view wire.View
	for _, action := range []string{"commit", "reveal"} {
		if err := mine.get(ctx, "", &view); err != nil {
			return err
		}
		if state := deal.State(view.State); state != deal.Open && state != deal.Committing && state != deal.Revealing {
			break
		}
		if err := s.actForAll(ctx, client, action); err != nil {
			return fmt.Errorf("the raffle is not complete: %w. Before the draw at %s, the same command continues; afterwards make another raffle with a longer --draw-in", err, utc(view.RevealDeadline))
		}
	}
	if err := mine.get(ctx, "", &view); err != nil {
		return err
	}
	if state := deal.State(view.State); state != deal.Revealing && state != deal.Computed && state != deal.Certified {
		return refusal{fmt.Errorf("deal %s is %s: make another raffle, with a longer --draw-in and another --out", s.DealID, view.State)}
	}
	r := raffle{s.DealID, len(s.Invites), view.RevealDeadline, client.BaseURL() + "/r/" + s.DealID}
	return t.show(r, "All is sealed and opened for %d names. Everybody can watch the draw, shortly after %s, at %s", r.Names, utc(r.DrawAt), r.Page)
}

func utc(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

// state returns the raffle of the state file, or creates one.
func (c raffleCommand) state(ctx context.Context, t *terminal, client *httpclient.Client) (s state, err error) {
	if _, err := os.Stat(c.Out); err == nil {
		s, err = dealFlags{State: c.Out}.load(t)
		switch {
		case err != nil:
			return s, err
		case s.Seed == "" || len(s.Invites) == 0:
			return s, fmt.Errorf("%s is the state file of a deal that is no raffle: name another file", c.Out)
		case s.BaseURL != client.BaseURL(): // its tokens are secrets of the other deployment
			return s, fmt.Errorf("the raffle of %s is at %s, but --base-url is %s: give the same URL, or another --out", c.Out, s.BaseURL, client.BaseURL())
		}
		return s, nil
	}
	if c.DrawIn < 10*time.Second || c.DrawIn > deal.Longest*time.Second {
		return s, fmt.Errorf("--draw-in is %s: give 10s to a year, long enough to seal and open a number for every name", c.DrawIn)
	}
	names, err := c.names(t)
	if err != nil {
		return s, err
	}
	key, err := c.key(t, "")
	if err != nil {
		return s, err
	}
	var made created
	err = createSecretFile(c.Out, func() ([]byte, error) {
		var err error
		if s, made, err = c.create(ctx, t, client, key, names); err != nil {
			return nil, err
		}
		return s.file()
	})
	if made.Warning != "" {
		t.note("warning: %s", made.Warning)
	}
	if err != nil && s.DealID != "" {
		err = fmt.Errorf("raffle %s was created, but its tokens could not be written to %s (%w) and are lost: it will be VOID, so make another", s.DealID, c.Out, err)
	}
	return s, err
}

// names reads the list. Text that is not UTF-8 is refused: it would be shown with replacement characters for ever.
func (c raffleCommand) names(t *terminal) (all []string, err error) {
	text, err := t.read(c.Names)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%s is not UTF-8: save it as UTF-8 (iconv -f latin1 -t utf-8)", c.Names)
	}
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all, nil
}

func (c raffleCommand) create(ctx context.Context, t *terminal, client *httpclient.Client, key string, names []string) (s state, made created, err error) {
	until := time.Now().Add(c.DrawIn).Unix()
	chain, err := beaconOf(ctx, client)
	if err != nil {
		return s, made, err
	}
	if chain.Hash != algorithm.Quicknet {
		t.note("warning: the deployment draws by the beacon chain %s, not drand quicknet: whoever runs it can know or choose the draw", chain.Hash)
	}
	deal := createCommand{
		Algorithm: "random.v1", Label: names, Mode: "open", Retention: "standard", CommitDeadline: until - int64(c.DrawIn.Seconds()/2), RevealDeadline: until,
		Public: true, ActedBy: deal.ActedByInitiator, Title: c.Title, Message: c.Message,
	}
	s, made, err = deal.create(ctx, client, key, map[string]any{"beacon_round": chain.RoundAt(until) + 1})
	s.Seed = rand.Text()
	return s, made, err
}

// actForAll commits or reveals for every party. A party that has done so before is not an error.
func (s state) actForAll(ctx context.Context, client *httpclient.Client, action string) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(actsAtOnce)
	for _, of := range s.Invites {
		calls.Go(func() error {
			input := canon.Encode(map[string]any{"nonce": s.derived("nonce", of.Party)})
			salt := s.derived("salt", of.Party)
			body := any(sealedFile{input, salt})
			if action == "commit" {
				body = commitment{Commitment: canon.Commitment(input, []byte(salt))}
			}
			_, err := client.Post(ctx, "/v1/deals/"+s.DealID+"/"+action, of.Token, body)
			if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && (refused.Code() == string(problem.AlreadyCommitted) || refused.Code() == string(problem.AlreadyRevealed)) {
				return nil
			}
			return err
		})
	}
	return calls.Wait()
}

// derived returns 32 hex digits that follow from the seed.
func (s state) derived(what string, party int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", s.Seed, what, party))
	return hex.EncodeToString(sum[:16])
}
