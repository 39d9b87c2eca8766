package mcp

import (
	"context"
	"unicode/utf8"

	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// tool is a tool of SPEC 4.1. Its description, schemas and hints are in tools/<name>.json.
type tool struct {
	op        problem.Op // names the tool
	run       func(*call, context.Context) (result, error)
	limit     int                        // longest arguments in bytes; 0: the message has at most maxPlain bytes
	values    int                        // most values of the arguments; 0: ops.SmallValues
	answer    func(body, values int) int // see ops.Operation.Answer
	arguments []string                   // names of the input schema's members, sorted
}

func (t tool) name() string { return t.op.Tool }

// SPEC 4.1 names these nine tools.
var tools = []tool{
	{op: problem.CreateKey, run: (*call).createKey},
	{op: problem.ListAlgorithms, run: (*call).listAlgorithms},
	{op: problem.CreateDeal, run: (*call).createDeal, limit: int(ops.CreateDeal.Limit), values: ops.CreateDeal.Values, answer: createdBytes},
	{op: problem.ReadDeclaration, run: (*call).computeCommitment, limit: 1 << 20, values: canon.MaxValues},
	{op: problem.Commit, run: (*call).commitInput, limit: int(ops.Commit.Limit)},
	{op: problem.Reveal, run: (*call).revealInput, limit: int(ops.Reveal.Limit), values: ops.Reveal.Values},
	{op: problem.ReadDeal, run: (*call).getDeal},
	{op: problem.ReadCertificate, run: (*call).getCertificate},
	{op: problem.Verify, run: (*call).verifyCertificate, limit: int(ops.VerifySubmitted.Limit), values: ops.VerifySubmitted.Values},
}

// copies is how many times an answer is in memory while it is sent: the body, its copies
// in text and structuredContent, and the SDK's encoded message.
const copies = 4

type result struct {
	body   []byte
	next   next
	lookAt int64    // unix time by which the caller should read the deal again, such as a deadline; 0: no such time
	blocks []string // further text blocks: invitations, or the bundle

	shownOnce bool // the body holds tokens that no other call returns
}

// answered runs an operation, and makes its answer the result of the tool.
func answered[Req, T any](ctx context.Context, c *call, e *ops.Endpoint[Req, T], advise func(T) next) (ops.Answer[T], result, error) {
	answer, err := e.Run(ctx, &c.Services, c.message())
	if err != nil {
		return answer, result{}, err
	}
	return answer, result{body: answer.Body, next: advise(answer.Value)}, nil
}

func (c *call) createKey(ctx context.Context) (result, error) {
	_, r, err := answered(ctx, c, ops.CreateKey, afterKey)
	return r, err
}

func (c *call) listAlgorithms(ctx context.Context) (result, error) {
	vectors, err := c.args.flag("vectors")
	body := c.catalogue
	if vectors {
		body = c.vectors
		err = budget.From(ctx).Hold(ctx, int64(copies*len(body)))
	}
	return result{body: body, next: afterCatalogue}, err
}

// createDeal also takes lengths of phases, so its answer has the deadlines.
func (c *call) createDeal(ctx context.Context) (result, error) {
	var declared escrow.Declared
	creation := *ops.CreateDeal
	creation.Parse = func(_ *ops.Message, body map[string]any) (escrow.Declared, error) {
		body, err := c.declaration(body)
		if err == nil {
			declared, err = ops.Declared(body)
		}
		return declared, err
	}
	creation.Encode = nil
	var invitations []string
	answer, r, err := answered(ctx, c, &creation, func(made escrow.Created) next {
		invitations = c.invitations(declared, made)
		return afterCreation(declared, made, len(invitations) > 0)
	})
	r.blocks, r.shownOnce, r.lookAt = invitations, true, answer.Value.CommitDeadline
	return r, err
}

// createdBytes estimates the answer of create_deal, in which each invitation repeats title and message.
func createdBytes(body, values int) int {
	words := min(body, utf8.UTFMax*(deal.Title.Most+deal.Message.Most))
	return ops.CreateDeal.Answer(body, values) + min(values, maxInvited)*words
}

// maxInvited is the largest number of parties for which create_deal returns invitations, of about
// 1 KiB each.
const maxInvited = 64

func (c *call) invitations(d escrow.Declared, made escrow.Created) (all []string) {
	if len(made.Invites) > maxInvited {
		return nil
	}
	alg, _ := algorithm.Lookup(d.Algorithm)
	for _, invite := range made.Invites[1:] {
		seat := invitation.Seat{
			DealID: made.DealID, Algorithm: alg, From: made.Invites[0].Label, Party: invite.Party, Label: invite.Label,
			Token: invite.Token, CommitDeadline: made.CommitDeadline, RevealDeadline: made.RevealDeadline, Title: d.Title, Message: d.Message, Public: d.Audience != "",
		}
		if d.Seals != "" {
			seat.OpensAt, seat.Chain = c.Chain.RoundTime(timelock.RoundOf(c.Chain, made.CommitDeadline)), c.Chain.Hash
		}
		if d.SeatKeys != nil {
			seat.Key = d.SeatKeys[invite.Party]
		}
		all = append(all, invitation.Text(c.PublicURL, seat))
	}
	return all
}

func (c *call) commitInput(ctx context.Context) (result, error) {
	answer, r, err := answered(ctx, c, ops.Commit, afterCommit)
	if err == nil {
		if r.lookAt = answer.Value.OpensAt; r.lookAt == 0 {
			r.lookAt = deadline(answer.By.Access.Deal(), answer.Value.State)
		}
	}
	return r, err
}

// deadline returns the time by which a deal that is in this state leaves it, or 0 if the deal has ended.
func deadline(d *escrow.Deal, state deal.State) int64 {
	switch {
	case state == deal.Committing:
		return d.CommitDeadline
	case state == deal.Revealing && d.RoundTime != nil:
		return max(d.RevealDeadline, *d.RoundTime)
	case state == deal.Revealing:
		return d.RevealDeadline
	}
	return 0
}

// revealInput adds the next step to the REST body, because some clients show their model only
// structuredContent.
func (c *call) revealInput(ctx context.Context) (result, error) {
	revealing := *ops.Reveal
	var step next
	revealing.Encode = func(_ *ops.Message, by ops.Caller, r escrow.Revealed) (any, error) {
		step = afterReveal(r, by.Access.Deal().RoundTime != nil)
		return struct {
			escrow.Revealed
			Next string `json:"next"`
		}{r, step.call()}, nil
	}
	answer, r, err := answered(ctx, c, &revealing, func(escrow.Revealed) next { return step })
	if err == nil {
		r.lookAt = deadline(answer.By.Access.Deal(), answer.Value.State)
	}
	return r, err
}

func (c *call) getDeal(ctx context.Context) (result, error) {
	answer, r, err := answered(ctx, c, ops.ReadDeal, func(escrow.View) next { return next{} })
	if err != nil {
		return r, err
	}
	r.next = afterView(answer.By.Access.Party(), answer.Value)
	if answer.Value.CertID == nil { // if CertID is set, the deal has ended and has no further deadline
		r.lookAt, _ = c.Escrow.LookAt(answer.Value)
	}
	return r, nil
}

// getCertificate first makes the draw of a random.v1 deal if the draw is due, because no other
// tool draws. With the argument `bundle` it also returns the bundle, with the same proof.
func (c *call) getCertificate(ctx context.Context) (result, error) {
	var whole bool
	var bundle []byte
	reading := *ops.ReadCertificate
	reading.Parse = func(m *ops.Message, _ map[string]any) (wait escrow.Wait, err error) {
		if wait, err = m.Wait(); err == nil {
			whole, err = c.args.flag("bundle")
		}
		return wait, err
	}
	reading.Do = func(ctx context.Context, _ *ops.Services, by ops.Caller, wait escrow.Wait, _ *escrow.Record) (escrow.Issued, error) {
		var draw func() error
		if by.Access.Deal().RoundTime != nil {
			draw = func() error { return c.draw(ctx, by.Access) }
		}
		issued, err := c.Escrow.CertificateAfter(ctx, by.Access, wait, draw)
		if err != nil || !whole {
			return issued, err
		}
		all, err := c.Escrow.Bundle(ctx, by.Access, false)
		if err != nil {
			return issued, err
		}
		body, err := wire.BundleOf(all)
		if err == nil {
			bundle, err = web.Encode(body)
		}
		return all.Issued, err
	}
	_, r, err := answered(ctx, c, &reading, afterCertificate)
	if err == nil && whole {
		r.next.Why += aboutBundle
		r.blocks = []string{string(bundle)}
		err = budget.From(ctx).Hold(ctx, int64(copies*len(r.body)+2*len(bundle)))
	}
	return r, err
}

// draw makes the draw of a random.v1 deal. It returns nil if reveals are missing or the deal has
// ended: the caller then reads the certificate, or the reason why there is none.
func (c *call) draw(ctx context.Context, access escrow.Access) error {
	_, err := c.Escrow.Entropy(ctx, access)
	switch {
	case problem.Is(err, problem.RevealsMissing), problem.Is(err, problem.DealEnded):
		return nil
	case problem.Is(err, problem.BeaconNotReady):
		// SPEC 7.3: CERT_NOT_READY is the only code for a certificate that is not issued yet.
		early := problem.From(err)
		return problem.New(problem.CertNotReady, "all have revealed, but the draw cannot be made yet: %s", early.Fix(problem.Call.MCP)).WithRetryAfter(early.RetryAfter)
	}
	return err
}

func (c *call) verifyCertificate(ctx context.Context) (r result, err error) {
	if c.args["certificate"] != nil {
		_, r, err = answered(ctx, c, ops.VerifySubmitted, afterSubmitted)
	} else {
		_, r, err = answered(ctx, c, ops.Verify, afterVerification)
	}
	return r, err
}

// computeCommitment returns the commitment to an input and a salt (SPEC 2.6), and stores nothing.
// With a deal_id it also returns the bytes that a seat key signs, and checks the input against the
// deal, because a commitment is final. For the bytes alone, deal_id and a commitment are enough.
func (c *call) computeCommitment(ctx context.Context) (result, error) {
	args := c.args
	var opening escrow.Opening
	var hashed struct {
		Commitment string `json:"commitment"`
		ToSign     string `json:"to_sign,omitempty"`
		Seal       string `json:"seal,omitempty"`
		Warning    string `json:"warning,omitempty"`
	}
	var key *string // the seat key that the deal declares for the caller
	given := args["commitment"] != nil
	switch {
	case given && (args["input"] != nil || args["deal_id"] == nil):
		return result{}, problem.New(problem.InvalidRequest, "the argument `commitment` needs deal_id and cannot be combined with input: (1) to learn what a seat key signs, pass commitment and deal_id, and leave input out; (2) to hash an input, leave commitment out")
	case given:
		if _, err := ops.Commitment(args); err != nil {
			return result{}, err
		}
		hashed.Commitment = args["commitment"].(string)
	default:
		var err error
		if opening, err = ops.Opening(args); err != nil {
			return result{}, err
		}
		hashed.Commitment = canon.Commitment(canon.Encode(opening.Input), []byte(opening.Salt))
	}
	timelocked, err := args.flag("timelock")
	if err != nil {
		return result{}, err
	}
	if timelocked && (given || args["deal_id"] == nil) {
		return result{}, problem.New(problem.InvalidRequest, "the argument `timelock` needs deal_id, invite_token and input, and cannot be combined with commitment")
	}
	if args["deal_id"] != nil {
		by, err := c.Admit(ctx, &ops.Operation{Who: ops.Member, Action: escrow.AsParty}, c.message())
		if err != nil {
			return result{}, err
		}
		access := by.Access
		budget.From(ctx).Party()
		if !given {
			if hashed.Warning, err = access.CheckInput(opening.Input); err != nil {
				return result{}, err
			}
		}
		if timelocked {
			if hashed.Seal, err = c.Escrow.SealOpening(ctx, access, opening); err != nil {
				return result{}, err
			}
		}
		key = access.Deal().SeatKey(access.Party())
		message, err := c.Escrow.ToSign(access, hashed.Commitment)
		if err != nil {
			return result{}, err
		}
		hashed.ToSign = string(message)
	}
	body, err := web.Encode(hashed)
	if given {
		return result{body: body, next: afterToSign(args["deal_id"], key, hashed.Commitment)}, err
	}
	step := afterHash(opening, args["deal_id"], key, hashed.Commitment)
	if _, commits := step.Arguments["commitment"]; hashed.Seal != "" && commits {
		step.Arguments["seal"] = "<seal of this answer>"
	}
	if hashed.Warning != "" {
		step.Why = "READ `warning` FIRST: a commitment is final. " + step.Why
	}
	return result{body: body, next: step}, err
}
