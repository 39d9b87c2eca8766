// Package devwitness is a small witness (c2sp.org/tlog-witness) for the local stack
// and for tests. It cosigns with Ed25519 and makes every check that the standard
// demands. Its key is in a file beside the log that it watches, so nobody else should
// trust its cosignatures.
package devwitness

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/logaudit"
)

// Witness keeps the newest checkpoint of each log that it knows in a file.
type Witness struct {
	signer *formats.Signer
	key    checkpoint.Key
	path   string // of the file that keeps state

	mu   sync.Mutex
	logs map[string][]checkpoint.Key // by origin
	// state holds the newest cosigned note of each origin, with the cosignature.
	state map[string]string
}

// Open reads the witness in a directory, or creates one with that name.
func Open(dir, name string) (*Witness, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(filepath.Join(dir, "key"))
	if errors.Is(err, fs.ErrNotExist) {
		var skey string
		if skey, _, err = note.GenerateKey(rand.Reader, name); err != nil {
			return nil, err
		}
		secret = []byte(skey)
		err = os.WriteFile(filepath.Join(dir, "key"), secret, 0o600)
	}
	if err != nil {
		return nil, err
	}
	w := &Witness{path: filepath.Join(dir, "state.json"), logs: map[string][]checkpoint.Key{}, state: map[string]string{}}
	if w.signer, err = formats.NewSignerForCosignatureV1(string(secret)); err != nil {
		return nil, err
	}
	if w.key, err = keyOf(string(secret)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &w.state)
	}
	return w, err
}

// keyOf returns the cosignature key of a private key that sumdb/note has written.
func keyOf(skey string) (checkpoint.Key, error) {
	fields := strings.SplitN(skey, "+", 5) // PRIVATE+KEY+name+id+base64(type ‖ seed)
	seed, err := base64.StdEncoding.DecodeString(fields[len(fields)-1])
	if err != nil || len(fields) != 5 || len(seed) != 1+ed25519.SeedSize {
		return checkpoint.Key{}, errors.New("the key file has no private key")
	}
	vkey, err := note.NewEd25519VerifierKey(fields[2], ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	if err == nil {
		vkey, err = formats.VKeyToCosignatureV1(vkey)
	}
	if err != nil {
		return checkpoint.Key{}, err
	}
	return checkpoint.ParseKey(vkey)
}

// Key returns the key to list in a log's witness policy.
func (w *Witness) Key() checkpoint.Key { return w.key }

// Watch makes the witness cosign checkpoints that these log keys signed.
func (w *Witness) Watch(keys ...checkpoint.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		w.logs[key.Name()] = append(w.logs[key.Name()], key)
	}
}

// ServeHTTP serves add-checkpoint.
func (w *Witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != checkpoint.AddCheckpointPath {
		http.NotFound(out, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, 2*checkpoint.MaxNote))
	if err != nil {
		http.Error(out, "the body is too large or did not arrive", http.StatusBadRequest)
		return
	}
	status, text := w.add(body)
	out.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusConflict {
		out.Header().Set("Content-Type", checkpoint.SizeType)
	}
	out.WriteHeader(status)
	_, _ = io.WriteString(out, text+"\n")
}

// add checks a request in the order of the standard and stores the checkpoint on disk. It
// returns status 200 with the cosignature line, 409 with the size that the witness has, or
// another status with an error text. The lock makes check and update one step.
func (w *Witness) add(body []byte) (status int, text string) {
	request, err := checkpoint.ParseAddCheckpoint(body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	unverified, err := checkpoint.ParseNote(string(request.Note))
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := w.logs[unverified.Origin]
	if len(keys) == 0 {
		return http.StatusNotFound, "unknown origin"
	}
	next, _, err := checkpoint.Open(request.Note, keys, nil)
	if err != nil {
		return http.StatusForbidden, err.Error()
	}
	if request.Old > next.Size {
		return http.StatusBadRequest, fmt.Sprintf("old size %d is above the checkpoint's %d", request.Old, next.Size)
	}
	empty := sha256.Sum256(nil)
	known := checkpoint.Checkpoint{Origin: next.Origin, Root: empty}
	if have, ok := w.state[next.Origin]; ok {
		if known, err = checkpoint.ParseNote(have); err != nil {
			return http.StatusInternalServerError, "the state file is damaged: " + err.Error()
		}
	}
	if request.Old != known.Size {
		return http.StatusConflict, fmt.Sprint(known.Size)
	}
	if next.Size == 0 && next.Root != empty {
		return http.StatusUnprocessableEntity, "not the root of the empty tree"
	}
	if err := checkpoint.VerifyConsistency(known, next, request.Proof); err != nil {
		return http.StatusUnprocessableEntity, err.Error()
	}
	signature, err := w.signer.Sign([]byte(next.Text()))
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	line := w.key.Line(signature)
	if err := w.save(next.Origin, string(request.Note)+line); err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	return http.StatusOK, strings.TrimSuffix(line, "\n")
}

// save replaces the state file atomically and durably, or changes nothing.
func (w *Witness) save(origin, signed string) error {
	next := maps.Clone(w.state)
	next[origin] = signed
	text, err := json.Marshal(next)
	if err == nil {
		err = logaudit.Replace(w.path, text)
	}
	if err == nil {
		w.state = next
	}
	return err
}
