// Package ops holds the operations of the API that REST and MCP share: the table of operations
// (operations.go), and the one function that serves each of them (Run).
package ops

import (
	"context"
	"net/http"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Services is what the operations use.
type Services struct {
	Escrow  *escrow.Service
	Guard   *escrow.Guard
	Callers *caller.Policy
}

// Operation says how an operation is served, except for its types (see Endpoint).
type Operation struct {
	problem.Op
	Who      Who
	Action   escrow.Action              // if Who is Member
	Limit    int64                      // longest body in bytes; 0: the operation reads no body
	Values   int                        // most values of a body; 0: SmallValues
	Answer   func(body, values int) int // bytes of the answer for a body, to hold before an effect whose answer must not be lost; may be nil
	Empty    bool                       // the body may be left out
	Status   int                        // HTTP status of success; 0: 200
	Public   bool                       // web pages of any origin may read the answer (CORS)
	Cache    string                     // see web.Route; MUST be empty if the answer holds a credential or an input: the size of a compressed answer could reveal it (BREACH)
	Lifetime time.Duration              // how long an Idempotency-Key replays the answer; 0: the operation takes no key
}

// Who may call an operation.
type Who int

// The callers of operations.
const (
	Anyone    Who = iota
	Newcomer      // anyone, within the limit of new API keys of the network
	KeyHolder     // the holder of an API key
	Member        // a credential that permits the Action on the deal
)

// Message is a call as REST or MCP received it.
type Message struct {
	Parts
	Surface wire.Surface
	Method  string // Method and Path scope the Idempotency-Key
	Path    string
	Copies  int                   // number of copies of the answer in memory while the answer is sent
	Unless  func(tag string) bool // reports whether the caller needs no body of an answer with this ETag; may be nil
}

// Parts reads a part of a Message when its turn has come.
type Parts interface {
	Address() string                               // the client's IP address
	Credential(Who, escrow.Action) (string, error) // AUTH_REQUIRED if there is none
	DealID() (string, error)
	CertID() (string, error)
	Wait() (escrow.Wait, error)
	Openings() (bool, error)                 // whether the caller asks for openings of any size
	Body(*Operation) (map[string]any, error) // without credentials and idempotency key
	IdempotencyKey() (string, error)         // "" if there is none
}

// Caller is an admitted caller.
type Caller struct {
	Principal  escrow.Principal // set for KeyHolder and Member
	Access     escrow.Access    // set for Member
	credential string
	address    string // set for KeyHolder
}

// Seated reports whether an invite token of the deal admitted the caller.
func (c Caller) Seated() bool { return c.Access.Deal() != nil && c.Access.Party() >= 0 }

// Answer answers a call that succeeded.
type Answer[T any] struct {
	Value T
	Body  []byte // Value as JSON; nil if Message.Unless needs none
	Tag   string // ETag, if it is known without the body
	By    Caller
}

// Endpoint is an operation with the types of its request and its answer.
type Endpoint[Req, T any] struct {
	Operation
	Parse  func(m *Message, body map[string]any) (Req, error) // nil: the request is the zero Req
	Cost   func(Caller, *Message) int64                       // bytes that the call holds at most until its client has the answer; nil: those of a small call
	Do     func(context.Context, *Services, Caller, Req, *escrow.Record) (T, error)
	Has    func(context.Context, *Services, Caller, Req) error // for a HEAD: returns the errors of Do that need no reading or checking of the answer; nil: HEAD runs Do
	Tag    func(*Message, Caller, *T) string                   // returns the ETag of the answer, or what it would be before Do (nil); "": not known; may be nil
	Stored func(context.Context, *Services, Caller) (T, error) // renders the answer of an idempotency record that has none; nil if Do stores the answer with the effect
	Encode func(*Message, Caller, T) (any, error)              // returns the JSON, or a value to encode; nil: T is encoded
}

// Run serves a call. Every call of an operation in Table, over REST or MCP, passes
// its checks in this order:
//
//  1. HTTP syntax: 400, 431 (web.Listener); JSON-RPC syntax (mcp.front)
//  2. route: 404, 405 (web.Router); tool and names of its arguments
//  3. credential: 401
//  4. deal: 403, 404
//  5. size of the body: 413
//  6. JSON syntax and shape of the body: 400
//  7. idempotency: replay or 409
//  8. state of the deal: 409
//  9. checks of the use case: 400
//
// Commit and reveal make 9 first and store without a read: the statement that stores decides 8. If 9
// fails, they make 8 too and answer its error, if any (escrow: lateFirst).
func (e *Endpoint[Req, T]) Run(ctx context.Context, s *Services, m *Message) (answer Answer[T], err error) {
	by, err := s.Admit(ctx, &e.Operation, m) // 3, 4
	if err != nil {
		return answer, err
	}
	call := budget.From(ctx)
	if by.Seated() {
		call.Party()
	}
	var body map[string]any
	if e.Limit > 0 {
		if body, err = m.Body(&e.Operation); err != nil { // 5, 6
			return answer, err
		}
	}
	if err = call.Hold(ctx, e.cost(by, m)); err != nil {
		return answer, err
	}
	var request Req
	if e.Parse != nil {
		if request, err = e.Parse(m, body); err != nil { // 6
			return answer, err
		}
	}
	key := ""
	if e.Lifetime > 0 {
		if key, err = m.IdempotencyKey(); err != nil {
			return answer, err
		}
	}
	answer.By = by
	if e.unneeded(m, &answer, nil) {
		return answer, nil
	}
	rec, err := s.Guard.Begin(ctx, escrow.KeyedCall{Key: key, Caller: by.credential, Method: m.Method, Path: m.Path, Body: body, Lifetime: e.Lifetime}) // 7
	if err != nil {
		return answer, err
	}
	defer rec.End()
	for !rec.Answered {
		if rec.Lost {
			answer.Value, err = e.Stored(ctx, s, by)
		} else {
			answer.Value, err = e.Do(ctx, s, by, request, rec) // 8, 9
		}
		if err = rec.Keep(ctx, answer.Value, err); err != nil {
			return answer, err
		}
	}
	if err = rec.Answer(&answer.Value); err != nil {
		return answer, err
	}
	if e.unneeded(m, &answer, &answer.Value) {
		return answer, nil
	}
	_ = call.Turn(ctx) // without one, the answer comes all the same: its effect has happened
	var value any = answer.Value
	if e.Encode != nil {
		if value, err = e.Encode(m, by, answer.Value); err != nil {
			return answer, err
		}
	}
	encoded := false
	if answer.Body, encoded = value.([]byte); !encoded {
		if answer.Body, err = web.Encode(value); err != nil {
			return answer, err
		}
	}
	size := int64(m.Copies * len(answer.Body))
	if err = call.Hold(ctx, size); e.Method != http.MethodGet {
		err = nil // an effect has happened
	}
	call.Shrink(max(size, budget.SmallCall))
	return answer, err
}

// unneeded sets the tag of an answer, and reports whether the caller needs no body.
func (e *Endpoint[Req, T]) unneeded(m *Message, answer *Answer[T], value *T) bool {
	if e.Tag != nil {
		answer.Tag = e.Tag(m, answer.By, value)
	}
	return answer.Tag != "" && m.Unless != nil && m.Unless(answer.Tag)
}

// ServesHead reports whether Head serves a HEAD of the operation.
func (e *Endpoint[Req, T]) ServesHead() bool { return e.Has != nil }

// Head serves a HEAD without the work for an answer. It returns the errors of Run up to the state of the deal. A later failure of Run,
// such as LOG_UNAVAILABLE or OVERLOADED, it may not notice.
func (e *Endpoint[Req, T]) Head(ctx context.Context, s *Services, m *Message) error {
	by, err := s.Admit(ctx, &e.Operation, m)
	if err != nil {
		return err
	}
	if by.Seated() {
		budget.From(ctx).Party()
	}
	var request Req
	if err = budget.From(ctx).Hold(ctx, budget.SmallCall); err == nil && e.Parse != nil {
		request, err = e.Parse(m, nil)
	}
	if err == nil {
		err = e.Has(ctx, s, by, request)
	}
	return err
}

func (e *Endpoint[Req, T]) cost(by Caller, m *Message) int64 {
	n := budget.SmallCall * int64(m.Copies) / 2
	if e.Cost != nil {
		n = max(n, e.Cost(by, m))
	}
	return n
}

// Admit takes the steps 3 and 4 of Run.
func (s *Services) Admit(ctx context.Context, o *Operation, m *Message) (by Caller, err error) {
	switch o.Who {
	case Anyone:
		return by, nil
	case Newcomer:
		by.credential = m.Address()
		return by, s.Callers.MayTakeKey(ctx, by.credential)
	}
	if by.credential, err = m.Credential(o.Who, o.Action); err != nil {
		return by, err
	}
	if by.Principal, err = s.Escrow.Authenticate(ctx, by.credential); err != nil {
		return by, err
	}
	if o.Who == KeyHolder {
		by.address = m.Address()
		return by, s.Escrow.MayCreate(by.Principal)
	}
	dealID, err := m.DealID()
	if err != nil {
		return by, err
	}
	by.Access, err = s.Escrow.Authorize(ctx, by.Principal, dealID, o.Action)
	return by, err
}

// Served is an Endpoint of any types.
type Served interface {
	Served() *Operation
	Serve(context.Context, *Services, *Message) (Answer[any], error)
	ServesHead() bool
	Head(context.Context, *Services, *Message) error
}

// Served returns the operation of the endpoint.
func (e *Endpoint[Req, T]) Served() *Operation { return &e.Operation }

// Serve is Run with an answer of any type.
func (e *Endpoint[Req, T]) Serve(ctx context.Context, s *Services, m *Message) (Answer[any], error) {
	answer, err := e.Run(ctx, s, m)
	return Answer[any]{answer.Value, answer.Body, answer.Tag, answer.By}, err
}
