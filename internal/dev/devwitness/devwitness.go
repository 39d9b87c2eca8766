// Package devwitness is a small witness (c2sp.org/tlog-witness) for the local stack and for
// tests. It cosigns with Ed25519 and makes every check that the standard demands. The
// log's operator has the file with the witness's private key and can sign with this key. So
// the cosignatures would prove nothing in production.
package devwitness

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// Witness cosigns the checkpoints of one log. It stores the newest cosigned checkpoint in a
// file.
type Witness struct {
	signer *formats.Signer
	key    checkpoint.Key
	log    checkpoint.Key
	path   string

	mu     sync.Mutex
	newest checkpoint.Checkpoint // guarded by mu
}

var empty = sha256.Sum256(nil) // the root of the empty tree

// Open reads the witness stored in dir, or creates one there with the given name. The
// parameter `log` is the log's key, which must have signed each checkpoint.
func Open(dir, name string, log checkpoint.Key) (*Witness, error) {
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
	w := &Witness{log: log, path: filepath.Join(dir, "newest"), newest: checkpoint.Checkpoint{Origin: log.Name(), Root: empty}}
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
		w.newest, err = checkpoint.Parse(string(text))
	}
	return w, err
}

func keyOf(skey string) (checkpoint.Key, error) {
	fields := strings.SplitN(skey, "+", 5) // PRIVATE+KEY+name+id+base64(type ‖ seed)
	seed, err := base64.StdEncoding.DecodeString(fields[len(fields)-1])
	if err != nil || len(fields) != 5 || len(seed) != 1+ed25519.SeedSize {
		return checkpoint.Key{}, errors.New("the file \"key\" of the witness contains no private key in the format of sumdb/note: delete the file, and the next start makes a new key")
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

// ServeHTTP answers add-checkpoint requests.
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

// add checks a request in the order that tlog-witness demands and stores the checkpoint on
// disk. It returns status 200 with the cosignature line, 409 with the size of the newest
// cosigned checkpoint, or another status with an error text. The lock w.mu covers the
// check of the old size and the update of w.newest, so no other request can change the size
// between them.
func (w *Witness) add(body []byte) (status int, text string) {
	request, err := parseRequest(body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	unverified, err := checkpoint.ParseNote(string(request.Note))
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	if unverified.Origin != w.log.Name() {
		return http.StatusNotFound, "unknown origin"
	}
	next, _, err := checkpoint.Open(request.Note, []checkpoint.Key{w.log}, nil)
	if err != nil {
		return http.StatusForbidden, err.Error()
	}
	if request.Old > next.Size {
		return http.StatusBadRequest, fmt.Sprintf("old size %d is larger than the checkpoint's size %d", request.Old, next.Size)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if request.Old != w.newest.Size {
		return http.StatusConflict, fmt.Sprint(w.newest.Size)
	}
	if next.Size == 0 && next.Root != empty {
		return http.StatusUnprocessableEntity, "the checkpoint has size 0 but not the root of the empty tree"
	}
	if err := checkpoint.VerifyConsistency(w.newest, next, request.Proof); err != nil {
		return http.StatusUnprocessableEntity, err.Error()
	}
	signature, err := w.signer.Sign([]byte(next.Text()))
	if err == nil {
		err = files.Replace(w.path, []byte(next.Text()), 0o644)
	}
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	w.newest = next
	return http.StatusOK, strings.TrimSuffix(w.key.Line(signature), "\n")
}
