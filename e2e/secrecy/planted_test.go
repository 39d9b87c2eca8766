package secrecy

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// No revealed input, salt, token or key is in any log line, error, deal view,
// answer or database column, other than where the design puts it.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	g := newGarden(t)
	g.deploymentSecrets()
	by := func(b e2e.Body) e2e.Body { return e2e.Timed(b, e2e.After(5*e2e.Patience), e2e.After(6*e2e.Patience)) }
	with := func(b e2e.Body, member, value string) e2e.Body { b[member] = value; return b }
	past := g.stack.Chain().RoundAt(time.Now().Unix()) - 10
	split := []e2e.Body{{"valuations": e2e.Body{"car": 70, "boat": 30}}, {"valuations": e2e.Body{"car": 40, "boat": 60}}}
	split2 := []e2e.Body{{"valuations": e2e.Body{"car": 7}}, {"valuations": e2e.Body{"boat": 6}}}

	label := "label " + strings.Repeat("x", 20)
	public := by(e2e.SplitBody(0, 0))
	public["party_labels"] = []string{label, "bob"}
	known := g.grow(public, split...)
	kept := []*e2e.Dealt{known}
	kept = append(kept, g.grow(by(e2e.RandomBody(2, past, 0, 0)), e2e.Body{"nonce": g.freshHex("nonce")}, e2e.Body{"nonce": strings.ToUpper(g.freshHex("nonce"))}))
	open := g.grow(with(by(e2e.SplitBody(0, 0)), "mode", "open"), split2...)
	kept = append(kept, open)
	if a := g.Want(200, "GET", open.Path("/inputs"), open.Tokens[1], nil); !strings.Contains(string(a.Body), "MARKED") {
		t.Errorf("inputs of an open deal: %s", a.Body)
	}
	g.Refused(409, "INPUTS_SEALED", "GET", known.Path("/inputs"), known.Tokens[0], nil)

	purged := []*e2e.Dealt{
		g.grow(with(by(e2e.RandomBody(2, past, 0, 0)), "retention", "purge"), e2e.Body{"nonce": g.freshHex("nonce")}, e2e.Body{"nonce": g.freshHex("nonce")}),
		g.grow(with(by(e2e.ShapleyBody(0, 0)), "retention", "purge"), e2e.Body{"accept": true}, e2e.Body{"accept": true}),
		g.grow(with(by(e2e.ShapleyBody(0, 0)), "retention", "purge"), e2e.Body{"accept": true}, e2e.Body{"accept": false}),
	}
	late, missing := g.missedReveal(with(by(e2e.SplitBody(0, 0)), "retention", "purge"))
	purged = append(purged, late)

	g.refusals(by(e2e.SplitBody(0, 0)), by(e2e.RandomBody(2, past, 0, 0)), by(e2e.ShapleyBody(0, 0)))
	g.act(409, late, "reveal", 1, missing)
	g.malformed(by(e2e.SplitBody(0, 0)))
	g.strangers(known)
	g.faults(by(e2e.SplitBody(0, 0)), split)
	g.tools(by(e2e.SplitBody(0, 0)))

	w := e2e.Database(t, g.stack)
	w.Converged()
	for _, d := range purged {
		if n := w.KeptInputs(d.ID); n != 0 {
			t.Errorf("a purged deal has kept %d inputs", n)
		}
	}
	for _, d := range kept {
		if n := w.KeptInputs(d.ID); n != 2 {
			t.Errorf("a deal of two has kept %d inputs", n)
		}
	}
	g.controls(known, label)
	g.dig()
	e2e.Invariants(t, g.stack)
}

