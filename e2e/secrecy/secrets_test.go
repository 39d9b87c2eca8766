// Package secrecy plants secrets in a stack. It then searches for these secrets in everything that
// the stack stores, logs and sends.
package secrecy

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func TestMarkerIsFound(t *testing.T) {
	m := e2e.Marker{Name: "token", Text: "it_" + base64.RawURLEncoding.EncodeToString([]byte("thirty-two bytes of a token, yes"))}
	payload, _ := base64.RawURLEncoding.DecodeString(m.Text[3:])
	places := map[string][]byte{}
	for name, text := range map[string]string{
		"raw":                  "x" + m.Text + "y",
		"hex":                  "x" + hex.EncodeToString([]byte(m.Text)),
		"upper-case hex":       strings.ToUpper(hex.EncodeToString([]byte(m.Text))),
		"payload":              "x" + string(payload) + "y",
		"payload in a bytea":   `\x00` + hex.EncodeToString(payload),
		"base64 in a bytea":    hex.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(m.Text)))),
		"base64":               base64.StdEncoding.EncodeToString([]byte(m.Text)),
		"base64 at offset 1":   base64.StdEncoding.EncodeToString([]byte("a" + m.Text + "bc")),
		"base64 at offset 2":   base64.URLEncoding.EncodeToString([]byte("ab" + m.Text + "c")),
		"base64 of a document": base64.StdEncoding.EncodeToString([]byte(`{"token":"` + m.Text + `"}`)),
	} {
		places[name] = []byte(text)
	}
	other := e2e.Marker{Name: "another", Text: "it_" + base64.RawURLEncoding.EncodeToString([]byte("thirty-two bytes of a token, no!"))}
	if shown := e2e.Shown([]e2e.Marker{m, other}, places); len(shown[0]) != len(places) || shown[1] != nil {
		t.Errorf("of %d places that show the token, %q are found; of another token %q", len(places), shown[0], shown[1])
	}
}

type leakTest struct {
	*e2e.Client
	stack   *localstack.Stack
	planted []planted
	answers *recorder
	traces  *e2e.Collector
}

type planted struct {
	e2e.Marker
	// allowed is the prefix, such as "POST /v1/keys ", of the requests whose responses may show
	// the secret. "" allows no response.
	allowed string
}

type recorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	all  map[string][]byte
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var all bytes.Buffer
	_ = resp.Header.Write(&all)
	all.Write(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[fmt.Sprintf("%s %s answered %d (%d)", req.Method, req.URL.Path, resp.StatusCode, len(r.all))] = all.Bytes()
	return resp, err
}

func newLeakTest(t *testing.T) *leakTest {
	traces := e2e.NewCollector(t)
	stack := e2e.Own(t, func(o *localstack.Options) { o.Env[""] = append(o.Env[""], traces.Environment()...) })
	c := e2e.NewClient(t, stack.BaseURL())
	l := &leakTest{Client: c, stack: stack, traces: traces, answers: &recorder{next: c.Http.Transport, all: map[string][]byte{}}}
	c.Http.Transport = l.answers
	return l
}

// plant adds a secret to the search and returns the secret. For `allowed`, see planted.allowed.
func (l *leakTest) plant(name, text, allowed string) string {
	l.planted = append(l.planted, planted{e2e.Marker{Name: name, Text: text}, allowed})
	return text
}

func (l *leakTest) mark(name string) string {
	return l.plant(name, "MARKED"+rand.Text(), "")
}

// markHex plants random hex digits. The search also looks for the bytes that these digits encode.
func (l *leakTest) markHex(name string) string {
	raw := make([]byte, 20)
	_, _ = rand.Read(raw)
	return l.plant(name, hex.EncodeToString(raw), "")
}

func (l *leakTest) key() string {
	var made struct {
		APIKey string `json:"api_key"`
	}
	l.Want(201, "POST", "/v1/keys", "", nil, "Idempotency-Key", l.mark("header of keys")).Into(l.T, &made)
	return l.plant("API key", made.APIKey, "POST /v1/keys ")
}

func (l *leakTest) create(b e2e.Body) *e2e.CreatedDeal {
	key := l.key()
	d := l.Created(key, l.Want(201, "POST", "/v1/deals", key, b, "Idempotency-Key", l.mark("header of create")))
	for _, token := range d.Tokens {
		l.plant("token", token, "POST /v1/deals ")
	}
	return d
}

// seal adds markers to an input, as a member's name and as values, and plants the salt. If the deal
// has mode open and keeps its inputs, GET /inputs may show the markers and the salt.
func (l *leakTest) seal(d *e2e.CreatedDeal, b e2e.Body, input e2e.Body) e2e.Sealed {
	input["note"], input[l.mark("member's name")] = l.mark("member"), l.mark("member")
	s := e2e.Seal(l.T, input)
	l.plant("salt", s.Salt, "")
	if b["mode"] == "open" && b["retention"] != "purge" {
		for i := range l.planted[len(l.planted)-4:] {
			l.planted[len(l.planted)-1-i].allowed = "GET " + d.Path("/inputs ")
		}
	}
	return s
}

func (l *leakTest) act(status int, d *e2e.CreatedDeal, action string, party int, s e2e.Sealed) e2e.Answer {
	l.T.Helper()
	return l.Want(status, "POST", d.Path("/"+action), d.Tokens[party], s.Act(action), "Idempotency-Key", l.mark("header of "+action))
}

