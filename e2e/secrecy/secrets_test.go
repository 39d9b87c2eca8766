package secrecy

import (
	"bytes"
	"crypto/rand"
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

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// garden is a stack in which marked secrets are planted. All that it answers is
// kept, and all spans that it sends.
type garden struct {
	*e2e.Client
	stack   *localstack.Stack
	planted []planted
	ear     *ear
	traces  *e2e.Collector
}

// planted is a secret and the one kind of answer that may show it, to its owner.
type planted struct {
	e2e.Marker
	may string // how the call begins, "GET /v1/…"; empty: none
}

// ear keeps every answer, its headers included.
type ear struct {
	next  http.RoundTripper
	mu    sync.Mutex
	heard map[string][]byte
}

func (e *ear) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var all bytes.Buffer
	_ = resp.Header.Write(&all)
	all.Write(text)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[fmt.Sprintf("%s %s answered %d (%d)", r.Method, r.URL.Path, resp.StatusCode, len(e.heard))] = all.Bytes()
	return resp, err
}

func newGarden(t *testing.T) *garden {
	traces := e2e.NewCollector(t)
	stack := e2e.Own(t, func(o *localstack.Options) { o.Env[""] = append(o.Env[""], traces.Environment()...) })
	c := e2e.NewClient(t, stack.BaseURL())
	g := &garden{Client: c, stack: stack, traces: traces, ear: &ear{next: c.Http.Transport, heard: map[string][]byte{}}}
	c.Http.Transport = g.ear
	return g
}

// plant registers a secret.
func (g *garden) plant(name, text, may string) string {
	g.planted = append(g.planted, planted{e2e.Marker{Name: name, Text: text}, may})
	return text
}

// fresh plants a random text.
func (g *garden) fresh(name string) string {
	return g.plant(name, "MARKED"+rand.Text(), "")
}

// freshHex plants random hex digits, and the bytes they stand for.
func (g *garden) freshHex(name string) string {
	raw := make([]byte, 20)
	_, _ = rand.Read(raw)
	return g.plant(name, hex.EncodeToString(raw), "")
}

// key makes an API key, which only the answer to its creation shows.
func (g *garden) key() string {
	var made struct {
		APIKey string `json:"api_key"`
	}
	g.Want(201, "POST", "/v1/keys", "", nil, "Idempotency-Key", g.fresh("header of keys")).Into(g.T, &made)
	return g.plant("API key", made.APIKey, "POST /v1/keys ")
}

// create makes a deal, whose tokens only the answer to its creation shows.
func (g *garden) create(b e2e.Body) *e2e.Dealt {
	key := g.key()
	d := g.Created(key, g.Want(201, "POST", "/v1/deals", key, b, "Idempotency-Key", g.fresh("header of create")))
	for _, token := range d.Tokens {
		g.plant("token", token, "POST /v1/deals ")
	}
	return d
}

// seal hides markers in an input, as a member's name and its value, and in its
// salt. Only /inputs of an open deal may show them.
func (g *garden) seal(d *e2e.Dealt, b e2e.Body, input e2e.Body) e2e.Sealed {
	input["note"], input[g.fresh("member's name")] = g.fresh("member"), g.fresh("member")
	s := e2e.Seal(g.T, input)
	g.plant("salt", s.Salt, "")
	if b["mode"] == "open" && b["retention"] != "purge" {
		for i := range g.planted[len(g.planted)-4:] {
			g.planted[len(g.planted)-1-i].may = "GET " + d.Path("/inputs ")
		}
	}
	return s
}

// act sends a commit or reveal under a marked Idempotency-Key.
func (g *garden) act(status int, d *e2e.Dealt, action string, party int, s e2e.Sealed) e2e.Answer {
	g.T.Helper()
	return g.Want(status, "POST", d.Path("/"+action), d.Tokens[party], s.Act(action), "Idempotency-Key", g.fresh("header of "+action))
}

