package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// The values of Event.Op.
const (
	opCreate      = "create"
	opCommit      = "commit"
	opReveal      = "reveal"
	opEntropy     = "entropy"
	opCancel      = "cancel"
	opReuse       = "reuse" // another body under the Idempotency-Key of an acknowledged commit
	opView        = "view"
	opCertificate = "certificate"
	opHead        = "tree head"
	opConsistency = "consistency"
	opVerify      = "verify" // a check of a certificate by the Python verifier
	opUnfinished  = "unfinished"
	opFault       = "fault"
	opSeals       = "seals" // reads the declaration, with the states of the seals
)

// Event is a fault, one attempt at a request, or the result of a check (opVerify,
// opUnfinished).
type Event struct {
	Op    string
	Deal  string `json:",omitempty"`
	Party int
	Key   string `json:",omitempty"` // Idempotency-Key: the same for all attempts at a request
	Via   string `json:",omitempty"` // API (rest or mcp) and process, or the kind of a fault
	Final bool   `json:",omitempty"` // requested after all faults had ended

	Call   int64 // unix nanoseconds
	Return int64 // unix nanoseconds; 0: no answer, or one after which the client must retry, such as 503
	Status int   `json:",omitempty"`
	Code   string
	Body   json.RawMessage `json:",omitempty"`
	Note   string          `json:",omitempty"`

	Recovered int64 `json:",omitempty"` // for a fault: when the deal that measures recovery got its certificate or timed out, in unix nanoseconds

	Plan        *Plan `json:",omitempty"` // set for an acknowledged create
	First, Last *head `json:",omitempty"` // the two tree heads of a consistency proof
}

// head is a tree head (SPEC 2.7).
type head struct {
	Size      int64  `json:"tree_size"`
	Root      string `json:"root_hash"`
	Signature string `json:"signature"`
}

// Plan has the facts of a deal that the checks need.
type Plan struct {
	Kind                           string
	Random                         bool
	Params                         e2e.Body
	CommitDeadline, RevealDeadline int64 // unix seconds
	Inputs                         []e2e.Sealed
	Rejects                        []bool   // by party: whether the party's input has accept:false
	Seals                          []string `json:",omitempty"` // by party: goodSeal, garbageSeal or "" for no seal; nil: a deal without seals
	SealTime                       int64    `json:",omitempty"` // unix seconds, when the round of the seals is due
}

func (e *Event) answered() bool { return e.Return != 0 }

func (e *Event) acknowledged() bool { return e.answered() && e.Status >= 200 && e.Status < 300 }

type history struct {
	mu     sync.Mutex
	events []*Event
}

func (h *history) add(e *Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *history) all() []*Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

func (h *history) write(path string) error {
	var lines bytes.Buffer
	for _, e := range h.all() {
		if err := json.NewEncoder(&lines).Encode(e); err != nil {
			return err
		}
	}
	return os.WriteFile(path, lines.Bytes(), 0o600)
}

func now() int64 { return time.Now().UnixNano() }