func (l *leakTest) play(b e2e.Body, inputs ...e2e.Body) *e2e.CreatedDeal {
	d := l.create(b)
	all := make([]e2e.Sealed, len(inputs))
	for p, input := range inputs {
		all[p] = l.seal(d, b, input)
		l.act(200, d, "commit", p, all[p])
	}
	for p := range inputs {
		l.act(200, d, "reveal", p, all[p])
	}
	if b["algorithm"] == "random.v1" {
		l.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	}
	d.View()
	d.Certified(e2e.DefaultTimeout)
	return d
}

func (l *leakTest) deploymentSecrets() {
	for _, file := range []string{"server-secret", "append-secret", "dev-key.pem"} {
		text, err := os.ReadFile(filepath.Join(l.stack.Dir(), file))
		if err != nil {
			l.T.Fatal(err)
		}
		for _, line := range strings.Fields(string(text)) {
			if len(line) >= 24 {
				l.plant(file, line, "")
			}
		}
	}
	for name, address := range map[string]string{"Postgres": l.stack.DatabaseURL(), "Redis": l.stack.RedisURL()} {
		parsed, err := url.Parse(address)
		if err != nil {
			l.T.Fatal(err)
		}
		password, _ := parsed.User.Password()
		l.plant("password of "+name, password, "")
	}
}

// places returns the contents of every place to which a secret could have leaked, by name.
func (l *leakTest) places() map[string][]byte {
	places := dumped(l.T, l.stack)
	places["traces"] = l.traces.Raw()
	for call, text := range l.answers.all {
		places[call] = text
	}
	logs := []string{l.stack.Postgres().LogFile(), l.stack.Redis().LogFile()}
	for _, name := range l.stack.Names() {
		logs = append(logs, l.stack.Log(name))
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if resp, err := http.Get(l.stack.AdminURL(name) + path); err == nil {
				places[name+path], _ = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
		}
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			l.T.Fatal(err)
		}
		places["log "+filepath.Base(log)] = text
	}
	return places
}

// search fails the test if a planted secret appears anywhere except in the responses that
// planted.allowed names.
func (l *leakTest) search() {
	l.T.Helper()
	places := l.places()
	markers := make([]e2e.Marker, len(l.planted))
	for i, p := range l.planted {
		markers[i] = p.Marker
	}
	for i, shown := range e2e.Shown(markers, places) {
		for _, at := range shown {
			if p := l.planted[i]; p.allowed == "" || !strings.HasPrefix(at, p.allowed) {
				l.T.Errorf("%s is shown in %s", p.Name, at)
			}
		}
	}
	// The data files also contain the write-ahead log and deleted rows, which no table shows.
	var patterns bytes.Buffer
	for _, p := range l.planted {
		if !strings.HasPrefix(p.Name, "password") {
			fmt.Fprintln(&patterns, p.Text)
		}
	}
	list := filepath.Join(l.T.TempDir(), "patterns")
	if err := os.WriteFile(list, patterns.Bytes(), 0o600); err != nil {
		l.T.Fatal(err)
	}
	out, err := exec.Command("grep", "-rlaF", "-f", list, l.stack.Postgres().DataDir()).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
		l.T.Errorf("grep in the files of Postgres: %v\n%s", err, out)
	}
	l.T.Logf("%d secrets, %d places", len(l.planted), len(places))
}

// checkSearch requires that the search finds public texts. Without this check, a broken search would
// find no secret, and the test would pass.
func (l *leakTest) checkSearch(d *e2e.CreatedDeal, label string) {
	l.T.Helper()
	// The Redis keys of the service expire within seconds, so the check adds a key without expiry.
	if err := e2e.Cache(l.T, l.stack).Set(l.T.Context(), "public", label, 0).Err(); err != nil {
		l.T.Fatal(err)
	}
	places := l.places()
	public := []e2e.Marker{{Text: label}, {Text: d.ID}, {Text: `"level":"`}}
	shown := e2e.Shown(public, places)
	for i, at := range [][]string{{"table public.parties", "Redis public"}, {"table public.commitments", "table public.certificates", "log deal-api.log", "traces"}, {"log deadline-worker.log", "log log-server.log"}} {
		for _, place := range at {
			if !slices.Contains(shown[i], place) {
				l.T.Errorf("the public text %s is not found in %s: the search is broken", public[i].Text, place)
			}
		}
	}
	if rows := bytes.Count(places["table public.idempotency"], []byte("\n")); rows < 10 {
		l.T.Errorf("only %d stored responses are in the search: the search is broken", rows)
	}
	if !slices.ContainsFunc(shown[0], func(at string) bool { return strings.HasPrefix(at, "GET "+d.Path(" ")) }) {
		l.T.Errorf("the public label is found in %v and in no view: the search is broken", shown[0])
	}
}

// dumped returns the COPY output of every table outside the system schemas, and all keys and values
// of Redis.
func dumped(t testing.TB, stack *localstack.Stack) map[string][]byte {
	t.Helper()
	w := e2e.OpenDB(t, stack)
	places := map[string][]byte{}
	conn, err := w.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, table := range w.Column(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`) {
		var rows bytes.Buffer
		if _, err := conn.Conn().PgConn().CopyTo(t.Context(), &rows, "COPY (SELECT * FROM "+table+") TO STDOUT"); err != nil {
			t.Fatal(err)
		}
		places["table "+table] = rows.Bytes()
	}
	client := e2e.Cache(t, stack)
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		value, err := client.Get(t.Context(), key).Bytes()
		if err != nil && err != redis.Nil { // GET reads only strings, but DUMP reads any type
			var text string
			text, err = client.Dump(t.Context(), key).Result()
			value = []byte(text)
		}
		if err != nil && err != redis.Nil {
			t.Fatalf("Redis key %s: %v", key, err)
		}
		places["Redis "+key] = append([]byte(key+"\x00"), value...)
	}
	return places
}
