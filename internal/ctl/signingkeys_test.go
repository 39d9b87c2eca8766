package ctl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

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

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func (k keyed) entry(from time.Duration) string {
	return fmt.Sprintf(`{"pubkey":"%s","signs_from":%d,"uri":"%s"}`, k.PublicKey(), time.Now().Add(from).Unix(), k.uri)
}

func set(entries ...string) string { return `{"keys":[` + strings.Join(entries, ",") + `]}` }

func TestKeysThroughARotation(t *testing.T) {
	t.Parallel()
	first, second, third := newKeyed(t), newKeyed(t), newKeyed(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	step := func(code int, says string, args ...string) {
		t.Helper()
		r := run(t, "", append([]string{"signing-keys"}, args...)...)
		text, _ := os.ReadFile(file)
		if r.code != code || !strings.Contains(r.out+r.err+string(text), says) {
			t.Fatalf("keys %q: %+v, want exit code %d and %q in the output or in the file\n%s", args, r, code, says, text)
		}
		if text != nil {
			if _, err := keys.ParseDocument(text); err != nil {
				t.Fatalf("after keys %q the file is not a key set: %v in %s", args, err, text)
			}
		}
	}
	a, b := first.PublicKey(), second.PublicKey()
	step(0, set(`{"pubkey":"`+a+`","signs_from":0,"uri":"`+first.uri+`"}`), "init", "--signer", first.uri, "--out", file)
	step(1, "leaves too little time", "rotate", "--file", file, "--to", second.uri, "--in", "9m", "--out", file)
	step(1, "cannot be rotated in again", "rotate", "--file", file, "--to", first.uri, "--out", file)
	step(2, "es256:00", "rotate", "--file", file, "--to", second.uri, "--pubkey", "es256:00", "--out", file)
	step(2, "--to", "rotate", "--file", file)
	step(0, "roll "+file+" out to all processes before ", "rotate", "--file", file, "--to", second.uri, "--in", "11m", "--out", file)
	step(0, `"uri":"`+second.uri+`"}`, "rotate", "--file", file, "--to", second.uri, "--pubkey", b, "--in", "48h", "--out", file)
	step(1, "only one key can wait", "rotate", "--file", file, "--to", third.uri, "--out", file)
	step(2, "give --tree-size N, or --base-url URL", "rotate", "--file", file, "--to", third.uri, "--now", "--out", file)
	step(2, "0 to 2^53-1", "rotate", "--file", file, "--to", third.uri, "--now", "--tree-size=-1", "--out", file)
	step(0, `"tree_size":7}`, "rotate", "--file", file, "--to", second.uri, "--now", "--tree-size", "7", "--out", file)
	step(2, "no such file", "rotate", "--file", file+"x", "--to", third.uri)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
		t.Errorf("rotate left the temporary files %v", left)
	}
}

// On another machine than the service's, the file of a development key is missing. A command that
// reads the key set must not make the file.
func TestReadingAKeySetMakesNoKey(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key.pem")
	file := write(t, "keys.json", set(`{"signs_from":0,"uri":"dev://`+key+`"}`))
	next := newKeyed(t)
	commands := map[string][]string{
		"check":  {"--base-url", "http://127.0.0.1:1"},
		"rotate": {"--to", next.uri},
		"close":  {next.PublicKey(), "--base-url", "http://127.0.0.1:1", "--database-url", "postgres://127.0.0.1:1/none"},
	}
	for command, args := range commands {
		r := run(t, "", append([]string{"signing-keys", command, "--file", file}, args...)...)
		if r.code == ExitOK || !strings.Contains(r.out+r.err, "run this where the key file is, or add pubkey") {
			t.Errorf("signing-keys %s: %+v, want a refusal that says where to run it", command, r)
		}
		if _, err := os.Stat(key); err == nil {
			t.Fatalf("signing-keys %s made the key file", command)
		}
	}
	if _, err := signing.Open(t.Context(), "dev://"+key); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "signing-keys", "rotate", "--file", file, "--to", next.uri); r.code != ExitOK {
		t.Errorf("signing-keys rotate where the key file is: %+v, want exit code 0", r)
	}
}

