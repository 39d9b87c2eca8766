package ops

import (
	"context"
	"net/http"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Limits of request bodies in bytes.
const (
	maxCreation  = 4 << 20          // fits 10,000 party labels
	maxReveal    = 4 << 20          // fits an input of 512 KiB with every character escaped
	maxCommit    = 1 << 20          // fits a seal of 768 KiB with its line feeds escaped
	maxSubmitted = 8 << 20          // fits a certificate of 10,000 parties with seat keys and long labels
	maxSmall     = budget.SmallBody // the other bodies
)

// maxDeclared is the most values of a body that creates a deal: 10,000 labels, as many keys, and params.
const maxDeclared = 1 << 15

// Table lists the operations that Run serves.
var Table = []Served{
	CreateKey, CreateDeal, ReadDeal, ReadDeclaration, Commit, Reveal, Draw, Cancel,
	ReadCertificate, ReadBundle, ReadInputs, ReadSeals, Disclose, ReadPublic, Verify, VerifySubmitted, ReadBeacon,
}

// none is the request of an operation without parameters.
type none = struct{}

// The operations: what each needs, and the use case that it calls.
var (
	// CreateKey needs no credential, so its Idempotency-Key is scoped to the client's address.
	CreateKey = &Endpoint[none, escrow.NewKey]{
		Operation: Operation{Op: problem.CreateKey, Who: Newcomer, Limit: maxSmall, Empty: true, Status: http.StatusCreated, Lifetime: escrow.KeyLifetime},
		Do: func(ctx context.Context, s *Services, _ Caller, _ none, rec *escrow.Record) (escrow.NewKey, error) {
			return s.Escrow.CreateKey(ctx, rec)
		},
	}

	// Only the answer of CreateDeal shows the tokens, so the memory for it is reserved first.
	CreateDeal = &Endpoint[escrow.Declared, escrow.Created]{
		Operation: Operation{Op: problem.CreateDeal, Who: KeyHolder, Limit: maxCreation, Values: maxDeclared, Answer: createdBytes, Status: http.StatusCreated, Lifetime: escrow.ReplayLifetime},
		Parse:     body(Declared),
		Do: func(ctx context.Context, s *Services, by Caller, d escrow.Declared, rec *escrow.Record) (escrow.Created, error) {
			if err := s.Callers.MayCreateDeal(ctx, by.Principal.Key(), d.Units()); err != nil {
				return escrow.Created{}, err
			}
			return s.Escrow.Create(ctx, by.Principal, d, rec, func(bytes int) error {
				return s.Callers.MayStore(ctx, by.Principal.Key(), by.address, bytes)
			})
		},
		Encode: func(_ *Message, _ Caller, c escrow.Created) (any, error) { return wire.CreatedOf(c), nil },
	}

	ReadDeal = &Endpoint[escrow.Wait, escrow.View]{
		Operation: Operation{Op: problem.ReadDeal, Who: Member, Action: escrow.Read, Cache: web.CachePrivate},
		Parse:     wait,
		Cost:      perParty(128, 160, (*escrow.Deal).ViewBytes),
		Do: func(ctx context.Context, s *Services, by Caller, wait escrow.Wait, _ *escrow.Record) (escrow.View, error) {
			return s.Escrow.ViewAfter(ctx, by.Access, wait)
		},
		Tag: func(m *Message, _ Caller, v *escrow.View) string {
			if v == nil || m.Unless == nil { // the tag is that of the body
				return ""
			}
			return ViewTag(*v)
		},
		Encode: func(_ *Message, _ Caller, v escrow.View) (any, error) { return wire.ViewOf(v), nil },
	}

	ReadDeclaration = &Endpoint[none, escrow.Declaration]{
		Operation: Operation{Op: problem.ReadDeclaration, Who: Member, Action: escrow.Read},
		Cost:      perParty(128, 160, (*escrow.Deal).DeclarationBytes),
		Do:        of((*escrow.Service).Declaration),
		Has:       has((*escrow.Service).HasDeclaration),
	}

	Commit = &Endpoint[escrow.Commitment, escrow.Committed]{
		Operation: Operation{Op: problem.Commit, Who: Member, Action: escrow.AsParty, Limit: maxCommit, Lifetime: escrow.ReplayLifetime},
		Parse:     body(Commitment),
		Do:        once((*escrow.Service).Commit),
		Stored:    again((*escrow.Service).StoredCommit),
		Encode: func(m *Message, by Caller, c escrow.Committed) (any, error) {
			return wire.CommittedOf(by.Access.Deal(), c, m.Surface), nil
		},
	}

	Reveal = &Endpoint[escrow.Opening, escrow.Revealed]{
		Operation: Operation{Op: problem.Reveal, Who: Member, Action: escrow.AsParty, Limit: maxReveal, Values: canon.MaxValues, Lifetime: escrow.ReplayLifetime},
		Parse:     body(Opening),
		Do:        once((*escrow.Service).Reveal),
		Stored:    again((*escrow.Service).StoredReveal),
	}

	// Every Draw of a deal returns the same, so an Idempotency-Key has no effect, but must be valid.
	Draw = &Endpoint[none, escrow.Drawn]{
		Operation: Operation{Op: problem.Draw, Who: Member, Action: escrow.DrawEntropy},
		Parse: func(m *Message, _ map[string]any) (none, error) {
			_, err := m.IdempotencyKey()
			return none{}, err
		},
		Do: of((*escrow.Service).Entropy),
	}

	Cancel = &Endpoint[none, escrow.Cancelled]{
		Operation: Operation{Op: problem.Cancel, Who: Member, Action: escrow.CancelDeal, Limit: maxSmall, Empty: true, Lifetime: escrow.ReplayLifetime},
		Do: func(ctx context.Context, s *Services, by Caller, _ none, rec *escrow.Record) (escrow.Cancelled, error) {
			return s.Escrow.Cancel(ctx, by.Access, rec)
		},
		Stored: func(_ context.Context, _ *Services, by Caller) (escrow.Cancelled, error) {
			return by.Access.StoredCancel(), nil
		},
	}

	ReadCertificate = &Endpoint[escrow.Wait, escrow.Issued]{
		Operation: Operation{Op: problem.ReadCertificate, Who: Member, Action: escrow.AsParty, Cache: web.CachePrivate},
		Parse:     wait,
		Cost:      perParty(512, 512, nil),
		Do: func(ctx context.Context, s *Services, by Caller, wait escrow.Wait, _ *escrow.Record) (escrow.Issued, error) {
			return s.Escrow.CertificateAfter(ctx, by.Access, wait, nil)
		},
		Has: func(ctx context.Context, s *Services, by Caller, wait escrow.Wait) error {
			err := s.Escrow.HasCertificate(ctx, by.Access)
			if wait.For > 0 && problem.Is(err, problem.CertNotReady) {
				_, err = s.Escrow.CertificateAfter(ctx, by.Access, wait, nil)
			}
			return err
		},
		Tag:    func(_ *Message, by Caller, _ *escrow.Issued) string { return by.Access.Deal().CertificateTag() },
		Encode: func(_ *Message, _ Caller, c escrow.Issued) (any, error) { return wire.Certificate(c) },
	}

	// A bundle can hold openings, so it is not compressed, and no cache stores it.
	ReadBundle = &Endpoint[bool, escrow.Bundle]{
		Operation: Operation{Op: problem.ReadBundle, Who: Member, Action: escrow.AsParty},
		Parse:     func(m *Message, _ map[string]any) (bool, error) { return m.Openings() },
		Cost:      perParty(512, 512, (*escrow.Deal).BundleBytes),
		Do: func(ctx context.Context, s *Services, by Caller, whole bool, _ *escrow.Record) (escrow.Bundle, error) {
			return s.Escrow.Bundle(ctx, by.Access, whole)
		},
		Has: func(ctx context.Context, s *Services, by Caller, _ bool) error {
			return s.Escrow.HasCertificate(ctx, by.Access)
		},
		Encode: func(_ *Message, _ Caller, b escrow.Bundle) (any, error) { return wire.BundleOf(b) },
	}

	ReadInputs = &Endpoint[none, escrow.OpenInputs]{
		Operation: Operation{Op: problem.ReadInputs, Who: Member, Action: escrow.AsParty},
		Do:        of((*escrow.Service).Inputs),
		Has:       has((*escrow.Service).HasInputs),
	}

	ReadSeals = &Endpoint[none, escrow.SealTexts]{
		Operation: Operation{Op: problem.ReadSeals, Who: Member, Action: escrow.AsParty},
		Do:        of((*escrow.Service).SealTexts),
		Has:       has((*escrow.Service).HasSealTexts),
	}

	// Disclose may be repeated, so an Idempotency-Key has no effect.
	Disclose = &Endpoint[escrow.Opening, escrow.Disclosed]{
		Operation: Operation{Op: problem.Disclose, Who: Member, Action: escrow.AsParty, Limit: maxReveal, Values: canon.MaxValues},
		Parse:     body(Opening),
		Do: func(ctx context.Context, s *Services, by Caller, o escrow.Opening, _ *escrow.Record) (escrow.Disclosed, error) {
			return s.Escrow.Disclose(ctx, by.Access, o)
		},
	}

	ReadPublic = &Endpoint[string, []byte]{
		Operation: Operation{Op: problem.ReadPublic, Public: true, Cache: web.CachePublic},
		Parse:     func(m *Message, _ map[string]any) (string, error) { return m.DealID() },
		Do: func(ctx context.Context, s *Services, _ Caller, dealID string, _ *escrow.Record) ([]byte, error) {
			return s.Escrow.Public(ctx, dealID, wire.PublicOf)
		},
		Has: func(ctx context.Context, s *Services, _ Caller, dealID string) error {
			return s.Escrow.IsPublic(ctx, dealID)
		},
	}

	Verify = &Endpoint[string, escrow.Verification]{
		Operation: Operation{Op: problem.Verify, Public: true},
		Parse:     func(m *Message, _ map[string]any) (string, error) { return m.CertID() },
		Do: func(ctx context.Context, s *Services, _ Caller, certID string, _ *escrow.Record) (escrow.Verification, error) {
			return s.Escrow.Verify(ctx, certID)
		},
		Has: func(ctx context.Context, s *Services, _ Caller, certID string) error {
			return s.Escrow.HasReport(ctx, certID)
		},
	}

	VerifySubmitted = &Endpoint[Submitted, escrow.SubmittedReport]{
		Operation: Operation{Op: problem.VerifySubmitted, Limit: maxSubmitted, Values: canon.MaxValues},
		Parse:     body(SubmittedCertificate),
		Do: func(ctx context.Context, s *Services, _ Caller, c Submitted, _ *escrow.Record) (escrow.SubmittedReport, error) {
			return s.Escrow.VerifySubmitted(ctx, c.Document, c.CertID)
		},
	}

	ReadBeacon = &Endpoint[none, wire.Beacon]{
		Operation: Operation{Op: problem.ReadBeacon, Public: true, Cache: web.CachePublic},
		Do: func(_ context.Context, s *Services, _ Caller, _ none, _ *escrow.Record) (wire.Beacon, error) {
			return wire.BeaconOf(s.Escrow.Chain()), nil
		},
	}
)

// createdBytes estimates the answer of CreateDeal: it repeats the labels, and has an invite token of each
// party.
func createdBytes(body, values int) int { return body + 100*min(values, 10_000) }

// perParty estimates what a call holds from the bytes that each party takes in memory and in each copy of
// the answer, from params and texts, and from what escrow will hold (nil: no more): to grow later would take longer, and could
// fail while many others do.
func perParty(held, copied int64, also func(*escrow.Deal) int) func(Caller, *Message) int64 {
	return func(by Caller, m *Message) int64 {
		d := by.Access.Deal()
		n := (held+copied*int64(m.Copies))*int64(len(d.Labels)) + int64(len(d.Params)+d.TextBytes())*int64(1+m.Copies)
		if also != nil {
			n = max(n, int64(also(d)))
		}
		return n
	}
}

// ViewTag returns the ETag of a view over REST, or "" if the view cannot be encoded.
func ViewTag(v escrow.View) string {
	return v.Tag(func() string {
		body, err := web.Encode(wire.ViewOf(v))
		if err != nil {
			return ""
		}
		return `"` + web.Tag(body) + `"`
	})
}

func wait(m *Message, _ map[string]any) (escrow.Wait, error) { return m.Wait() }

func body[Req any](parse func(map[string]any) (Req, error)) func(*Message, map[string]any) (Req, error) {
	return func(_ *Message, members map[string]any) (Req, error) { return parse(members) }
}

type do[Req, T any] = func(context.Context, *Services, Caller, Req, *escrow.Record) (T, error)

func of[T any](use func(*escrow.Service, context.Context, escrow.Access) (T, error)) do[none, T] {
	return func(ctx context.Context, s *Services, by Caller, _ none, _ *escrow.Record) (T, error) {
		return use(s.Escrow, ctx, by.Access)
	}
}

func has(use func(*escrow.Service, context.Context, escrow.Access) error) func(context.Context, *Services, Caller, none) error {
	return func(ctx context.Context, s *Services, by Caller, _ none) error { return use(s.Escrow, ctx, by.Access) }
}

func once[Req, T any](use func(*escrow.Service, context.Context, escrow.Access, Req, *escrow.Record) (T, error)) do[Req, T] {
	return func(ctx context.Context, s *Services, by Caller, r Req, rec *escrow.Record) (T, error) {
		return use(s.Escrow, ctx, by.Access, r, rec)
	}
}

func again[T any](use func(*escrow.Service, context.Context, escrow.Access) (T, error)) func(context.Context, *Services, Caller) (T, error) {
	return func(ctx context.Context, s *Services, by Caller) (T, error) { return use(s.Escrow, ctx, by.Access) }
}
