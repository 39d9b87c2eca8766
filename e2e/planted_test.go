package e2e

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// No revealed input, salt, token or key is in any log line, error, deal view,
// answer or database column, other than where the design puts it.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	g := newGarden(t)
	g.deploymentSecrets()
	by := func(b body) body { return timed(b, after(5*patience), after(6*patience)) }
	with := func(b body, member, value string) body { b[member] = value; return b }
	past := g.stack.Chain().RoundAt(time.Now().Unix()) - 10
	split := []body{{"valuations": body{"car": 70, "boat": 30}}, {"valuations": body{"car": 40, "boat": 60}}}
	split2 := []body{{"valuations": body{"car": 7}}, {"valuations": body{"boat": 6}}}

	label := "label " + strings.Repeat("x", 20)
	public := by(splitBody(0, 0))
	public["party_labels"] = []string{label, "bob"}
	known := g.grow(public, split...)
	kept := []*dealt{known}
	kept = append(kept, g.grow(by(randomBody(2, past, 0, 0)), body{"nonce": g.freshHex("nonce")}, body{"nonce": strings.ToUpper(g.freshHex("nonce"))}))
	open := g.grow(with(by(splitBody(0, 0)), "mode", "open"), split2...)
	kept = append(kept, open)
	if a := g.want(200, "GET", open.path("/inputs"), open.Tokens[1], nil); !strings.Contains(string(a.body), "MARKED") {
		t.Errorf("inputs of an open deal: %s", a.body)
	}
	g.refused(409, "INPUTS_SEALED", "GET", known.path("/inputs"), known.Tokens[0], nil)

	purged := []*dealt{
		g.grow(with(by(randomBody(2, past, 0, 0)), "retention", "purge"), body{"nonce": g.freshHex("nonce")}, body{"nonce": g.freshHex("nonce")}),
		g.grow(with(by(shapleyBody(0, 0)), "retention", "purge"), body{"accept": true}, body{"accept": true}),
		g.grow(with(by(shapleyBody(0, 0)), "retention", "purge"), body{"accept": true}, body{"accept": false}),
	}
	late, missing := g.missedReveal(with(by(splitBody(0, 0)), "retention", "purge"))
	purged = append(purged, late)

	g.refusals(by(splitBody(0, 0)), by(randomBody(2, past, 0, 0)), by(shapleyBody(0, 0)))
	g.act(409, late, "reveal", 1, missing)
	g.malformed(by(splitBody(0, 0)))
	g.strangers(known)
	g.faults(by(splitBody(0, 0)), split)
	g.tools(by(splitBody(0, 0)))

	w := database(t, g.stack)
	w.converged()
	for _, d := range purged {
		if n := w.number("SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.ID); n != 0 {
			t.Errorf("a purged deal has kept %d inputs", n)
		}
	}
	for _, d := range kept {
		if n := w.number("SELECT count(*) FROM reveals WHERE deal_id = $1 AND sealed IS NOT NULL", d.ID); n != 2 {
			t.Errorf("a deal of two has kept %d inputs", n)
		}
	}
	g.controls(known, label)
	g.dig()
	invariants(t, g.stack)
}

// missedReveal is a deal that is VOID as party 1 revealed nothing; what it had
// to reveal comes back. A value as large as a number gets is a marker, too: no
// result shows it in part.
func (g *garden) missedReveal(b body) (*dealt, sealed) {
	g.t.Helper()
	for lead := 3 * time.Second; ; lead *= 2 {
		deadline := after(lead)
		d := g.create(timed(b, deadline-1, deadline))
		both := []sealed{
			g.seal(d, b, body{"valuations": body{"car": 8237461928374651}}),
			g.seal(d, b, body{"valuations": body{"car": 1}}),
		}
		g.plant("valuation", "8237461928374651", "")
		if d.attempt("commit", 0, both[0].act("commit")) && d.attempt("commit", 1, both[1].act("commit")) && d.attempt("reveal", 0, both[0].act("reveal")) {
			d.certified(patience)
			return d, both[1]
		}
	}
}

