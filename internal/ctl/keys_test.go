package ctl

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/signing"
)

// keyed is a signer that a test has made, and its URI.
type keyed struct {
	*signing.Signer
	uri string
}

func newKeyed(t *testing.T) keyed {
	t.Helper()
	uri := "dev://" + filepath.Join(t.TempDir(), "key.pem")
	s, err := signing.Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	return keyed{s, uri}
}

// A rotation through the commands, as an operator types them.
func TestKeysThroughARotation(t *testing.T) {
	first, second := newKeyed(t), newKeyed(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	step := func(code int, says string, args ...string) {
		t.Helper()
		r := run(t, "", append([]string{"keys"}, args...)...)
		text, _ := os.ReadFile(file)
		if r.code != code || !strings.Contains(r.out+r.err+string(text), says) {
			t.Fatalf("%q: %+v, want %d and %q in\n%s", args, r, code, says, text)
		}
		if text != nil {
			if _, err := signing.ParseKeySet(text); err != nil {
				t.Fatalf("after %q: %v in %s", args, err, text)
			}
		}
	}
	a, b := first.PublicKey(), second.PublicKey()
	step(0, `{"keys":[{"pubkey":"`+a+`","state":"current"}]}`, "init", "--signer", first.uri, "--out", file)
	step(1, "no next key", "promote", "--file", file, "--out", file)
	step(1, "is in the set already", "add-next", "--file", file, "--pubkey", a, "--out", file)
	step(2, "es256:00", "add-next", "--file", file, "--pubkey", "es256:00", "--out", file)
	step(2, "--signer or --pubkey", "add-next", "--file", file)
	step(0, `{"pubkey":"`+b+`","state":"next"}`, "add-next", "--file", file, "--signer", second.uri, "--out", file)
	step(1, "only a retired key", "close", b, "--file", file, "--tree-size", "5", "--out", file)
	step(1, "only a retired key", "close", a, "--file", file, "--tree-size", "5", "--out", file)
	step(0, `{"keys":[{"pubkey":"`+b+`","state":"current"},{"pubkey":"`+a+`","retired_at":`, "promote", "--file", file, "--out", file)
	step(0, "open", "show", "--file", file)
	step(1, "not in the set", "close", "es256:00", "--file", file, "--tree-size", "5")
	step(2, "--tree-size or --base-url", "close", a, "--file", file)
	step(2, "0 to 2^53-1", "close", a, "--file", file, "--tree-size=-1")
	step(0, `"tree_size":5}`, "close", a, "--file", file, "--tree-size", "5", "--out", file)
	step(0, `"tree_size":5}`, "close", a, "--file", file, "--tree-size", "5", "--out", file)
	step(1, "closed at tree size 5", "close", a, "--file", file, "--tree-size", "6", "--out", file)
	step(1, "in the set already, as the retired key", "add-next", "--file", file, "--pubkey", a, "--out", file)
	step(0, `"tree_size": 5`, "show", "--file", file, "--json")
	step(2, "no such file", "promote", "--file", file+"x")
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".keys-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A key that verifiers can use and no process starts with is neither written nor
// passed.
func TestKeysThatNoProcessTakes(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	of := fmt.Sprintf("ed25519:%x", public)
	good := write(t, "good", `{"keys":[{"pubkey":"`+newKeyed(t).PublicKey()+`","state":"current"}]}`)
	bad := write(t, "bad", `{"keys":[{"pubkey":"`+of+`","state":"current"}]}`)
	for _, args := range [][]string{
		{"keys", "add-next", "--file", good, "--pubkey", of},
		{"keys", "show", "--file", bad},
		{"keys", "check", "--file", bad, "--base-url", "http://127.0.0.1:1"},
	} {
		if r := run(t, "", args...); r.code == 0 || strings.Contains(r.out, "pubkey") || !strings.Contains(r.err, "ed25519") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// headOf is the signed head of a log with the leaves "one" and "two", of any size
// up to theirs.
func headOf(t *testing.T, by keyed, size int) string {
	t.Helper()
	h := rfc6962.DefaultHasher
	one, two := h.HashLeaf([]byte("one")), h.HashLeaf([]byte("two"))
	root := [][]byte{h.EmptyRoot(), one, h.HashChildren(one, two)}[size]
	message := fmt.Sprintf(`{"root_hash":"%x","tree_size":%d}`, root, size)
	signature, err := by.Sign(t.Context(), sha256.Sum256([]byte(message)))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"tree_size":%d,"root_hash":"%x","signature":"%s"}`, size, root, signature)
}

// deployed is a deployment of two leaves whose replicas answer with the
// documents in turn.
func deployed(t *testing.T, current string, by keyed, documents ...string) string {
	t.Helper()
	return serving(t, current, map[string]string{"": headOf(t, by, 2), "tree_size=1": headOf(t, by, 1)}, documents...)
}

// serving is a deployment that answers tree heads by the query.
func serving(t *testing.T, current string, heads map[string]string, documents ...string) string {
	t.Helper()
	two := rfc6962.DefaultHasher.HashLeaf([]byte("two"))
	set, err := signing.ParseKeySet([]byte(documents[0]))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/pubkeys":
			fmt.Fprint(w, documents[int(asked.Add(1))%len(documents)])
		case "/v1/status":
			fmt.Fprintf(w, `{"pubkey":%q,"legacy_pubkeys":["%s"],"key_custody":"a test"}`, current, strings.Join(set.Legacy(), `","`))
		case "/v1/log/tree-head":
			if heads[r.URL.RawQuery] == "" {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"error":"HEAD_NOT_FOUND: no head of that size was published"}`)
			}
			fmt.Fprint(w, heads[r.URL.RawQuery])
		case "/v1/log/consistency":
			fmt.Fprintf(w, `{"consistency_path":["%s"]}`, hex.EncodeToString(two))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestKeysCheck(t *testing.T) {
	t.Parallel()
	first, second := newKeyed(t), newKeyed(t)
	a, b := first.PublicKey(), second.PublicKey()
	before := `{"keys":[{"pubkey":"` + a + `","state":"current"},{"pubkey":"` + b + `","state":"next"}]}`
	after := func(more string) string {
		return `{"keys":[{"pubkey":"` + b + `","state":"current"},{"pubkey":"` + a + `","retired_at":5,"state":"retired"` + more + `}]}`
	}
	for _, row := range []struct {
		what      string
		current   string
		by        keyed
		documents []string
		args      []string
		code      int
		says      []string
	}{
		{"the next key is published", a, first, []string{before}, []string{"--file", write(t, "k", before), "--signer", second.uri}, 0,
			[]string{"4 answers, all the same", "size 2 continues the one of size 1", "OK   signer", "next: " + b + " is published and ready"}},
		{"promoted", b, second, []string{after("")}, nil, 0, []string{"signed by the current key", "keys close " + a}},
		{"closed", b, second, []string{after(`,"tree_size":2`)}, []string{"--signer", second.uri}, 0, []string{"next: nothing"}},
		{"half rolled out", a, first, []string{before, after("")}, nil, 1, []string{"FAIL replicas_agree", "wait until the roll-out is done"}},
		{"another file", a, first, []string{before}, []string{"--file", write(t, "k", after(""))}, 1, []string{"FAIL file_agrees", "mend what failed"}},
		{"a status of another key", b, first, []string{before}, nil, 1, []string{"FAIL status_agrees"}},
		{"a closed key signs heads", b, first, []string{after(`,"tree_size":1`)}, nil, 1, []string{"FAIL tree_head", "retired at tree size 1 and it is of size 2"}},
		{"a retired signer", b, second, []string{after("")}, []string{"--signer", first.uri}, 1, []string{"FAIL signer", "the retired key"}},
		{"a strange signer", b, second, []string{after("")}, []string{"--signer", newKeyed(t).uri}, 1, []string{"FAIL signer", "publish it with keys add-next"}},
		{"a strange head", a, newKeyed(t), []string{before}, nil, 1, []string{"FAIL tree_head"}},
	} {
		url := deployed(t, row.current, row.by, row.documents...)
		r := run(t, "", append([]string{"keys", "check", "--base-url", url, "--times", "4"}, row.args...)...)
		if r.code != row.code {
			t.Errorf("%s: %+v", row.what, r)
		}
		for _, says := range row.says {
			if !strings.Contains(r.out, says) {
				t.Errorf("%s: no %q in %+v", row.what, says, r)
			}
		}
	}

	open := write(t, "open", after(""))
	url := deployed(t, b, second, after(""))
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, `"tree_size":2}`}, {[]string{"--tree-size", "2"}, 0, `"tree_size":2}`}, {[]string{"--tree-size", "3"}, 1, "has yet to sign"},
		{[]string{"--tree-size", "1"}, 1, "--disown"}, {[]string{"--tree-size", "1", "--disown"}, 0, `"tree_size":1}`},
	} {
		r := run(t, "", append([]string{"keys", "close", a, "--file", open, "--base-url", url}, row.args...)...)
		if r.code != row.code || !strings.Contains(r.out+r.err, row.says) {
			t.Errorf("close %q: %+v", row.args, r)
		}
	}
	if r := run(t, "", "keys", "show", "--base-url", url); r.code != 0 || !strings.Contains(r.out, "custody of the current key: a test") || !strings.Contains(r.out, "1970-01-01T00:00:05Z") {
		t.Errorf("%+v", r)
	}
}