// grow plays a deal with marked inputs to its end.
func (g *garden) grow(b e2e.Body, inputs ...e2e.Body) *e2e.Dealt {
	d := g.create(b)
	all := make([]e2e.Sealed, len(inputs))
	for p, input := range inputs {
		all[p] = g.seal(d, b, input)
		g.act(200, d, "commit", p, all[p])
	}
	for p := range inputs {
		g.act(200, d, "reveal", p, all[p])
	}
	if b["algorithm"] == "random.v1" {
		g.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	}
	d.View()
	d.Certified(e2e.Patience)
	return d
}

// deploymentSecrets are what the binaries were given.
func (g *garden) deploymentSecrets() {
	for _, file := range []string{"server-secret", "append-secret", "dev-key.pem"} {
		text, err := os.ReadFile(filepath.Join(g.stack.Dir(), file))
		if err != nil {
			g.T.Fatal(err)
		}
		for _, line := range strings.Fields(string(text)) {
			if len(line) >= 24 {
				g.plant(file, line, "")
			}
		}
	}
	for name, address := range map[string]string{"Postgres": g.stack.DatabaseURL(), "Redis": g.stack.RedisURL()} {
		parsed, err := url.Parse(address)
		if err != nil {
			g.T.Fatal(err)
		}
		password, _ := parsed.User.Password()
		g.plant("password of "+name, password, "")
	}
}

// places are everywhere that a secret could have leaked to.
func (g *garden) places() map[string][]byte {
	places := e2e.Dumped(g.T, g.stack)
	places["traces"] = g.traces.Place()
	for call, text := range g.ear.heard {
		places[call] = text
	}
	logs := []string{g.stack.Postgres().LogFile(), g.stack.Redis().LogFile()}
	for _, name := range g.stack.Names() {
		logs = append(logs, g.stack.Log(name))
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if resp, err := http.Get(g.stack.AdminURL(name) + path); err == nil {
				places[name+path], _ = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
		}
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			g.T.Fatal(err)
		}
		places["log "+filepath.Base(log)] = text
	}
	return places
}

// dig searches everything for everything.
func (g *garden) dig() {
	g.T.Helper()
	places := g.places()
	for _, p := range g.planted {
		for _, found := range p.ShownIn(places) {
			if p.may == "" || !strings.HasPrefix(found, p.may) {
				g.T.Errorf("%s is shown in %s", p.Name, found)
			}
		}
	}
	// The files of Postgres hold its write-ahead log as well, and rows since deleted.
	var patterns bytes.Buffer
	for _, p := range g.planted {
		if !strings.HasPrefix(p.Name, "password") {
			fmt.Fprintln(&patterns, p.Text)
		}
	}
	list := filepath.Join(g.T.TempDir(), "patterns")
	if err := os.WriteFile(list, patterns.Bytes(), 0o600); err != nil {
		g.T.Fatal(err)
	}
	out, err := exec.Command("grep", "-rlaF", "-f", list, g.stack.Postgres().DataDir()).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
		g.T.Errorf("grep over the files of Postgres: %v\n%s", err, out)
	}
	g.T.Logf("%d secrets, %d places", len(g.planted), len(places))
}

// controls makes sure that the search would have found something: what is
// public is where it belongs.
func (g *garden) controls(d *e2e.Dealt, label string) {
	g.T.Helper()
	places := g.places()
	for place, text := range map[string]string{
		"table public.parties": label, "table public.commitments": d.ID, "table public.certificates": d.ID,
		"log deal-api.log": d.ID, "log deadline-worker.log": `"level"`, "log log-server.log": `"level"`, "traces": d.ID,
	} {
		if !slices.Contains((e2e.Marker{Name: "", Text: text}).ShownIn(places), place) {
			g.T.Errorf("%s is not found in %s: the search is broken", text, place)
		}
	}
	shown := (e2e.Marker{Name: "", Text: label}).ShownIn(places)
	if !slices.ContainsFunc(shown, func(at string) bool { return strings.HasPrefix(at, "GET "+d.Path(" ")) }) {
		g.T.Errorf("the label is found in %v and in no view: the search is broken", shown)
	}
}
