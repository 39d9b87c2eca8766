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

// What an event is about. The first six change a deal.
const (
	opCreate      = "create"
	opCommit      = "commit"
	opReveal      = "reveal"
	opEntropy     = "entropy"
	opCancel      = "cancel"
	opReuse       = "reuse" // another body under the key of an act that was acknowledged
	opView        = "view"
	opCertificate = "certificate"
	opHead        = "tree head"
	opConsistency = "consistency"
	opVerify      = "verify" // by the Python verifier
	opUnfinished  = "unfinished"
	opFault       = "fault"
)

// Event is one attempt of a client, from its start to its answer, or one fault.
type Event struct {
	Op    string
	Deal  string `json:",omitempty"`
	Party int
	Key   string `json:",omitempty"` // Idempotency-Key; attempts of one request share it
	Via   string `json:",omitempty"` // surface and door, or the kind of a fault
	Final bool   `json:",omitempty"` // asked after all faults were over

	Call   int64 // unix nanoseconds
	Return int64 // 0: no answer came, or one that says nothing of the effect
	Status int   `json:",omitempty"`
	Code   string
	Body   json.RawMessage `json:",omitempty"`
	Note   string          `json:",omitempty"`

	Recovered int64 `json:",omitempty"` // of a fault: when a deal that began after it had its certificate

	Plan        *Plan `json:",omitempty"` // of a creation that was answered
	First, Last *head `json:",omitempty"` // of a consistency proof
}

// head is a tree head (SPEC 2.7).
type head struct {
	Size      int64  `json:"tree_size"`
	Root      string `json:"root_hash"`
	Signature string `json:"signature"`
}

// Plan is what the checker must know of a deal beforehand.
type Plan struct {
	Kind                           string
	Random                         bool
	Params                         e2e.Body
	CommitDeadline, RevealDeadline int64 // unix seconds
	Inputs                         []e2e.Sealed
	Rejects                        []bool // by party
}

// answered reports whether the event says what became of the request.
func (e *Event) answered() bool { return e.Return != 0 }

// acknowledged reports whether the request was answered with success.
func (e *Event) acknowledged() bool { return e.answered() && e.Status >= 200 && e.Status < 300 }

// history is what all clients sent and saw.
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

// write writes the history as JSON lines.
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
