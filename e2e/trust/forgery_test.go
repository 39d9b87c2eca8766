package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/signing"
)

// evidence is what an auditor holds: a certificate, the tree head of its proof,
// and the keys that the service publishes. All of it is files for the stranger.
type evidence struct {
	certificate, head map[string]any
	status            []byte
}

func held(t *testing.T, c *e2e.Client, d *e2e.Dealt) evidence {
	t.Helper()
	e := evidence{certificate: e2e.Decoded(t, d.Certified(e2e.Patience)), status: c.Want(200, "GET", "/v1/status", "", nil).Body}
	e.head = e2e.Decoded(t, c.Want(200, "GET", "/v1/log/tree-head?tree_size="+number(e.proof()["tree_size"]), "", nil).Body)
	return e
}

func (e evidence) proof() map[string]any { return e.certificate["log_proof"].(map[string]any) }

// clone is a deep copy, to be forged.
func (e evidence) clone(t *testing.T) evidence {
	t.Helper()
	return evidence{e2e.Decoded(t, e2e.Encoded(t, e.certificate)), e2e.Decoded(t, e2e.Encoded(t, e.head)), e.status}
}

func (e evidence) judged(t *testing.T, more ...string) (accepted bool, said string) {
	t.Helper()
	args := []string{"--certificate", e2e.File(t, e2e.Encoded(t, e.certificate)), "--tree-head", e2e.File(t, e2e.Encoded(t, e.head)), "--status", e2e.File(t, e.status)}
	return e2e.Stranger(t, append(args, more...)...)
}

// payload is what is signed: the certificate without signature and log_proof.
func (e evidence) payload(t *testing.T) []byte {
	t.Helper()
	p := maps.Clone(e.certificate)
	delete(p, "signature")
	delete(p, "log_proof")
	text, err := canon.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func number(v any) string { return v.(json.Number).String() }

// SPEC 2.5, 2.7: whoever holds the certificate, its tree head and the published
// keys sees every change to any of them.
func TestForgeries(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	past := e2e.BeaconChain(t).RoundAt(0) + 1000
	drawn := e2e.Draw(past)(c, 0)
	if a, err := drawn.Call(c); err != nil || a.Status != 200 {
		t.Fatalf("entropy: %v %d %s", err, a.Status, a.Body)
	}
	rejected := e2e.Rejection(c, 0)
	if a, err := rejected.Call(c); err != nil || a.Status != 200 {
		t.Fatalf("rejection: %v %d %s", err, a.Status, a.Body)
	}
	for range 3 { // so that no path is shorter than two
		issued(t, c)
	}
	for name, d := range map[string]*e2e.Dealt{"COMPUTED": drawn.Deal, "VOID": rejected.Deal} {
		t.Run(name, func(t *testing.T) {
			f := &forger{t: t, c: c, genuine: held(t, c, d)}
			if good, said := f.genuine.judged(t); !good {
				t.Fatalf("the genuine certificate:\n%s", said)
			}
			f.fields()
			f.signatures()
			f.proofs()
			f.heads()
			if f.tried < 60 {
				t.Errorf("only %d forgeries", f.tried)
			}
		})
	}
}

type forger struct {
	t       *testing.T
	c       *e2e.Client
	genuine evidence
	tried   int
}

// rejected forges a copy and requires that the stranger sees it.
func (f *forger) rejected(what string, forge func(e *evidence)) {
	f.t.Helper()
	e := f.genuine.clone(f.t)
	forge(&e)
	f.tried++
	if good, said := e.judged(f.t); good {
		f.t.Errorf("accepted with %s:\n%s\n%s\n%s", what, e2e.Encoded(f.t, e.certificate), e2e.Encoded(f.t, e.head), said)
	}
}

// fields changes every value of the signed part, drops every member, adds one.
func (f *forger) fields() {
	for _, name := range slices.Sorted(maps.Keys(f.genuine.certificate)) {
		f.rejected("no "+name, func(e *evidence) { delete(e.certificate, name) })
		if name != "log_proof" && name != "signature" {
			f.each(f.genuine.certificate[name], name, func(e *evidence, v any) { e.certificate[name] = v })
		}
	}
	f.rejected("a member more", func(e *evidence) { e.certificate["verified"] = true })
}

// each changes the value, and all that are inside of it, one at a time. put
// places a value where this one was.
func (f *forger) each(v any, where string, put func(*evidence, any)) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			f.each(inner, where+"."+name, func(e *evidence, to any) {
				changed := maps.Clone(v)
				changed[name] = to
				put(e, changed)
			})
		}
		f.rejected(where+" null", func(e *evidence) { put(e, nil) })
	case []any:
		for i, inner := range v {
			f.each(inner, where+"."+strconv.Itoa(i), func(e *evidence, to any) {
				changed := slices.Clone(v)
				changed[i] = to
				put(e, changed)
			})
		}
		f.rejected(where+" empty", func(e *evidence) { put(e, []any{}) })
		f.rejected(where+" repeated", func(e *evidence) { put(e, append(slices.Clone(v), v[0])) })
	case json.Number:
		n, _ := v.Int64()
		f.rejected(where+" one more", func(e *evidence) { put(e, n+1) })
	case string:
		f.rejected(where+" changed", func(e *evidence) { put(e, flipped(v)) })
	case nil:
		f.rejected(where+" not null", func(e *evidence) { put(e, 1) })
	default:
		f.t.Fatalf("%s is a %T", where, v)
	}
}

// flipped changes the last character within its kind.
func flipped(s string) string {
	last := byte('0')
	if s[len(s)-1] == last {
		last = '1'
	}
	return s[:len(s)-1] + string(last)
}