// missedReveal is a deal that is VOID as party 1 revealed nothing; what it had
// to reveal comes back. A value as large as a number gets is a marker, too: no
// result shows it in part.
func (g *garden) missedReveal(b e2e.Body) (*e2e.Dealt, e2e.Sealed) {
	g.T.Helper()
	for lead := 3 * time.Second; ; lead *= 2 {
		deadline := e2e.After(lead)
		d := g.create(e2e.Timed(b, deadline-1, deadline))
		both := []e2e.Sealed{
			g.seal(d, b, e2e.Body{"valuations": e2e.Body{"car": 8237461928374651}}),
			g.seal(d, b, e2e.Body{"valuations": e2e.Body{"car": 1}}),
		}
		g.plant("valuation", "8237461928374651", "")
		if d.Attempt("commit", 0, both[0].Act("commit")) && d.Attempt("commit", 1, both[1].Act("commit")) && d.Attempt("reveal", 0, both[0].Act("reveal")) {
			d.Certified(e2e.Patience)
			return d, both[1]
		}
	}
}

// refusals are calls that are refused for what they hold, or for when they come.
func (g *garden) refusals(split, random, shapley e2e.Body) {
	g.T.Helper()
	for _, invalid := range []struct {
		b     e2e.Body
		input e2e.Body
		code  string
	}{
		{split, e2e.Body{"valuations": e2e.Body{"car": 1, g.fresh("item"): 2}}, "INVALID_INPUT"},
		{split, e2e.Body{"valuations": e2e.Body{"car": -1}}, "INVALID_INPUT"},
		{split, e2e.Body{"valuations": e2e.Body{"car": g.fresh("value")}}, "INVALID_INPUT"},
		{split, e2e.Body{"valuations": g.fresh("valuations")}, "INVALID_INPUT"},
		{split, e2e.Body{g.fresh("only member"): 1}, "INVALID_INPUT"},
		{random, e2e.Body{"nonce": g.fresh("no hex")}, "INVALID_INPUT"},
		{random, e2e.Body{"nonce": strings.Repeat(g.freshHex("long nonce"), 26)}, "INVALID_INPUT"},
		{random, e2e.Body{"nonce": e2e.Body{g.fresh("nonce's member"): 1}}, "INVALID_INPUT"},
		{shapley, e2e.Body{"accept": g.fresh("accept")}, "INVALID_INPUT"},
	} {
		d := g.create(invalid.b)
		s := g.seal(d, invalid.b, invalid.input)
		other := g.seal(d, invalid.b, e2e.Body{"valuations": e2e.Body{}})
		g.Refused(409, "COMMITS_MISSING", "POST", d.Path("/reveal"), d.Tokens[0], s.Act("reveal"))
		for p := range d.Tokens {
			g.act(200, d, "commit", p, s)
		}
		g.Refused(409, "ALREADY_COMMITTED", "POST", d.Path("/commit"), d.Tokens[0], other.Act("commit"))
		g.Refused(400, invalid.code, "POST", d.Path("/reveal"), d.Tokens[0], s.Act("reveal"), "Idempotency-Key", g.fresh("header"))
		g.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], other.Act("reveal"))
		wrong := e2e.Sealed{Input: s.Input, Salt: g.fresh("wrong salt"), Commitment: s.Commitment}
		g.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], wrong.Act("reveal"))
		d.View()
	}
}

