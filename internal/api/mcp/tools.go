package mcp

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// tool is a tool of SPEC 4.1. Its description, schemas and hints are in tools/<name>.json.
type tool struct {
	name      string
	run       func(*server, context.Context, arguments) (result, error)
	arguments []string // names of the input schema's members, sorted
}

// SPEC 4.1 names these nine tools.
var tools = []tool{
	{name: "create_key", run: (*server).createKey},
	{name: "list_algorithms", run: (*server).listAlgorithms},
	{name: "create_deal", run: (*server).createDeal},
	{name: "compute_commitment_tool", run: (*server).computeCommitment},
	{name: "commit_input", run: (*server).commitInput},
	{name: "reveal_input", run: (*server).revealInput},
	{name: "get_deal", run: (*server).getDeal},
	{name: "get_certificate", run: (*server).getCertificate},
	{name: "verify_certificate", run: (*server).verifyCertificate},
}

//go:embed tools/*.json
var descriptions embed.FS

// describe returns the tool that tools/<name>.json describes. It fills the file's placeholders
// from tools/shared.json and with the ids and examples of the algorithms.
func describe(name string) (*mcp.Tool, error) {
	text, err := descriptions.ReadFile("tools/" + name + ".json")
	if err != nil {
		return nil, err
	}
	shared, err := descriptions.ReadFile("tools/shared.json")
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(shared, &values); err != nil {
		return nil, err
	}
	var params, inputs []json.RawMessage
	for _, a := range algorithm.All() {
		params, inputs = append(params, a.Params.Example), append(inputs, a.Input.Example)
	}
	values["enum"], values["example params"], values["example inputs"] = algorithm.IDs(), params, inputs
	if text, err = algorithm.FillJSON(text, values); err != nil {
		return nil, err
	}
	var d struct {
		Title        string
		Description  string
		Annotations  *mcp.ToolAnnotations
		InputSchema  json.RawMessage
		OutputSchema json.RawMessage
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	return &mcp.Tool{Name: name, Title: d.Title, Description: d.Description, Annotations: d.Annotations, InputSchema: d.InputSchema, OutputSchema: d.OutputSchema}, nil
}

func argumentNames(described *mcp.Tool) ([]string, error) {
	var schema struct{ Properties map[string]json.RawMessage }
	raw, ok := described.InputSchema.(json.RawMessage)
	if !ok {
		return nil, fmt.Errorf("the input schema is a %T, not JSON", described.InputSchema)
	}
	err := json.Unmarshal(raw, &schema)
	return slices.Sorted(maps.Keys(schema.Properties)), err
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

func encoded[T any](v T, err error, advise func(T) next) (result, error) {
	if err != nil {
		return result{}, err
	}
	body, err := web.Encode(v)
	return result{body: body, next: advise(v)}, err
}

func (s *server) createKey(ctx context.Context, args arguments) (result, error) {
	address := requestInfoOf(ctx).address
	key, err := s.Calls.CreateKey(ctx, address, args.request("create_key", address))
	return encoded(key, err, afterKey)
}

func (s *server) listAlgorithms(ctx context.Context, args arguments) (result, error) {
	vectors, err := args.flag("vectors")
	body := s.catalogue
	if vectors {
		body = s.vectors
		err = limits.Answer(ctx, copies*len(body))
	}
	return result{body: body, next: afterCatalogue}, err
}

func (s *server) createDeal(ctx context.Context, args arguments) (result, error) {
	credential, err := args.credential("api_key")
	if err != nil {
		return result{}, err
	}
	principal, err := s.Escrow.Authenticate(ctx, credential)
	if err != nil {
		return result{}, err
	}
	request := args.request("create_deal", credential, "api_key")
	request.Body = func() (map[string]any, error) { return s.declaration(args) }
	declared, created, err := s.Calls.CreateDeal(ctx, principal, request)
	if err != nil {
		return result{}, err
	}
	invitations := s.invitations(declared, created)
	r, err := encoded(created, nil, func(c escrow.Created) next { return afterCreation(declared, c, len(invitations) > 0) })
	r.blocks, r.shownOnce, r.lookAt = invitations, true, created.CommitDeadline
	return r, err
}

// maxInvited is the largest number of parties for which create_deal returns invitations. Each
// invitation has about 1 KiB, so this number bounds the size of the answer.
const maxInvited = 64

func (s *server) invitations(d escrow.Declared, c escrow.Created) (all []string) {
	if len(c.Invites) > maxInvited {
		return nil
	}
	alg, _ := algorithm.Lookup(d.Algorithm)
	for _, invite := range c.Invites[1:] {
		seat := invitation.Seat{
			DealID: c.DealID, Algorithm: alg, From: c.Invites[0].Label, Party: invite.Party, Label: invite.Label,
			Token: invite.Token, CommitDeadline: c.CommitDeadline, RevealDeadline: c.RevealDeadline,
		}
		if d.SeatKeys != nil {
			seat.Key = d.SeatKeys[invite.Party]
		}
		all = append(all, invitation.Text(s.PublicURL, seat))
	}
	return all
}

// deal authorizes the caller for an action on the deal that the argument deal_id names.
// credentials lists the arguments that may hold the caller's credential; the first one that
// is set counts.
func (s *server) deal(ctx context.Context, args arguments, action escrow.Action, credentials ...string) (credential string, access escrow.Access, err error) {
	if credential, err = args.credential(credentials...); err != nil {
		return
	}
	principal, err := s.Escrow.Authenticate(ctx, credential)
	if err != nil {
		return
	}
	dealID, err := args.text("deal_id", "the deal_id that create_deal returned")
	if err != nil {
		return
	}
	access, err = s.Escrow.Authorize(ctx, principal, dealID, action)
	return
}

func (s *server) commitInput(ctx context.Context, args arguments) (result, error) {
	token, access, err := s.deal(ctx, args, escrow.AsParty, "invite_token")
	if err != nil {
		return result{}, err
	}
	committed, err := s.Calls.Commit(ctx, access, args.request("commit_input", token, "invite_token"))
	r, err := encoded(committed, err, func(c wire.Committed) next { return afterCommit(c.Committed) })
	r.lookAt = deadline(access.Deal(), committed.State)
	return r, err
}

// deadline returns 0 if the deal has ended. It also returns 0 for a random.v1 deal in REVEALING,
// which may wait for its beacon round.
func deadline(d *escrow.Deal, state deal.State) int64 {
	switch {
	case state == deal.Committing:
		return d.CommitDeadline
	case state == deal.Revealing && d.RoundTime == nil:
		return d.RevealDeadline
	}
	return 0
}

func (s *server) revealInput(ctx context.Context, args arguments) (result, error) {
	token, access, err := s.deal(ctx, args, escrow.AsParty, "invite_token")
	if err != nil {
		return result{}, err
	}
	revealed, err := s.Calls.Reveal(ctx, access, args.request("reveal_input", token, "invite_token"))
	step := afterReveal(revealed, access.Deal().RoundTime != nil)
	r, err := encoded(revealedBody{revealed, step.call()}, err, func(revealedBody) next { return step })
	r.lookAt = deadline(access.Deal(), revealed.State)
	return r, err
}

// revealedBody is the answer of reveal_input: the REST body and the next step, because
// some clients show their model only structuredContent.
type revealedBody struct {
	escrow.Revealed
	Next string `json:"next"`
}

func (s *server) getDeal(ctx context.Context, args arguments) (result, error) {
	_, access, err := s.deal(ctx, args, escrow.Read, "invite_token", "api_key")
	if err != nil {
		return result{}, err
	}
	wait, err := args.waitSince(ctx)
	if err != nil {
		return result{}, err
	}
	clear(args) // frees the arguments while the call waits
	view, err := s.Escrow.ViewAfter(ctx, access, wait)
	if err != nil {
		return result{}, err
	}
	body, err := web.Encode(wire.ViewOf(view))
	if err == nil {
		err = limits.Answer(ctx, copies*len(body))
	}
	r := result{body: body, next: afterView(access.Party(), view)}
	if view.CertID == nil { // if CertID is set, the deal has ended and has no further deadline
		r.lookAt, _ = s.Escrow.LookAt(view)
	}
	return r, err
}

// getCertificate first makes the draw of a random.v1 deal if the draw is due, because no other
// tool draws.
func (s *server) getCertificate(ctx context.Context, args arguments) (result, error) {
	_, access, err := s.deal(ctx, args, escrow.AsParty, "invite_token")
	if err != nil {
		return result{}, err
	}
	wait, err := args.waitSince(ctx)
	if err != nil {
		return result{}, err
	}
	whole, err := args.flag("bundle")
	if err != nil {
		return result{}, err
	}
	clear(args) // frees the arguments while the call waits
	var draw func() error
	if access.Deal().RoundTime != nil {
		draw = func() error { return s.draw(ctx, access) }
	}
	issued, err := s.Escrow.CertificateAfter(ctx, access, wait, draw)
	if err != nil {
		return result{}, err
	}
	r, held := result{next: afterCertificate(issued)}, 0 // held counts the bytes of the bundle in memory
	if whole {
		r.next.Why += aboutBundle
		bundle, err := s.Escrow.Bundle(ctx, access)
		if err != nil {
			return result{}, err
		}
		issued = bundle.Issued // so that the certificate has the same proof as the bundle
		text, err := encodedBundle(bundle)
		if err != nil {
			return result{}, err
		}
		r.blocks, held = []string{string(text)}, 2*len(text)
	}
	if r.body, err = wire.Certificate(issued); err == nil {
		err = limits.Answer(ctx, copies*len(r.body)+held)
	}
	return r, err
}

// draw makes the draw of a random.v1 deal. It returns nil if reveals are missing or the deal
// has ended, because the caller then reads the certificate and gets it or the reason why there
// is none. draw converts BEACON_NOT_READY to CERT_NOT_READY.
func (s *server) draw(ctx context.Context, access escrow.Access) error {
	_, err := s.Escrow.Entropy(ctx, access)
	switch {
	case problem.Is(err, problem.RevealsMissing), problem.Is(err, problem.DealEnded):
		return nil
	case problem.Is(err, problem.BeaconNotReady):
		// SPEC 7.3: CERT_NOT_READY is the only code for a certificate that is not issued yet.
		early := problem.From(err)
		return problem.New(problem.CertNotReady, "all have revealed, but the draw cannot be made yet: %s", early.Fix(words)).WithRetryAfter(early.RetryAfter)
	}
	return err
}

func (s *server) verifyCertificate(ctx context.Context, args arguments) (result, error) {
	if args["certificate"] != nil {
		document, certID, err := wire.SubmittedCertificate(args)
		if err != nil {
			return result{}, err
		}
		report, err := s.Escrow.VerifySubmitted(ctx, document, certID)
		return encoded(report, err, afterSubmitted)
	}
	certID, err := args.text("cert_id", "the cert_id in a certificate or the certificate_id that get_deal returned. To check a whole certificate, pass the certificate itself as the argument certificate")
	if err != nil {
		return result{}, err
	}
	report, err := s.Escrow.Verify(ctx, certID)
	return encoded(report, err, afterVerification)
}

func encodedBundle(b escrow.Bundle) ([]byte, error) {
	body, err := wire.BundleOf(b)
	if err != nil {
		return nil, err
	}
	return web.Encode(body)
}