func (f *forger) signatures() {
	genuine := f.genuine.certificate["signature"].(string)
	for what, s := range map[string]string{
		"a flipped digit":            flipped(genuine),
		"a high S":                   e2e.HighS(f.t, genuine),
		"a signature without scheme": genuine[len("es256:"):],
		"another scheme":             "ed25519:" + genuine[len("es256:"):],
		"a longer signature":         genuine + "00",
		"a zero signature":           "es256:" + fmt.Sprintf("%0128d", 0),
		"the head's signature":       f.genuine.head["signature"].(string),
	} {
		f.rejected(what, func(e *evidence) { e.certificate["signature"] = s })
	}
	// A payload of the forger's own, signed by a key of its own.
	stranger := f.key()
	f.rejected("a foreign signature", func(e *evidence) { e.certificate["signature"] = f.sign(stranger, e.payload(f.t)) })
}

func (f *forger) key() *signing.Signer {
	f.t.Helper()
	signer, err := signing.Open(f.t.Context(), "dev://"+filepath.Join(f.t.TempDir(), "key.pem"))
	if err != nil {
		f.t.Fatal(err)
	}
	return signer
}

func (f *forger) sign(signer *signing.Signer, message []byte) string {
	f.t.Helper()
	signature, err := signer.Sign(f.t.Context(), sha256.Sum256(message))
	if err != nil {
		f.t.Fatal(err)
	}
	return signature
}

func (f *forger) proofs() {
	path := func(e *evidence) []any { return e.proof()["inclusion_path"].([]any) }
	set := func(e *evidence, p []any) { e.proof()["inclusion_path"] = p }
	for i := range path(&f.genuine) {
		f.rejected("a changed path element", func(e *evidence) { path(e)[i] = flipped(path(e)[i].(string)) })
	}
	f.rejected("two path elements swapped", func(e *evidence) { p := path(e); p[0], p[1] = p[1], p[0] })
	f.rejected("the path reversed", func(e *evidence) { slices.Reverse(path(e)) })
	f.rejected("the path without its end", func(e *evidence) { p := path(e); set(e, p[:len(p)-1]) })
	f.rejected("the path without its beginning", func(e *evidence) { set(e, path(e)[1:]) })
	f.rejected("a path too long", func(e *evidence) { p := path(e); set(e, append(p, p[0])) })
	f.rejected("no path", func(e *evidence) { set(e, []any{}) })

	at, _ := f.genuine.proof()["leaf_index"].(json.Number).Int64()
	size, _ := f.genuine.proof()["tree_size"].(json.Number).Int64()
	for _, index := range []int64{at + 1, at - 1, at + size, size} {
		f.rejected("another leaf index", func(e *evidence) { e.proof()["leaf_index"] = index })
	}
	for _, n := range []int64{size + 1, size - 1, 2 * size} {
		f.rejected("another tree size", func(e *evidence) { e.proof()["tree_size"] = n })
		f.rejected("another tree size in both", func(e *evidence) { e.proof()["tree_size"], e.head["tree_size"] = n, n })
	}
	other := e2e.Decoded(f.t, f.c.Want(200, "GET", fmt.Sprintf("/v1/log/proof?leaf_index=%d&tree_size=%d", (at+1)%size, size), "", nil).Body)
	f.rejected("a proof for another leaf", func(e *evidence) {
		e.certificate["log_proof"] = map[string]any{"tree_size": size, "leaf_index": other["leaf_index"], "inclusion_path": other["inclusion_path"]}
	})
}

func (f *forger) heads() {
	genuine := f.genuine.head["signature"].(string)
	root := f.genuine.head["root_hash"].(string)
	f.rejected("another root", func(e *evidence) { e.head["root_hash"] = flipped(root) })
	f.rejected("a high S of the head", func(e *evidence) { e.head["signature"] = e2e.HighS(f.t, genuine) })
	f.rejected("a flipped digit of the head", func(e *evidence) { e.head["signature"] = flipped(genuine) })
	f.rejected("the certificate's signature on the head", func(e *evidence) { e.head["signature"] = e.certificate["signature"] })
	f.rejected("an older head", func(e *evidence) { e.head = f.olderHead() })
	f.rejected("the head of the empty tree", func(e *evidence) { e.head = f.headAt(0) })
	foreign := f.key()
	message := func(e *evidence) []byte {
		return fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%v}`, e.head["root_hash"], e.head["tree_size"])
	}
	f.rejected("the head signed by a foreign key", func(e *evidence) { e.head["signature"] = f.sign(foreign, message(e)) })
	// A log of the forger's own, in which the certificate is the only leaf.
	f.rejected("a foreign log", func(e *evidence) {
		entry := sha256.Sum256(e.payload(f.t))
		e.head = map[string]any{"tree_size": 1, "root_hash": hex.EncodeToString(e2e.Hashed(0, entry[:]))}
		e.head["signature"] = f.sign(foreign, message(e))
		e.certificate["log_proof"] = map[string]any{"tree_size": 1, "leaf_index": 0, "inclusion_path": []any{}}
	})
}

// olderHead is the newest head before the genuine one: not every size was published.
func (f *forger) olderHead() map[string]any {
	f.t.Helper()
	newest, _ := f.genuine.head["tree_size"].(json.Number).Int64()
	for size := newest - 1; size > 0; size-- {
		if a := f.c.Do("GET", fmt.Sprint("/v1/log/tree-head?tree_size=", size), "", nil); a.Status == 200 {
			return e2e.Decoded(f.t, a.Body)
		}
	}
	f.t.Fatal("the log has published no older head")
	return nil
}

func (f *forger) headAt(size int) map[string]any {
	f.t.Helper()
	return e2e.Decoded(f.t, f.c.Want(200, "GET", "/v1/log/tree-head?tree_size="+strconv.Itoa(size), "", nil).Body)
}