// malformed are bodies that cannot be read, or not as what they should be.
func (g *garden) malformed(b e2e.Body) {
	g.T.Helper()
	d := g.create(b)
	for _, form := range []string{
		`%s`, `"%s"`, `["%s"]`, `{"%s`, `{"input":{"x":"%s"`, `{"input":{"x":"%s"}}}`, `{"input":{"x":1.5,"y":"%s"}}`, `{"input":{"y":"%s","x":1e3}}`,
		`{"input":{"%[1]s":1,"%[1]s":2}}`, `{"%[1]s":1,"%[1]s":2}`, `{"input":{"x":"\ud800%s"}}`, `{"input":{"x":"\q%s"}}`, "{\"input\":{\"x\":\"\x01%s\"}}", "{\"input\":{\"x\":\"\xff%s\"}}",
		`{"input":"%s"}`, `{"input":["%s"],"salt":"x"}`, `{"input":{},"salt":["%s"]}`, `{"input":{},"salt":"%[1]s` + strings.Repeat("x", 1024) + `"}`,
		`{"commitment":"%s"}`, `{"commitment":"sha256:%s"}`, `{"commitment":{"%s":1}}`, `{"commitment":["%s"]}`,
		`{"input":` + strings.Repeat(`{"x":`, 40) + `"%s"` + strings.Repeat(`}`, 41), `{"input":{"x":"%s` + strings.Repeat("x", 5<<20) + `"}}`,
	} {
		for _, to := range []struct{ path, token string }{
			{"/v1/keys", ""}, {"/v1/deals", d.Key}, {d.Path("/commit"), d.Tokens[0]}, {d.Path("/reveal"), d.Tokens[0]}, {d.Path("/cancel"), d.Key}, {d.Path("/entropy"), d.Tokens[0]},
		} {
			// Keys and cancel take any object; a valid one is not what this is about.
			if strings.HasSuffix(to.path, "/cancel") && strings.HasPrefix(form, `{"`) && !strings.HasPrefix(form, `{"%`) {
				continue
			}
			text := fmt.Sprintf(form, g.fresh("malformed body to "+to.path))
			if a, err := g.Try(g.T.Context(), "POST", to.path, to.token, text, "Idempotency-Key", g.fresh("header")); err == nil && a.Status >= 500 {
				g.T.Errorf("POST %s %.60q: %d %s", to.path, text, a.Status, a.Body)
			}
		}
	}
}

