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
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/fairpact/fairpact/internal/checkpoint"
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

// refusal is an answer other than 200.
type refusal struct {
	status int
	text   string
	size   bool // whether text is a tree size
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// ServeHTTP serves add-checkpoint, and each log's newest cosigned checkpoint at
// /HASH/checkpoint, where HASH is the SHA-256 hash of the origin.
func (w *Witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.serveNewest(out, r)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != checkpoint.AddCheckpointPath {
		http.NotFound(out, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, 2*checkpoint.MaxNote))
	if err != nil {
		http.Error(out, "the body is too large or did not arrive", http.StatusBadRequest)
		return
	}
	line, refused := w.add(body)
	switch {
	case refused != nil && refused.size:
		out.Header().Set("Content-Type", checkpoint.SizeType)
		out.WriteHeader(refused.status)
		_, _ = io.WriteString(out, refused.text+"\n")
	case refused != nil:
		http.Error(out, refused.text, refused.status)
	default:
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(out, line)
	}
}

// add checks a request in the order of the standard, stores the checkpoint on disk
// and returns the cosignature line. The lock makes check and update one step.
func (w *Witness) add(body []byte) (line string, refused *refusal) {
	request, err := checkpoint.ParseAddCheckpoint(body)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "%v", err)
	}
	text, err := checkpoint.TextOf(string(request.Note))
	if err != nil {
		return "", refuse(http.StatusBadRequest, "%v", err)
	}
	said, err := checkpoint.Parse(text)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := w.logs[said.Origin]
	if len(keys) == 0 {
		return "", refuse(http.StatusNotFound, "unknown origin")
	}
	next, _, err := checkpoint.Open(request.Note, keys, nil)
	if err != nil {
		return "", refuse(http.StatusForbidden, "%v", err)
	}
	if request.Old > next.Size {
		return "", refuse(http.StatusBadRequest, "old size %d is above the checkpoint's %d", request.Old, next.Size)
	}
	known := checkpoint.Checkpoint{Origin: next.Origin, Root: sha256.Sum256(nil)}
	if have, ok := w.state[next.Origin]; ok {
		text, err := checkpoint.TextOf(have)
		if err == nil {
			known, err = checkpoint.Parse(text)
		}
		if err != nil {
			return "", refuse(http.StatusInternalServerError, "the state is damaged: %v", err)
		}
	}
	if request.Old != known.Size {
		return "", &refusal{http.StatusConflict, fmt.Sprint(known.Size), true}
	}
	if next.Size == 0 && next.Root != sha256.Sum256(nil) {
		return "", refuse(http.StatusUnprocessableEntity, "not the root of the empty tree")
	}
	if err := checkpoint.VerifyConsistency(known, next, request.Proof); err != nil {
		return "", refuse(http.StatusUnprocessableEntity, "%v", err)
	}
	signature, err := w.signer.Sign([]byte(next.Text()))
	if err != nil {
		return "", refuse(http.StatusInternalServerError, "%v", err)
	}
	line = w.key.Line(signature)
	if err := w.save(next.Origin, string(request.Note)+line); err != nil {
		return "", refuse(http.StatusInternalServerError, "%v", err)
	}
	return line, nil
}

// save replaces the state file atomically and durably, or changes nothing.
func (w *Witness) save(origin, signed string) error {
	before, had := w.state[origin]
	w.state[origin] = signed
	text, err := json.Marshal(w.state)
	if err == nil {
		err = replace(w.path, text)
	}
	if err != nil {
		delete(w.state, origin)
		if had {
			w.state[origin] = before
		}
	}
	return err
}

func replace(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".state.*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

func (w *Witness) serveNewest(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for origin, signed := range w.state {
		sum := sha256.Sum256([]byte(origin))
		if r.URL.Path == "/"+hex.EncodeToString(sum[:])+"/checkpoint" {
			out.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(out, signed)
			return
		}
	}
	http.NotFound(out, r)
}