// refusals are calls that are refused for what they hold, or for when they come.
func (g *garden) refusals(split, random, shapley body) {
	g.t.Helper()
	for _, invalid := range []struct {
		b     body
		input body
		code  string
	}{
		{split, body{"valuations": body{"car": 1, g.fresh("item"): 2}}, "INVALID_INPUT"},
		{split, body{"valuations": body{"car": -1}}, "INVALID_INPUT"},
		{split, body{"valuations": body{"car": g.fresh("value")}}, "INVALID_INPUT"},
		{split, body{"valuations": g.fresh("valuations")}, "INVALID_INPUT"},
		{split, body{g.fresh("only member"): 1}, "INVALID_INPUT"},
		{random, body{"nonce": g.fresh("no hex")}, "INVALID_INPUT"},
		{random, body{"nonce": strings.Repeat(g.freshHex("long nonce"), 26)}, "INVALID_INPUT"},
		{random, body{"nonce": body{g.fresh("nonce's member"): 1}}, "INVALID_INPUT"},
		{shapley, body{"accept": g.fresh("accept")}, "INVALID_INPUT"},
	} {
		d := g.create(invalid.b)
		s := g.seal(d, invalid.b, invalid.input)
		other := g.seal(d, invalid.b, body{"valuations": body{}})
		g.refused(409, "COMMITS_MISSING", "POST", d.path("/reveal"), d.Tokens[0], s.act("reveal"))
		for p := range d.Tokens {
			g.act(200, d, "commit", p, s)
		}
		g.refused(409, "ALREADY_COMMITTED", "POST", d.path("/commit"), d.Tokens[0], other.act("commit"))
		g.refused(400, invalid.code, "POST", d.path("/reveal"), d.Tokens[0], s.act("reveal"), "Idempotency-Key", g.fresh("header"))
		g.refused(400, "COMMITMENT_MISMATCH", "POST", d.path("/reveal"), d.Tokens[0], other.act("reveal"))
		wrong := sealed{s.Input, g.fresh("wrong salt"), s.Commitment}
		g.refused(400, "COMMITMENT_MISMATCH", "POST", d.path("/reveal"), d.Tokens[0], wrong.act("reveal"))
		d.view()
	}
}

// malformed are bodies that cannot be read, or not as what they should be.
func (g *garden) malformed(b body) {
	g.t.Helper()
	d := g.create(b)
	for _, form := range []string{
		`%s`, `"%s"`, `["%s"]`, `{"%s`, `{"input":{"x":"%s"`, `{"input":{"x":"%s"}}}`, `{"input":{"x":1.5,"y":"%s"}}`, `{"input":{"y":"%s","x":1e3}}`,
		`{"input":{"%[1]s":1,"%[1]s":2}}`, `{"%[1]s":1,"%[1]s":2}`, `{"input":{"x":"\ud800%s"}}`, `{"input":{"x":"\q%s"}}`, "{\"input\":{\"x\":\"\x01%s\"}}", "{\"input\":{\"x\":\"\xff%s\"}}",
		`{"input":"%s"}`, `{"input":["%s"],"salt":"x"}`, `{"input":{},"salt":["%s"]}`, `{"input":{},"salt":"%[1]s` + strings.Repeat("x", 1024) + `"}`,
		`{"commitment":"%s"}`, `{"commitment":"sha256:%s"}`, `{"commitment":{"%s":1}}`, `{"commitment":["%s"]}`,
		`{"input":` + strings.Repeat(`{"x":`, 40) + `"%s"` + strings.Repeat(`}`, 41), `{"input":{"x":"%s` + strings.Repeat("x", 5<<20) + `"}}`,
	} {
		for _, to := range []struct{ path, token string }{
			{"/v1/keys", ""}, {"/v1/deals", d.Key}, {d.path("/commit"), d.Tokens[0]}, {d.path("/reveal"), d.Tokens[0]}, {d.path("/cancel"), d.Key}, {d.path("/entropy"), d.Tokens[0]},
		} {
			// Keys and cancel take any object; a valid one is not what this is about.
			if strings.HasSuffix(to.path, "/cancel") && strings.HasPrefix(form, `{"`) && !strings.HasPrefix(form, `{"%`) {
				continue
			}
			text := fmt.Sprintf(form, g.fresh("malformed body to "+to.path))
			if a, err := g.try(g.t.Context(), "POST", to.path, to.token, text, "Idempotency-Key", g.fresh("header")); err == nil && a.status >= 500 {
				g.t.Errorf("POST %s %.60q: %d %s", to.path, text, a.status, a.body)
			}
		}
	}
}

