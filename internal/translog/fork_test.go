package translog

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// refusals collects the log lines of a replica. The replica logs a line each time a witness
// refuses a checkpoint.
type refusals struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *refusals) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

// has reports whether witness w0 refused the checkpoint of this size with an error that contains
// `what`.
func (r *refusals) has(t *testing.T, size int64, what string) bool {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.text.Bytes()) {
		var record struct {
			Msg, Outcome, Err, Witness string
			Size                       int64 `json:"tree_size"`
		}
		check(t, json.Unmarshal(line, &record))
		if record.Msg == "a witness did not cosign" && record.Outcome == outcomeRefused && record.Witness == "w0" &&
			record.Size == size && strings.Contains(record.Err, what) {
			return true
		}
	}
	return false
}

// A malicious operator runs a second log with the same keys. The two logs share leaves 0 and 1
// and differ after them. The witness has cosigned the first log, so it must not cosign any
// checkpoint of the second.
func TestWitnessRefusesAFork(t *testing.T) {
	t.Parallel()
	d, ws, honest := witnessed(t, "quorum w0", 1)
	d.mustAppend(t, honest, 0, 1, 2)
	certified := func(l *Log) int64 { return l.checkpoints.certified.Load() }
	eventually(t, "the witness cosigns the honest log", func() bool { return certified(honest) == 3 })

	other := newDeployment(t)
	other.signer, other.keys = d.signer, d.keys
	forked := other.withCheckpoints(t, other.pool, Checkpoints{Key: ws.policy.Key})
	var logged refusals
	var last *Log
	// refused appends leaves to the fork, and checks that the witness refuses the new
	// checkpoint. Each call starts a new replica, because a running one would submit the old
	// checkpoint again for up to 10 s (patience).
	refused := func(leaves []int, want string) {
		t.Helper()
		size := other.mustAppend(t, forked, leaves...).LeafIndex + 1
		waitForCheckpoint(t, forked, size)
		config := ws.policy
		config.Origin = testOrigin
		last = other.openWith(t, other.pool, nil, slog.New(slog.NewJSONHandler(&logged, nil)), Options{Checkpoints: &config})
		eventually(t, "the refusal is logged: "+want, func() bool { return logged.has(t, size, want) })
		if n := last.checkpoints.certified.Load(); n != 0 {
			t.Errorf("the fork is certified up to size %d", n)
		}
	}
	refused([]int{0, 1}, "status 409: the witness has cosigned size 3, but the newest checkpoint of this log is of size 2: the log forked")
	last.Close()
	refused([]int{102}, "status 422: ") // a checkpoint of size 3: the witness has cosigned another root of this size
	last.Close()
	refused([]int{103, 104}, "status 422: ")
	client := NewClient("", readPort(t, last), "")
	client.Trust(other.keys)

	at := func(size int64) *signedCheckpoint { return of(forked.checkpoints.at(t.Context(), size)).ok(t) }
	short, same, larger := at(2), at(3), at(5)
	a := &cosigning{checkpoints: forked.checkpoints, client: http.DefaultClient}
	own := of(a.proof(t.Context(), 3, larger)).ok(t)
	shared := of(a.proof(t.Context(), 2, larger)).ok(t)
	for name, request := range map[string]struct {
		checkpoint.AddCheckpoint
		status int
		answer string
	}{
		"from nothing":                {checkpoint.AddCheckpoint{Old: 0, Note: []byte(larger.note)}, 409, "3\n"},
		"from the shared size":        {checkpoint.AddCheckpoint{Old: 2, Proof: shared, Note: []byte(larger.note)}, 409, "3\n"},
		"a smaller size":              {checkpoint.AddCheckpoint{Old: 2, Note: []byte(short.note)}, 409, "3\n"},
		"below the old size":          {checkpoint.AddCheckpoint{Old: 3, Note: []byte(short.note)}, 400, "old size 3"},
		"the same size, another root": {checkpoint.AddCheckpoint{Old: 3, Note: []byte(same.note)}, 422, "does not extend"},
		"a proof from its own tree":   {checkpoint.AddCheckpoint{Old: 3, Proof: own, Note: []byte(larger.note)}, 422, "does not extend"},
		"a proof from a shared size":  {checkpoint.AddCheckpoint{Old: 3, Proof: shared, Note: []byte(larger.note)}, 422, "does not extend"},
		"no proof":                    {checkpoint.AddCheckpoint{Old: 3, Note: []byte(larger.note)}, 422, "does not extend"},
	} {
		response := of(http.Post(ws.servers[0].URL+checkpoint.AddCheckpointPath, "text/plain", bytes.NewReader(request.Marshal()))).ok(t)
		text := string(of(io.ReadAll(response.Body)).ok(t))
		check(t, response.Body.Close())
		if response.StatusCode != request.status || !strings.Contains(text, request.answer) || strings.Contains(text, "—") {
			t.Errorf("%s: %d %q, want %d with %q", name, response.StatusCode, text, request.status, request.answer)
		}
		if response.StatusCode == 409 && (text != request.answer || response.Header.Get("Content-Type") != checkpoint.SizeType) {
			t.Errorf("%s: %q of type %s", name, text, response.Header.Get("Content-Type"))
		}
	}

	if client.LearnCertified(t.Context()); client.Certified() != 0 {
		t.Errorf("a client believes that the fork is certified up to size %d", client.Certified())
	}
	for leaf, n := range []int{0, 1, 102, 103, 104} {
		proof := of(checkpoint.ParseProof(of(client.TLogProof(t.Context(), entryOf(n), int64(leaf), false)).ok(t))).ok(t)
		if _, names, err := ws.policy.Policy.Verify(proof.Note); err == nil || len(names) > 0 {
			t.Errorf("leaf %d of the fork is cosigned by %v", leaf, names)
		}
	}

	d.mustAppend(t, honest, 3)
	eventually(t, "the witness still cosigns the honest log", func() bool { return certified(honest) == 4 })
	requireNoContradiction(t, honest, forked, last)
}
