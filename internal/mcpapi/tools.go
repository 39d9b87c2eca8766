package mcpapi

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/invitation"
	"github.com/fairpact/fairpact/internal/limits"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/wire"
)

// tool is a name of SPEC 4.1 and what it does. Its description, schemas and
// hints are tools/<name>.json.
type tool struct {
	name string
	run  func(*server, context.Context, arguments) (result, error)
	// arguments are the names that the input schema has, in order.
	arguments []string
}

// SPEC 4.1: nine tools cover the entire protocol.
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

// describe reads a tool's description, with what the algorithms say of
// themselves in it.
func describe(name string) (*mcp.Tool, error) {
	text, err := descriptions.ReadFile("tools/" + name + ".json")
	if err != nil {
		return nil, err
	}
	var params, inputs []json.RawMessage
	for _, a := range algorithm.All() {
		params, inputs = append(params, a.Params.Example), append(inputs, a.Input.Example)
	}
	text, err = algorithm.FillJSON(text, map[string]any{"enum": algorithm.IDs(), "example params": params, "example inputs": inputs})
	if err != nil {
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

// argumentNames returns the names of a tool's arguments, sorted.
func argumentNames(described *mcp.Tool) ([]string, error) {
	var schema struct{ Properties map[string]json.RawMessage }
	raw, ok := described.InputSchema.(json.RawMessage)
	if !ok {
		return nil, fmt.Errorf("the input schema is a %T", described.InputSchema)
	}
	err := json.Unmarshal(raw, &schema)
	return slices.Sorted(maps.Keys(schema.Properties)), err
}

// copies is how often a result's bytes are held while it is sent: the body, in the
// answer's text and structuredContent, and the SDK's own.
const copies = 4

// result is a tool's answer: the REST body, and what to do next.
type result struct {
	body   []byte
	next   next
	lookAt int64  // unix seconds: by when to look at the deal again; 0: nothing will change
	bundle []byte // nil: not asked for

	invitations []string // of the parties after the first
}

// encoded writes what a use case answered; advise says what to do next.
func encoded[T any](v T, err error, advise func(T) next) (result, error) {
	if err != nil {
		return result{}, err
	}
	body, err := wire.Encode(v)
	return result{body: body, next: advise(v)}, err
}

// request is the call as idempotency sees it. but are the arguments that REST
// takes outside the body.
func (a arguments) request(tool, caller string, but ...string) (idempotency.Request, error) {
	key, err := a.idempotencyKey()
	return idempotency.Request{
		Key: key, Caller: caller, Method: "MCP", Path: tool, Status: 200,
		Body: func() []byte { return canon.Encode(a.body(but...)) }, Lifetime: idempotency.Lifetime,
	}, err
}

func (s *server) createKey(ctx context.Context, args arguments) (result, error) {
	address := callerAddress(ctx)
	if err := s.Callers.MayTakeKey(ctx, address); err != nil {
		return result{}, err
	}
	once, err := args.request("create_key", address)
	if err != nil {
		return result{}, err
	}
	once.Lifetime, once.NoCopy = idempotency.KeyLifetime, true
	key, err := idempotency.Do(ctx, s.Guard, once,
		func(rec *idempotency.Record) (escrow.NewKey, error) { return s.Escrow.CreateKey(ctx, rec) },
		idempotency.Lost[escrow.NewKey])
	return encoded(key, err, afterKey)
}

func (s *server) listAlgorithms(context.Context, arguments) (result, error) {
	return result{body: s.catalogue, next: afterCatalogue()}, nil
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
	if err := s.Escrow.MayCreate(principal); err != nil {
		return result{}, err
	}
	body, err := s.declaration(args)
	if err != nil {
		return result{}, err
	}
	declared, err := wire.Declared(body)
	if err != nil {
		return result{}, err
	}
	once, err := args.request("create_deal", credential, "api_key")
	if err != nil {
		return result{}, err
	}
	if err := limits.Answer(ctx, copies*declared.AnswerBytes()); err != nil {
		return result{}, err
	}
	created, err := idempotency.Do(ctx, s.Guard, once,
		func(rec *idempotency.Record) (escrow.Created, error) {
			if err := s.Callers.MayCreateDeal(ctx, principal.Key(), declared.Units()); err != nil {
				return escrow.Created{}, err
			}
			return s.Escrow.Create(ctx, principal, declared, rec)
		}, idempotency.Lost[escrow.Created])
	if err != nil {
		return result{}, err
	}
	invitations := s.invitations(ctx, principal, created)
	r, err := encoded(created, nil, func(c escrow.Created) next { return afterCreation(declared, c, len(invitations) > 0) })
	r.invitations = invitations
	return r, err
}

// maxInvited is how many parties a deal may have for its invitations to be
// answered: each has about 1 KiB.
const maxInvited = 64

// invitations words one for each party but the caller's. A creation that is
// replayed says the deadlines of the first call, so they are the deal's own.
// Where the deal cannot be read there are none: the tokens must reach the caller.
func (s *server) invitations(ctx context.Context, p escrow.Principal, c escrow.Created) (all []string) {
	access, err := s.Escrow.Authorize(ctx, p, c.DealID, escrow.Read)
	if err != nil || len(c.Invites) > maxInvited {
		return nil
	}
	d := access.Deal()
	alg, _ := algorithm.Lookup(d.Algorithm)
	for _, invite := range c.Invites[1:] {
		all = append(all, invitation.Text(s.PublicURL, invitation.Seat{
			DealID: c.DealID, Algorithm: alg.ID, Purpose: alg.Purpose, Party: invite.Party, Label: invite.Label,
			Token: invite.Token, CommitDeadline: d.CommitDeadline, RevealDeadline: d.RevealDeadline,
		}))
	}
	return all
}

// deal finds the caller and its permission for the deal that is meant.
func (s *server) deal(ctx context.Context, args arguments, action escrow.Action, credentials ...string) (credential string, access escrow.Access, err error) {
	if credential, err = args.credential(credentials...); err != nil {
		return
	}
	principal, err := s.Escrow.Authenticate(ctx, credential)
	if err != nil {
		return
	}
	dealID, err := args.text("deal_id", "the deal_id that create_deal answered")
	if err != nil {
		return
	}
	access, err = s.Escrow.Authorize(ctx, principal, dealID, action)
	return
}

func (s *server) commitInput(ctx context.Context, args arguments) (result, error) {
	token, access, err := s.deal(ctx, args, escrow.Act, "invite_token")
	if err != nil {
		return result{}, err
	}
	commitment, err := wire.Commitment(args)
	if err != nil {
		return result{}, err
	}
	once, err := args.request("commit_input", token, "invite_token")
	if err != nil {
		return result{}, err
	}
	worded := func(c escrow.Committed, err error) (wire.CommittedBody, error) {
		return wire.Committed(access.Deal(), c), err
	}
	done, err := idempotency.Do(ctx, s.Guard, once,
		func(rec *idempotency.Record) (wire.CommittedBody, error) {
			return worded(s.Escrow.Commit(ctx, access, commitment, rec))
		},
		func() (wire.CommittedBody, error) { return worded(s.Escrow.Committed(ctx, access)) })
	return encoded(done, err, func(c wire.CommittedBody) next { return afterCommit(token, c.Committed) })
}

func (s *server) revealInput(ctx context.Context, args arguments) (result, error) {
	token, access, err := s.deal(ctx, args, escrow.Act, "invite_token")
	if err != nil {
		return result{}, err
	}
	opening, err := wire.Opening(args)
	if err != nil {
		return result{}, err
	}
	once, err := args.request("reveal_input", token, "invite_token")
	if err != nil {
		return result{}, err
	}
	done, err := idempotency.Do(ctx, s.Guard, once,
		func(rec *idempotency.Record) (escrow.Revealed, error) {
			return s.Escrow.Reveal(ctx, access, opening, rec)
		},
		func() (escrow.Revealed, error) { return s.Escrow.Revealed(ctx, access) })
	return encoded(done, err, func(r escrow.Revealed) next { return afterReveal(token, r) })
}

func (s *server) getDeal(ctx context.Context, args arguments) (result, error) {
	credential, access, err := s.deal(ctx, args, escrow.Read, "invite_token", "api_key")
	if err != nil {
		return result{}, err
	}
	wait, err := args.waitSince(ctx)
	if err != nil {
		return result{}, err
	}
	clear(args) // a call that waits keeps nothing that it does not need
	view, err := s.Escrow.ViewAfter(ctx, access, wait)
	if err != nil {
		return result{}, err
	}
	body, err := wire.View(view)
	if err == nil {
		err = limits.Answer(ctx, copies*len(body))
	}
	at, _ := s.Escrow.LookAt(view)
	return result{body: body, next: afterView(credential, access.Party(), view), lookAt: at}, err
}

// getCertificate draws a deal with a beacon round first, where that is due: an agent has
// no other tool for it.
func (s *server) getCertificate(ctx context.Context, args arguments) (result, error) {
	_, access, err := s.deal(ctx, args, escrow.ReadCertificate, "invite_token")
	if err != nil {
		return result{}, err
	}
	wait, err := args.waitSince(ctx)
	if err != nil {
		return result{}, err
	}
	whole, given := args["bundle"].(bool)
	if args["bundle"] != nil && !given {
		return result{}, problem.New(problem.InvalidRequest, "bundle must be true or false")
	}
	clear(args) // a call that waits keeps nothing that it does not need
	issued, err := s.Escrow.CertificateAfter(ctx, access, wait, func() (escrow.Issued, error) {
		if access.Deal().RoundTime != nil {
			if err := s.draw(ctx, access); err != nil {
				return escrow.Issued{}, err
			}
		}
		return s.Escrow.Certificate(ctx, access)
	})
	if err != nil {
		return result{}, err
	}
	r := result{next: afterCertificate(issued)}
	if whole {
		r.next.Why += aboutBundle
		bundle, err := s.Escrow.Bundle(ctx, access)
		if err != nil {
			return result{}, err
		}
		issued = bundle.Issued // with the proof that is in the bundle
		if r.bundle, err = wire.Bundle(bundle); err != nil {
			return result{}, err
		}
	}
	if r.body, err = wire.Certificate(issued); err == nil {
		err = limits.Answer(ctx, copies*len(r.body)+2*len(r.bundle))
	}
	return r, err
}

// draw runs the entropy call and ignores errors that mean that there is nothing to
// draw: the certificate call then says why.
func (s *server) draw(ctx context.Context, access escrow.Access) error {
	_, err := s.Escrow.Entropy(ctx, access)
	switch {
	case problem.Is(err, problem.RevealsMissing), problem.Is(err, problem.DealEnded):
		return nil
	case problem.Is(err, problem.BeaconNotReady):
		// SPEC 7.3: a certificate that is not issued yet has one code.
		early := problem.From(err)
		return problem.New(problem.CertNotReady, "all have revealed and the draw waits for its beacon: %s", early.Fix(words)).After(early.RetryAfter)
	}
	return err
}

func (s *server) verifyCertificate(ctx context.Context, args arguments) (result, error) {
	if args["certificate"] != nil {
		document, certID, err := wire.Handed(args)
		if err != nil {
			return result{}, err
		}
		report, err := s.Escrow.VerifyHanded(ctx, document, certID)
		return encoded(report, err, func(h escrow.Handed) next { return afterVerification(h.Verification) })
	}
	certID, err := args.text("cert_id", "the cert_id of a certificate or certificate_id of get_deal, unless you pass the document itself as certificate")
	if err != nil {
		return result{}, err
	}
	report, err := s.Escrow.Verify(ctx, certID)
	return encoded(report, err, afterVerification)
}