// strangers send credentials that are unknown, or in the wrong place.
func (g *garden) strangers(d *dealt) {
	g.t.Helper()
	commit := body{"commitment": "sha256:" + strings.Repeat("0", 64)}
	for _, call := range []struct{ method, path string }{
		{"POST", "/v1/keys"}, {"POST", "/v1/deals"}, {"GET", d.path("")}, {"POST", d.path("/commit")}, {"POST", d.path("/reveal")}, {"POST", d.path("/entropy")},
		{"POST", d.path("/cancel")}, {"GET", d.path("/certificate")}, {"GET", d.path("/inputs")}, {"GET", "/v1/verify/unknown"}, {"GET", "/v1/log/tree-head"},
		{"GET", "/v1/status"}, {"GET", "/unknown"}, {"DELETE", d.path("")}, {g.fresh("method"), "/v1/keys"},
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
	g.t.Helper()
	a, err := g.try(g.t.Context(), method, path, "", sent, header...)
	if err == nil && a.status >= 500 {
		g.t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
	}
}

// tools play a deal over MCP, whose answers show an agent its own secrets again.
func (g *garden) tools(b body) {
	g.t.Helper()
	const may = "POST /mcp "
	var made struct {
		APIKey string `json:"api_key"`
	}
	g.tool("create_key", body{"idempotency_key": g.fresh("key of create_key")}).into(g.t, &made)
	b["api_key"] = g.plant("API key over MCP", made.APIKey, may)
	d := g.created(made.APIKey, answer{body: g.tool("create_deal", b).Structured})
	all := make([]sealed, len(d.Tokens))
	for p, token := range d.Tokens {
		g.plant("token over MCP", token, may)
		all[p] = seal(g.t, body{"valuations": body{"car": p + 1}, g.plant("member over MCP", "MARKED"+rand.Text(), may): 1})
		g.plant("salt over MCP", all[p].Salt, may)
		g.tool("compute_commitment_tool", body{"input": all[p].Input, "salt": all[p].Salt})
		g.tool("commit_input", body{"deal_id": d.ID, "invite_token": token, "commitment": all[p].Commitment})
		g.fails("INVALID_CREDENTIAL", "get_deal", `{"invite_token":"it_`+g.fresh("unknown token")+`"}`)
	}
	for p, s := range all {
		g.fails("COMMITMENT_MISMATCH", "reveal_input", `{"deal_id":"`+d.ID+`","invite_token":"`+d.Tokens[p]+`","input":{},"salt":"`+g.fresh("wrong salt")+`"}`)
		g.tool("reveal_input", body{"deal_id": d.ID, "invite_token": d.Tokens[p], "input": s.Input, "salt": s.Salt})
	}
	d.certified(patience)
}

// faults are calls while something is out of reach.
func (g *garden) faults(b body, inputs []body) {
	g.t.Helper()
	if err := g.stack.Redis().Stop(); err != nil {
		g.t.Fatal(err)
	}
	d := g.create(b)
	both := []sealed{g.seal(d, b, inputs[0]), g.seal(d, b, inputs[1])}
	g.act(200, d, "commit", 0, both[0])
	if err := g.stack.Redis().Restart(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}

	if err := g.stack.Postgres().Stop(); err != nil {
		g.t.Fatal(err)
	}
	for _, action := range []string{"commit", "reveal"} {
		g.act(503, d, action, 1, both[1])
	}
	g.want(503, "POST", "/v1/deals", d.Key, b, "Idempotency-Key", g.fresh("header"))
	g.want(503, "POST", "/v1/keys", "", nil, "Idempotency-Key", g.fresh("header"))
	g.want(503, "GET", "/v1/deals/d_unknown", "it_"+g.fresh("unknown token"), nil)
	if err := g.stack.Postgres().Restart(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	eventually(g.t, "the database answers", patience, func() bool {
		return g.do("POST", d.path("/commit"), d.Tokens[1], both[1].act("commit")).status == 200
	})

	if err := g.stack.Stop(localstack.LogServer); err != nil {
		g.t.Fatal(err)
	}
	for p, s := range both {
		g.act(200, d, "reveal", p, s)
	}
	g.refused(409, "CERT_NOT_READY", "GET", d.path("/certificate"), d.Tokens[0], nil)
	if err := g.stack.Start(g.t.Context(), localstack.LogServer); err != nil {
		g.t.Fatal(err)
	}
	d.certified(patience)
}