// strangers send credentials that are unknown, or in the wrong place.
func (g *garden) strangers(d *e2e.Dealt) {
	g.T.Helper()
	commit := e2e.Body{"commitment": "sha256:" + strings.Repeat("0", 64)}
	for _, call := range []struct{ method, path string }{
		{"POST", "/v1/keys"}, {"POST", "/v1/deals"}, {"GET", d.Path("")}, {"POST", d.Path("/commit")}, {"POST", d.Path("/reveal")}, {"POST", d.Path("/entropy")},
		{"POST", d.Path("/cancel")}, {"GET", d.Path("/certificate")}, {"GET", d.Path("/inputs")}, {"GET", "/v1/verify/unknown"}, {"GET", "/v1/log/tree-head"},
		{"GET", "/v1/status"}, {"GET", "/unknown"}, {"DELETE", d.Path("")}, {g.fresh("method"), "/v1/keys"},
	} {
		for _, form := range []string{"Bearer fp_%s", "Bearer it_%s", "bearer %s", "Basic %s", "%s", "Bearer it_%s it_again", "Bearer  %s\t"} {
			g.send(call.method, call.path, commit, "Authorization", fmt.Sprintf(form, g.fresh("credential")))
		}
		for _, credential := range []string{d.Tokens[1], d.Key} {
			g.send(call.method, call.path+"?token="+credential+"&api_key="+g.fresh("query"), commit, "Authorization", "Bearer "+g.key())
			g.send(call.method, call.path+"/"+credential, commit, "Authorization", "Bearer "+credential)
		}
		g.send(call.method, call.path+"?"+g.fresh("query")+"=1", commit, "X-Api-Key", g.fresh("header"), "Cookie", "session="+g.fresh("cookie"),
			"X-Forwarded-For", g.fresh("forwarded"), "User-Agent", g.fresh("agent"), "X-Request-Id", "it_"+g.fresh("request id"), "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "vendor="+g.fresh("state"), "Baggage", "a="+g.fresh("baggage"), "Referer", "https://example.org/?"+g.fresh("referer"))
		g.send(call.method, call.path, commit, "Idempotency-Key", g.fresh("header")+strings.Repeat("x", 256))
		g.send(call.method, call.path, commit, "Idempotency-Key", g.fresh("header")+" "+g.fresh("header"))
	}
	for _, path := range []string{"/%s", "//%s", "/v1/deals/%s", "/v1/deals/%s/reveal", "/v1/deals/d_%s", "/v1/verify/%s", "/v1/verify/c_%s", "/v1/%%zz%s", "/v1/log/%s"} {
		g.send("GET", fmt.Sprintf(path, g.fresh("path")), nil, "Authorization", "Bearer "+d.Tokens[0])
	}
}

// send asks for an answer, whatever it is but a failure of the service.
func (g *garden) send(method, path string, sent any, header ...string) {
	g.T.Helper()
	a, err := g.Try(g.T.Context(), method, path, "", sent, header...)
	if err == nil && a.Status >= 500 {
		g.T.Errorf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
}

// tools play a deal over MCP, whose answers show an agent its own secrets again.
func (g *garden) tools(b e2e.Body) {
	g.T.Helper()
	const may = "POST /mcp "
	var made struct {
		APIKey string `json:"api_key"`
	}
	g.Tool("create_key", e2e.Body{"idempotency_key": g.fresh("key of create_key")}).Into(g.T, &made)
	b["api_key"] = g.plant("API key over MCP", made.APIKey, may)
	d := g.Created(made.APIKey, e2e.Answer{Body: g.Tool("create_deal", b).Structured})
	all := make([]e2e.Sealed, len(d.Tokens))
	for p, token := range d.Tokens {
		g.plant("token over MCP", token, may)
		all[p] = e2e.Seal(g.T, e2e.Body{"valuations": e2e.Body{"car": p + 1}, g.plant("member over MCP", "MARKED"+rand.Text(), may): 1})
		g.plant("salt over MCP", all[p].Salt, may)
		g.Tool("compute_commitment_tool", e2e.Body{"input": all[p].Input, "salt": all[p].Salt})
		g.Tool("commit_input", e2e.Body{"deal_id": d.ID, "invite_token": token, "commitment": all[p].Commitment})
		g.Fails("INVALID_CREDENTIAL", "get_deal", `{"invite_token":"it_`+g.fresh("unknown token")+`"}`)
	}
	for _, form := range []string{
		`%s`, `{"jsonrpc":"2.0","id":1,"method":%q}`, `{"jsonrpc":%q}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%q}`,
	} {
		g.Post(fmt.Sprintf(form, g.plant("malformed call", "MARKED"+rand.Text(), may)))
	}
	for p, s := range all {
		g.Fails("COMMITMENT_MISMATCH", "reveal_input", `{"deal_id":"`+d.ID+`","invite_token":"`+d.Tokens[p]+`","input":{},"salt":"`+g.fresh("wrong salt")+`"}`)
		g.Tool("reveal_input", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[p], "input": s.Input, "salt": s.Salt})
	}
	d.Certified(e2e.Patience)
}

// faults are calls while something is out of reach.
func (g *garden) faults(b e2e.Body, inputs []e2e.Body) {
	g.T.Helper()
	if err := g.stack.Redis().Stop(); err != nil {
		g.T.Fatal(err)
	}
	d := g.create(b)
	both := []e2e.Sealed{g.seal(d, b, inputs[0]), g.seal(d, b, inputs[1])}
	g.act(200, d, "commit", 0, both[0])
	if err := g.stack.Redis().Restart(g.T.Context()); err != nil {
		g.T.Fatal(err)
	}

	if err := g.stack.Postgres().Stop(); err != nil {
		g.T.Fatal(err)
	}
	for _, action := range []string{"commit", "reveal"} {
		g.act(503, d, action, 1, both[1])
	}
	g.Want(503, "POST", "/v1/deals", d.Key, b, "Idempotency-Key", g.fresh("header"))
	g.Want(503, "POST", "/v1/keys", "", nil, "Idempotency-Key", g.fresh("header"))
	g.Want(503, "GET", "/v1/deals/d_unknown", "it_"+g.fresh("unknown token"), nil)
	if err := g.stack.Postgres().Restart(g.T.Context()); err != nil {
		g.T.Fatal(err)
	}
	e2e.Eventually(g.T, "the database answers", e2e.Patience, func() bool {
		return g.Do("POST", d.Path("/commit"), d.Tokens[1], both[1].Act("commit")).Status == 200
	})

	if err := g.stack.Stop(localstack.LogServer); err != nil {
		g.T.Fatal(err)
	}
	for p, s := range both {
		g.act(200, d, "reveal", p, s)
	}
	g.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	if err := g.stack.Start(g.T.Context(), localstack.LogServer); err != nil {
		g.T.Fatal(err)
	}
	d.Certified(e2e.Patience)
}
