package mcpapi

import (
	"context"
	"embed"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
)

// tool is a name of SPEC 4.1 and what it does. Its description, schemas and
// hints are tools/<name>.json.
type tool struct {
	name string
	run  func(*server, context.Context, arguments) (idempotency.Response, next, error)
}

// SPEC 4.1: nine tools cover the entire protocol.
var tools = []tool{
	{"create_key", (*server).createKey},
	{"list_algorithms", (*server).listAlgorithms},
	{"create_deal", (*server).createDeal},
	{"compute_commitment_tool", (*server).computeCommitment},
	{"commit_input", (*server).commitInput},
	{"reveal_input", (*server).revealInput},
	{"get_deal", (*server).getDeal},
	{"get_certificate", (*server).getCertificate},
	{"verify_certificate", (*server).verifyCertificate},
}

//go:embed tools/*.json
var descriptions embed.FS

// describe reads a tool's description. The schemas stay as they are written.
func describe(name string) (*mcp.Tool, error) {
	text, err := descriptions.ReadFile("tools/" + name + ".json")
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

// once runs an effect under the call's idempotency_key, if it has one.
func (s *server) once(ctx context.Context, name string, args arguments, req idempotency.Request, effect func(*idempotency.Record) (idempotency.Response, error), render func() (idempotency.Response, error)) (idempotency.Response, error) {
	key, err := args.idempotencyKey()
	if err != nil {
		return idempotency.Response{}, err
	}
	req.Key, req.Method, req.Path = key, "MCP", name
	return s.Guard.Do(ctx, req, effect, render)
}

// lost renders an answer that is stored with its effect: a record without one
// cannot be.
func lost() (idempotency.Response, error) {
	return idempotency.Response{}, errors.New("mcpapi: an idempotency record without its response")
}

func (s *server) createKey(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	address := callerAddress(ctx)
	if err := s.Callers.MayTakeKey(ctx, address); err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.once(ctx, "create_key", args, idempotency.Request{Caller: address, Body: canon.Encode(args.body()), Lifetime: idempotency.KeyLifetime, NoCopy: true},
		func(rec *idempotency.Record) (idempotency.Response, error) { return s.Escrow.CreateKey(ctx, rec) }, lost)
	return resp, afterKey(resp.Body), err
}

func (s *server) listAlgorithms(context.Context, arguments) (idempotency.Response, next, error) {
	return idempotency.Response{Status: 200, Body: s.catalogue}, afterCatalogue(), nil
}

func (s *server) createDeal(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	credential, err := args.credential("api_key")
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	principal, err := s.Escrow.Authenticate(ctx, credential)
	if err == nil {
		err = s.Escrow.MayCreate(principal)
	}
	body := args.body("api_key")
	var req escrow.CreateRequest
	if err == nil {
		req, err = escrow.ParseCreate(body)
	}
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.once(ctx, "create_deal", args, idempotency.Request{Caller: credential, Body: canon.Encode(body), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return s.Escrow.Create(ctx, principal, req, rec)
		}, lost)
	return resp, afterCreation(req, resp.Body), err
}

// computeCommitment hashes as a party would by itself (SPEC 2.6). It touches no
// deal and keeps nothing.
func (s *server) computeCommitment(_ context.Context, args arguments) (idempotency.Response, next, error) {
	req, err := escrow.ParseReveal(args)
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	commitment := canon.Commitment(canon.Encode(req.Input), []byte(req.Salt))
	body, err := escrow.Encode(struct {
		Commitment string `json:"commitment"`
	}{commitment})
	return idempotency.Response{Status: 200, Body: body}, afterHash(req, commitment), err
}

// deal finds the caller and its permission for the deal that is meant.
func (s *server) deal(ctx context.Context, args arguments, action escrow.Action, credentials ...string) (credential, dealID string, access escrow.Access, err error) {
	if credential, err = args.credential(credentials...); err != nil {
		return
	}
	principal, err := s.Escrow.Authenticate(ctx, credential)
	if err != nil {
		return
	}
	if dealID, err = args.text("deal_id", "the deal_id that create_deal answered"); err != nil {
		return
	}
	access, err = s.Escrow.Authorize(ctx, principal, dealID, action)
	return
}

func (s *server) commitInput(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	token, dealID, access, err := s.deal(ctx, args, escrow.Act, "invite_token")
	var commitment [32]byte
	if err == nil {
		commitment, err = escrow.ParseCommit(args)
	}
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.once(ctx, "commit_input", args, idempotency.Request{Caller: token, Body: canon.Encode(args.body("invite_token")), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return s.Escrow.Commit(ctx, access, commitment, rec)
		},
		func() (idempotency.Response, error) { return s.Escrow.Committed(ctx, access) })
	return resp, afterCommit(dealID, token, resp.Body), err
}

func (s *server) revealInput(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	token, dealID, access, err := s.deal(ctx, args, escrow.Act, "invite_token")
	var req escrow.RevealRequest
	if err == nil {
		req, err = escrow.ParseReveal(args)
	}
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.once(ctx, "reveal_input", args, idempotency.Request{Caller: token, Body: canon.Encode(args.body("invite_token")), Lifetime: idempotency.Lifetime},
		func(rec *idempotency.Record) (idempotency.Response, error) {
			return s.Escrow.Reveal(ctx, access, req, rec)
		},
		func() (idempotency.Response, error) { return s.Escrow.Revealed(ctx, access) })
	return resp, afterReveal(dealID, token, resp.Body), err
}

func (s *server) getDeal(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	credential, dealID, access, err := s.deal(ctx, args, escrow.Read, "invite_token", "api_key")
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.Escrow.View(ctx, access)
	return resp, afterView(dealID, credential, access.Party(), resp.Body), err
}

// getCertificate draws a random.v1 deal first, where that is due: an agent has
// no other tool for it.
func (s *server) getCertificate(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	_, _, access, err := s.deal(ctx, args, escrow.ReadCertificate, "invite_token")
	if err == nil {
		err = s.drawn(ctx, access)
	}
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.Escrow.Certificate(ctx, access)
	return resp, afterCertificate(resp.Body), err
}

// drawn runs the entropy call and passes over what makes it inapplicable: the
// certificate call says then what there is to say.
func (s *server) drawn(ctx context.Context, access escrow.Access) error {
	_, err := s.Escrow.Entropy(ctx, access)
	for _, inapplicable := range []problem.Code{problem.WrongAlgorithm, problem.RevealsMissing, problem.DealEnded} {
		if problem.Is(err, inapplicable) {
			return nil
		}
	}
	if problem.Is(err, problem.BeaconNotReady) {
		// SPEC 7.3: a certificate that is not issued yet has one code.
		early := problem.From(err)
		notReady := problem.New(problem.CertNotReady, "all have revealed and the draw waits for its beacon: %s", early.Fix)
		notReady.RetryAfter = early.RetryAfter
		return notReady
	}
	return err
}

func (s *server) verifyCertificate(ctx context.Context, args arguments) (idempotency.Response, next, error) {
	certID, err := args.text("cert_id", "the cert_id of a certificate, or certificate_id of get_deal")
	if err != nil {
		return idempotency.Response{}, next{}, err
	}
	resp, err := s.Escrow.Verify(ctx, certID)
	return resp, afterVerification(resp.Body), err
}