// `signing-keys init` and `signing-keys rotate` only read the public key, so the operator needs no permission to
// sign.
func TestKeysInitOnlyReadsTheKey(t *testing.T) {
	t.Parallel()
	kms, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kms.Close)
	kms.Deny("AsymmetricSign", true)
	if r := run(t, "", "signing-keys", "init", "--signer", kms.URI(kms.NewKey())); r.code != 0 || !strings.Contains(r.out, "es256:") {
		t.Errorf("signing-keys init with a key that must not sign: %+v, want exit code 0 and its es256 label", r)
	}
}

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

// deployed returns the URL of a deployment whose log has two leaves. Requests for /v1/pubkeys
// get the documents in turn, as from different replicas.
func deployed(t *testing.T, current string, by keyed, documents ...string) string {
	t.Helper()
	return serving(t, current, map[string]string{"": headOf(t, by, 2), "tree_size=1": headOf(t, by, 1)}, documents...)
}

// serving returns the URL of a deployment. `heads` maps the query of a request for a tree head to
// the answer. The query is "" for the newest head and "tree_size=N" for an older one.
func serving(t *testing.T, current string, heads map[string]string, documents ...string) string {
	t.Helper()
	two := rfc6962.DefaultHasher.HashLeaf([]byte("two"))
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/pubkeys":
			fmt.Fprint(w, documents[int(asked.Add(1))%len(documents)])
		case "/v1/status":
			legacy := regexp.MustCompile(`"pubkey":"([^"]*)","retired`).FindStringSubmatch(documents[0])
			if legacy == nil {
				legacy = []string{"", ""}
			}
			if legacy[1] == current { // it still signs, and the other key is published as current
				legacy = regexp.MustCompile(`"pubkey":"([^"]*)","state":"current"`).FindStringSubmatch(documents[0])
			}
			fmt.Fprint(w, strings.Replace(fmt.Sprintf(`{"pubkey":%q,"legacy_pubkeys":[%q],"key_custody":"a test"}`, current, legacy[1]), `[""]`, `[]`, 1))
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

// `signing-keys check` refuses the head of the empty tree as the earlier head, because any tree
// continues the empty tree. If it finds no other earlier head, its error asks for --tree-head
// FILE or --tree-head none.
func TestKeysCheck(t *testing.T) {
	t.Parallel()
	first, second := newKeyed(t), newKeyed(t)
	a, b := first.PublicKey(), second.PublicKey()
	before := `{"keys":[{"pubkey":"` + a + `","state":"current"},{"pubkey":"` + b + `","state":"next"}]}`
	after := func(more string) string {
		return `{"keys":[{"pubkey":"` + b + `","state":"current"},{"pubkey":"` + a + `","retired_at":5,"state":"retired"` + more + `}]}`
	}
	grown := func(size int, older ...int) string {
		heads := map[string]string{"": headOf(t, first, size)}
		for _, size := range older {
			heads[fmt.Sprint("tree_size=", size)] = headOf(t, first, size)
		}
		return serving(t, a, heads, before)
	}
	kept := func(size int) []string {
		return []string{"--tree-head", write(t, fmt.Sprint("head-", size), headOf(t, first, size))}
	}
	file := []string{"--file", write(t, "rotating", set(first.entry(-time.Hour), second.entry(time.Hour)))}
	forged := write(t, "forged", strings.ReplaceAll(headOf(t, first, 1), `"tree_size":1`, `"tree_size":2`))
	rotated := deployed(t, b, second, after(""))
	soon := strings.Replace(after(""), `"retired_at":5`, fmt.Sprintf(`"retired_at":%d`, time.Now().Add(time.Hour).Unix()), 1)
	for _, row := range []struct {
		what string
		url  string
		args []string
		code int
		says []string
	}{
		{"the next key is published", deployed(t, a, first, before), file, 0,
			[]string{"10 answers of /v1/pubkeys, all the same", "size 2 continues the tree of size 1", "OK   file_agrees", "next: nothing: " + b + " signs from "}},
		{"rotated", rotated, nil, 0, []string{"signed by the current key", "signing-keys close " + a}},
		{"published as retired, and still signs", deployed(t, a, first, soon), nil, 0, []string{"signed by the retired key", "next: wait: " + a + " may sign until "}},
		{"closed", deployed(t, b, second, after(`,"tree_size":2`)), nil, 0, []string{"next: nothing: one key signs"}},
		{"half rolled out", deployed(t, a, first, before, after("")), nil, 1, []string{"FAIL replicas_agree", "wait until the rollout is done"}},
		{"another file", rotated, file, 1, []string{"FAIL file_agrees", "correct what failed"}},
		{"a status of a key that signs no more", deployed(t, a, second, after("")), nil, 1, []string{"FAIL status_agrees"}},
		{"a status of another key", deployed(t, b, first, before), nil, 1, []string{"FAIL status_agrees"}},
		{"a closed key signs heads", deployed(t, b, first, after(`,"tree_size":1`)), nil, 1, []string{"FAIL tree_head", "retired at tree size 1, so it must not sign a head of size 2"}},
		{"a strange head", deployed(t, a, newKeyed(t), before), nil, 1, []string{"FAIL tree_head"}},
		{"the log answers an earlier head", grown(2, 0, 1), nil, 0, []string{"OK   consistency", "the tree of size 2 continues the tree of size 1, whose head the log itself returned"}},
		{"the log answers only that of the empty tree", grown(2, 0), nil, 1,
			[]string{"FAIL consistency", "found no earlier head of the log to compare the tree of size 2 with: give --tree-head FILE with a head that you kept"}},
		{"the log has one leaf", grown(1, 0), nil, 1, []string{"FAIL consistency", "no earlier head of the log to compare the tree of size 1 with"}},
		{"the log is empty", grown(0, 0), nil, 1, []string{"FAIL consistency", "no earlier head of the log to compare the tree of size 0 with"}},
		{"nobody has an earlier head", grown(2, 0), []string{"--tree-head", "none"}, 0, []string{"OK   consistency", "not checked, because of --tree-head none"}},
		{"one was kept", grown(2, 0), kept(1), 0, []string{"OK   consistency", "the tree of size 2 continues the tree of size 1"}},
		{"that of the empty tree was kept", grown(2, 0, 1), kept(0), 1, []string{"FAIL consistency", "is the head of the empty tree, which any tree continues"}},
		{"the log was set back", grown(1, 0), kept(2), 1, []string{"FAIL consistency", "the log was set back"}},
		{"a kept head that is not signed", grown(2, 0, 1), []string{"--tree-head", forged}, 1, []string{"FAIL consistency", "the tree head"}},
	} {
		t.Run(row.what, func(t *testing.T) {
			r := run(t, "", append([]string{"signing-keys", "check", "--base-url", row.url}, row.args...)...)
			if r.code != row.code {
				t.Errorf("exit code %d, want %d: %+v", r.code, row.code, r)
			}
			for _, says := range row.says {
				if !strings.Contains(r.out, says) {
					t.Errorf("the output lacks %q: %+v", says, r)
				}
			}
		})
	}
}

// `signing-keys close` refuses to close a key in three cases: (1) a process lacks the key set, (2) a
// certificate that the key signed is pending, (3) a certificate that the key signed would become
// invalid. `signing-keys check` fails if a closed key signed a certificate or a tree head beyond the
// key's tree_size.
func TestClosingIsChecked(t *testing.T) {
	t.Parallel()
	first, second := newKeyed(t), newKeyed(t)
	a, b := first.PublicKey(), second.PublicKey()
	database := servertest.Postgres(t)
	for _, migrate := range []func(context.Context, string) error{store.Migrate, translog.Migrate} {
		if err := migrate(t.Context(), database); err != nil {
			t.Fatal(err)
		}
	}
	text := set(first.entry(-2*time.Hour), second.entry(-time.Hour))
	file := write(t, "keys.json", text)
	keys, err := signing.ParseKeySet(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	published := `{"keys":[{"pubkey":"` + b + `","state":"current"},{"pubkey":"` + a + `","retired_at":5,"state":"retired"}]}`
	url := deployed(t, b, second, published)
	attempt := func(code int, says string, args ...string) {
		t.Helper()
		r := run(t, "", append([]string{"signing-keys", "close", a, "--file", file, "--base-url", url, "--database-url", database}, args...)...)
		if r.code != code || !strings.Contains(r.out+r.err, says) {
			t.Errorf("signing-keys close %q: %+v, want exit code %d and %q", args, r, code, says)
		}
	}
	process := func(digest string) *pgx.Conn {
		config, err := pgx.ParseConfig(database)
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams["application_name"] = "fairpact/deal-api/" + digest + "/-/pod-" + digest
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	change := func(conn *pgx.Conn, sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	attempt(1, "no process is connected to the database")
	good := process(keys.Digest())
	stale := process("0123456789ab")
	attempt(1, `deal-api pod-0123456789ab has "0123456789ab"`)
	if err := stale.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sign := func(by keyed, leaf any, id string) {
		payload := []byte("certificate " + id)
		signature, err := by.Sign(t.Context(), sha256.Sum256(payload))
		if err != nil {
			t.Fatal(err)
		}
		change(good, "INSERT INTO certificates (cert_id, deal_id, payload, mac, signature, leaf_index, created_at) VALUES ($1, $1, $2, '', $3, $4, 0)", id, payload, signature, leaf)
	}
	sign(first, 0, "early")
	sign(second, nil, "pending under the new key")
	sign(first, nil, "pending")
	attempt(1, "1 certificates of the key wait for the log")
	change(good, "UPDATE certificates SET leaf_index = 1 WHERE cert_id = 'pending'")
	attempt(1, "the key could still sign leaves", "--tree-size", "3")
	attempt(1, "signed the certificate at leaf 1", "--tree-size", "1")
	attempt(0, `"tree_size":1}`, "--tree-size", "1", "--disown")
	attempt(0, `"retired_at":`)
	attempt(0, `"tree_size":2}`)
	attempt(1, "rotate to another key first", "--file", write(t, "other", set(second.entry(-time.Hour), `{"pubkey":"`+newKeyed(t).PublicKey()+`"}`, first.entry(-time.Minute))))

	closed := func(size string) string {
		return write(t, "closed", set(second.entry(-time.Hour), `{"pubkey":"`+a+`","retired_at":5,"tree_size":`+size+`}`))
	}
	check := func(size, says string) {
		t.Helper()
		r := run(t, "", "signing-keys", "check", "--base-url", url, "--file", closed(size), "--database-url", database)
		if !strings.Contains(r.out, says) {
			t.Errorf("signing-keys check with the key closed at %s: %+v, want %q", size, r, says)
		}
	}
	check("2", "OK   closed_keys")
	check("1", "FAIL closed_keys            the key set closes "+a+" at tree size 1, but that key signed the certificate at leaf 1")
	root := sha256.Sum256([]byte("a root"))
	message := fmt.Appendf(nil, `{"root_hash":"%x","tree_size":4}`, root)
	signature, err := first.Sign(t.Context(), sha256.Sum256(message))
	if err != nil {
		t.Fatal(err)
	}
	change(good, "INSERT INTO translog.tree_heads (tree_size, root, digest, signature) VALUES (4, $1, $2, $3)", root[:], root[:], signature)
	check("2", "that key signed the head of size 4")
	check("2,\"disowned\":true", "OK   closed_keys")
	check("2", `deal-api pod-`+keys.Digest()+` has "`+keys.Digest()+`"`)
}

// Two different files are often called keys.json: the key set file (FAIRPACT_KEY_SET_FILE) and
// the answer of GET /v1/pubkeys. `verify --keys` needs the answer.
func TestVerifyRefusesTheKeySetFileOfTheProcesses(t *testing.T) {
	t.Parallel()
	key := newKeyed(t)
	file := write(t, "keys.json", set(key.entry(-time.Hour)))
	cert, head := write(t, "cert.json", `{}`), write(t, "head.json", headOf(t, key, 2))
	r := run(t, "", "verify", cert, "--tree-head", head, "--keys", file)
	if r.code != ExitUsage || !strings.Contains(r.err, "give the answer of GET /v1/pubkeys") {
		t.Errorf("verify --keys with the file of the processes: %+v, want exit code %d and what to give", r, ExitUsage)
	}
}