// A check that a log has grown needs a tree that it has grown from. The empty
// one, which any tree continues, is none: the check asks for another, or for the
// word that there is none.
func TestKeysCheckAsksForAnEarlierHead(t *testing.T) {
	t.Parallel()
	key := newKeyed(t)
	label := key.PublicKey()
	document := `{"keys":[{"pubkey":"` + label + `","state":"current"},{"pubkey":"` + newKeyed(t).PublicKey() + `","state":"next"}]}`
	kept := func(size int) string { return write(t, fmt.Sprint("head-", size), headOf(t, key, size)) }
	forked := write(t, "forked", headOf(t, key, 1))
	if err := os.WriteFile(forked, []byte(strings.ReplaceAll(headOf(t, key, 1), `"tree_size":1`, `"tree_size":2`)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		what  string
		size  int
		older []int // heads that the log answers
		head  string
		good  bool
		says  string
	}{
		{"the log answers one", 2, []int{0, 1}, "", true, "the tree of size 2 continues the one of size 1, which the log answered itself"},
		{"the log answers that of the empty tree alone", 2, []int{0}, "", false, "nothing to compare the tree of size 2 with, since the log answers no earlier one: give a tree head that was kept, --tree-head FILE"},
		{"the log has one leaf", 1, []int{0}, "", false, "nothing to compare the tree of size 1 with"},
		{"the log is empty", 0, []int{0}, "", false, "nothing to compare the tree of size 0 with"},
		{"nobody has one", 2, []int{0}, "none", true, "not checked, as --tree-head none asks"},
		{"one was kept", 2, []int{0}, kept(1), true, "the tree of size 2 continues the one of size 1"},
		{"that of the empty tree was kept", 2, []int{0, 1}, kept(0), false, "is the head of the empty tree, which any tree continues"},
		{"the log was set back", 1, []int{0}, kept(2), false, "the log was set back"},
		{"a kept head that is no head", 2, []int{0, 1}, forked, false, "the tree head"},
	} {
		heads := map[string]string{"": headOf(t, key, row.size)}
		for _, size := range row.older {
			heads[fmt.Sprint("tree_size=", size)] = headOf(t, key, size)
		}
		args := []string{"keys", "check", "--base-url", serving(t, label, heads, document), "--times", "1"}
		if row.head != "" {
			args = append(args, "--tree-head", row.head)
		}
		r := run(t, "", args...)
		word := map[bool]string{true: "OK   consistency ", false: "FAIL consistency "}[row.good]
		if !strings.Contains(r.out, word) || !strings.Contains(r.out, row.says) || (r.code == 0) != row.good {
			t.Errorf("%s: %+v", row.what, r)
		}
	}
}

// Each command has help with examples of itself.
func TestKeysHelpHasExamples(t *testing.T) {
	for _, command := range []string{"show", "check", "init", "add-next", "promote", "close"} {
		if r := run(t, "", "keys", command, "--help"); r.code != 0 || !strings.Contains(r.out, "Examples:") || !strings.Contains(r.out, "fairpactctl keys "+command) {
			t.Errorf("%s: %+v", command, r)
		}
	}
}
