package secrecy

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// An input, salt, token or key appears only in the answers that may show it. No log line, error,
// deal view, trace or metric shows it. Neither Postgres nor Redis stores it in clear text.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	l := newLeakTest(t)
	l.deploymentSecrets()
	by := func(b e2e.Body) e2e.Body {
		return e2e.Timed(b, e2e.After(5*e2e.DefaultTimeout), e2e.After(6*e2e.DefaultTimeout))
	}
	with := func(b e2e.Body, member, value string) e2e.Body { b[member] = value; return b }
	past := l.stack.Chain().RoundAt(time.Now().Unix()) - 10
	split := []e2e.Body{{"valuations": e2e.Body{"car": 70, "boat": 30}}, {"valuations": e2e.Body{"car": 40, "boat": 60}}}
	split2 := []e2e.Body{{"valuations": e2e.Body{"car": 7}}, {"valuations": e2e.Body{"boat": 6}}}

	label := "label " + strings.Repeat("x", 20)
	// The outages come first, because they empty Redis. The search at the end must see what the
	// later calls store in Redis.
	l.faults(by(e2e.SplitBody(0, 0)), []e2e.Body{{"valuations": e2e.Body{"car": 5}}, {"valuations": e2e.Body{"boat": 5}}})

	public := by(e2e.SplitBody(0, 0))
	public["party_labels"] = []string{label, "bob"}
	public["title"], public["message"] = "words "+rand.Text(), "words "+rand.Text()
	known := l.play(public, split...)
	kept := []*e2e.CreatedDeal{known}
	kept = append(kept, l.play(by(e2e.RandomBody(2, past, 0, 0)), e2e.Body{"nonce": l.markHex("nonce")}, e2e.Body{"nonce": strings.ToUpper(l.markHex("nonce"))}))
	open := l.play(with(by(e2e.SplitBody(0, 0)), "mode", "open"), split2...)
	kept = append(kept, open)
	if a := l.Want(200, "GET", open.Path("/inputs"), open.Tokens[1], nil); !strings.Contains(string(a.Body), "MARKED") {
		t.Errorf("GET inputs of an open deal: %s, want all inputs", a.Body)
	}
	l.Refused(409, "INPUTS_SEALED", "GET", known.Path("/inputs"), known.Tokens[0], nil)

	purged := []*e2e.CreatedDeal{
		l.play(with(by(e2e.RandomBody(2, past, 0, 0)), "retention", "purge"), e2e.Body{"nonce": l.markHex("nonce")}, e2e.Body{"nonce": l.markHex("nonce")}),
		l.play(with(by(e2e.ShapleyBody(0, 0)), "retention", "purge"), e2e.Body{"accept": true}, e2e.Body{"accept": true}),
		l.play(with(by(e2e.ShapleyBody(0, 0)), "retention", "purge"), e2e.Body{"accept": true}, e2e.Body{"accept": false}),
	}
	late, missing := l.missedReveal(with(by(e2e.SplitBody(0, 0)), "retention", "purge"))
	purged = append(purged, late)

	l.refusals(by(e2e.SplitBody(0, 0)), by(e2e.RandomBody(2, past, 0, 0)), by(e2e.ShapleyBody(0, 0)))
	l.act(409, late, "reveal", 1, missing)
	l.malformed(by(e2e.SplitBody(0, 0)))
	l.strangers(known)
	l.tools(by(e2e.SplitBody(0, 0)))

	w := e2e.OpenDB(t, l.stack)
	w.Converged()
	for _, d := range purged {
		if n := w.KeptInputs(d.ID); n != 0 {
			t.Errorf("a purged deal has kept %d inputs, want 0", n)
		}
	}
	for _, d := range kept {
		if n := w.KeptInputs(d.ID); n != 2 {
			t.Errorf("a two-party deal has kept %d inputs, want 2", n)
		}
	}
	l.checkSearch(known, label)
	l.wordsStayInTheDeal(known, public["title"].(string), public["message"].(string))
	l.search()
	e2e.Invariants(t, l.stack)
}

// wordsStayInTheDeal requires that only the deal's row, its view, declaration and bundle show its title and message.
func (l *leakTest) wordsStayInTheDeal(d *e2e.CreatedDeal, texts ...string) {
	l.T.Helper()
	l.Want(200, "GET", d.Path("/declaration"), d.Tokens[1], nil)
	l.Want(200, "GET", d.Path("/bundle"), d.Tokens[1], nil)
	for _, text := range texts {
		at := e2e.Shown([]e2e.Marker{{Text: text}}, l.places())[0]
		for _, place := range at {
			if place != "table public.deals" && !strings.HasPrefix(place, "GET "+d.Path(" ")) && !strings.HasPrefix(place, "GET "+d.Path("/declaration ")) && !strings.HasPrefix(place, "GET "+d.Path("/bundle ")) {
				l.T.Errorf("title or message is shown in %s", place)
			}
		}
		if len(at) < 4 {
			l.T.Errorf("title or message is found in %q only: the search is broken", at)
		}
	}
}

// missedReveal plays a deal that ends VOID because party 1 does not reveal. It returns the deal and
// the input of party 1. It also plants the valuation of party 0. No response may show this number,
// because a VOID deal has no result.
func (l *leakTest) missedReveal(b e2e.Body) (*e2e.CreatedDeal, e2e.Sealed) {
	l.T.Helper()
	for lead := 3 * time.Second; ; lead *= 2 {
		deadline := e2e.After(lead)
		d := l.create(e2e.Timed(b, deadline-1, deadline))
		both := []e2e.Sealed{
			l.seal(d, b, e2e.Body{"valuations": e2e.Body{"car": 8237461928374651}}),
			l.seal(d, b, e2e.Body{"valuations": e2e.Body{"car": 1}}),
		}
		l.plant("valuation", "8237461928374651", "")
		if d.Attempt("commit", 0, both[0].Act("commit")) && d.Attempt("commit", 1, both[1].Act("commit")) && d.Attempt("reveal", 0, both[0].Act("reveal")) {
			d.Certified(e2e.DefaultTimeout)
			return d, both[1]
		}
	}
}

func (l *leakTest) refusals(split, random, shapley e2e.Body) {
	l.T.Helper()
	for _, invalid := range []struct {
		b     e2e.Body
		input e2e.Body
		code  string
	}{
		{split, e2e.Body{"valuations": e2e.Body{"car": 1, l.mark("item"): 2}}, "INVALID_INPUT"},
		{split, e2e.Body{"valuations": e2e.Body{"car": -1}}, "INVALID_INPUT"},
		{split, e2e.Body{"valuations": e2e.Body{"car": l.mark("value")}}, "INVALID_INPUT"},
		{split, e2e.Body{"valuations": l.mark("valuations")}, "INVALID_INPUT"},
		{split, e2e.Body{l.mark("only member"): 1}, "INVALID_INPUT"},
		{random, e2e.Body{"nonce": l.mark("no hex")}, "INVALID_INPUT"},
		{random, e2e.Body{"nonce": strings.Repeat(l.markHex("long nonce"), 26)}, "INVALID_INPUT"},
		{random, e2e.Body{"nonce": e2e.Body{l.mark("nonce's member"): 1}}, "INVALID_INPUT"},
		{shapley, e2e.Body{"accept": l.mark("accept")}, "INVALID_INPUT"},
	} {
		d := l.create(invalid.b)
		s := l.seal(d, invalid.b, invalid.input)
		other := l.seal(d, invalid.b, e2e.Body{"valuations": e2e.Body{}})
		l.Refused(409, "COMMITS_MISSING", "POST", d.Path("/reveal"), d.Tokens[0], s.Act("reveal"))
		for p := range d.Tokens {
			l.act(200, d, "commit", p, s)
		}
		l.Refused(409, "ALREADY_COMMITTED", "POST", d.Path("/commit"), d.Tokens[0], other.Act("commit"))
		l.Refused(400, invalid.code, "POST", d.Path("/reveal"), d.Tokens[0], s.Act("reveal"), "Idempotency-Key", l.mark("header"))
		l.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], other.Act("reveal"))
		wrong := e2e.Sealed{Input: s.Input, Salt: l.mark("wrong salt"), Commitment: s.Commitment}
		l.Refused(400, "COMMITMENT_MISMATCH", "POST", d.Path("/reveal"), d.Tokens[0], wrong.Act("reveal"))
		d.View()
	}
}

func (l *leakTest) malformed(b e2e.Body) {
	l.T.Helper()
	d := l.create(b)
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
			// POST cancel accepts any valid JSON object and would end the deal, so skip the bodies that
			// may be valid objects.
			if strings.HasSuffix(to.path, "/cancel") && strings.HasPrefix(form, `{"`) && !strings.HasPrefix(form, `{"%`) {
				continue
			}
			text := fmt.Sprintf(form, l.mark("malformed body to "+to.path))
			if a, err := l.Try(l.T.Context(), "POST", to.path, to.token, text, "Idempotency-Key", l.mark("header")); err == nil && a.Status >= 500 {
				l.T.Errorf("POST %s with body %.60q: %d %s", to.path, text, a.Status, a.Body)
			}
		}
	}
}

// strangers sends unknown credentials, and valid credentials in the wrong place, such as the URL.
func (l *leakTest) strangers(d *e2e.CreatedDeal) {
	l.T.Helper()
	commit := e2e.Body{"commitment": "sha256:" + strings.Repeat("0", 64)}
	for _, call := range []struct{ method, path string }{
		{"POST", "/v1/keys"}, {"POST", "/v1/deals"}, {"GET", d.Path("")}, {"POST", d.Path("/commit")}, {"POST", d.Path("/reveal")}, {"POST", d.Path("/entropy")},
		{"POST", d.Path("/cancel")}, {"GET", d.Path("/certificate")}, {"GET", d.Path("/inputs")}, {"GET", "/v1/verify/unknown"}, {"GET", "/v1/log/tree-head"},
		{"GET", "/v1/status"}, {"GET", "/unknown"}, {"DELETE", d.Path("")}, {l.mark("method"), "/v1/keys"},
	} {
		for _, form := range []string{"Bearer fp_%s", "Bearer it_%s", "bearer %s", "Basic %s", "%s", "Bearer it_%s it_again", "Bearer  %s\t"} {
			l.send(call.method, call.path, commit, "Authorization", fmt.Sprintf(form, l.mark("credential")))
		}
		for _, credential := range []string{d.Tokens[1], d.Key} {
			l.send(call.method, call.path+"?token="+credential+"&api_key="+l.mark("query"), commit, "Authorization", "Bearer "+l.key())
			l.send(call.method, call.path+"/"+credential, commit, "Authorization", "Bearer "+credential)
		}
		l.send(call.method, call.path+"?"+l.mark("query")+"=1", commit, "X-Api-Key", l.mark("header"), "Cookie", "session="+l.mark("cookie"),
			"X-Forwarded-For", l.mark("forwarded"), "User-Agent", l.mark("agent"), "X-Request-Id", "it_"+l.mark("request id"), "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "vendor="+l.mark("state"), "Baggage", "a="+l.mark("baggage"), "Referer", "https://example.org/?"+l.mark("referer"))
		l.send(call.method, call.path, commit, "Idempotency-Key", l.mark("header")+strings.Repeat("x", 256))
		l.send(call.method, call.path, commit, "Idempotency-Key", l.mark("header")+" "+l.mark("header"))
	}
	for _, path := range []string{"/%s", "//%s", "/v1/deals/%s", "/v1/deals/%s/reveal", "/v1/deals/d_%s", "/v1/verify/%s", "/v1/verify/c_%s", "/v1/%%zz%s", "/v1/log/%s"} {
		l.send("GET", fmt.Sprintf(path, l.mark("path")), nil, "Authorization", "Bearer "+d.Tokens[0])
	}
}

func (l *leakTest) send(method, path string, sent any, header ...string) {
	l.T.Helper()
	a, err := l.Try(l.T.Context(), method, path, "", sent, header...)
	if err == nil && a.Status >= 500 {
		l.T.Errorf("%s %s: %d %s, want less than 500", method, path, a.Status, a.Body)
	}
}

// tools makes all calls of a deal over MCP. Only MCP answers may show the deal's tokens, inputs
// and salts.
func (l *leakTest) tools(b e2e.Body) {
	l.T.Helper()
	const allowed = "POST /mcp "
	var made struct {
		APIKey string `json:"api_key"`
	}
	l.Tool("create_key", e2e.Body{"idempotency_key": l.mark("key of create_key")}).Into(l.T, &made)
	b["api_key"] = l.plant("API key over MCP", made.APIKey, allowed)
	d := l.Created(made.APIKey, e2e.Answer{Body: l.Tool("create_deal", b).Structured})
	all := make([]e2e.Sealed, len(d.Tokens))
	for p, token := range d.Tokens {
		l.plant("token over MCP", token, allowed)
		all[p] = e2e.Seal(l.T, e2e.Body{"valuations": e2e.Body{"car": p + 1}, l.plant("member over MCP", "MARKED"+rand.Text(), allowed): 1})
		l.plant("salt over MCP", all[p].Salt, allowed)
		var hashed struct{ Seal string }
		l.Tool("compute_commitment_tool", e2e.Body{"input": all[p].Input, "salt": all[p].Salt, "deal_id": d.ID, "invite_token": token, "timelock": true}).Into(l.T, &hashed)
		l.plant("seal over MCP", strings.Split(hashed.Seal, "\n")[5], allowed)
		l.Tool("commit_input", e2e.Body{"deal_id": d.ID, "invite_token": token, "commitment": all[p].Commitment, "seal": hashed.Seal})
		l.Fails("INVALID_CREDENTIAL", "get_deal", `{"invite_token":"it_`+l.mark("unknown token")+`"}`)
	}
	for _, form := range []string{
		`%s`, `{"jsonrpc":"2.0","id":1,"method":%q}`, `{"jsonrpc":%q}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%q}`,
	} {
		l.Post(fmt.Sprintf(form, l.plant("malformed call", "MARKED"+rand.Text(), allowed)))
	}
	for p, s := range all {
		l.Fails("COMMITMENT_MISMATCH", "reveal_input", `{"deal_id":"`+d.ID+`","invite_token":"`+d.Tokens[p]+`","input":{},"salt":"`+l.mark("wrong salt")+`"}`)
		l.Tool("reveal_input", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[p], "input": s.Input, "salt": s.Salt})
	}
	d.Certified(e2e.DefaultTimeout)
}

func (l *leakTest) faults(b e2e.Body, inputs []e2e.Body) {
	l.T.Helper()
	if err := l.stack.Redis().Stop(); err != nil {
		l.T.Fatal(err)
	}
	d := l.create(b)
	both := []e2e.Sealed{l.seal(d, b, inputs[0]), l.seal(d, b, inputs[1])}
	l.act(200, d, "commit", 0, both[0])
	if err := l.stack.Redis().Restart(l.T.Context()); err != nil {
		l.T.Fatal(err)
	}

	if err := l.stack.Postgres().Stop(); err != nil {
		l.T.Fatal(err)
	}
	for _, action := range []string{"commit", "reveal"} {
		l.act(503, d, action, 1, both[1])
	}
	l.Want(503, "POST", "/v1/deals", d.Key, b, "Idempotency-Key", l.mark("header"))
	l.Want(503, "POST", "/v1/keys", "", nil, "Idempotency-Key", l.mark("header"))
	l.Want(503, "GET", "/v1/deals/d_unknown", "it_"+l.mark("unknown token"), nil)
	if err := l.stack.Postgres().Restart(l.T.Context()); err != nil {
		l.T.Fatal(err)
	}
	e2e.Eventually(l.T, "the database answers", e2e.DefaultTimeout, func() bool {
		return l.Do("POST", d.Path("/commit"), d.Tokens[1], both[1].Act("commit")).Status == 200
	})

	if err := l.stack.Stop(localstack.LogServer); err != nil {
		l.T.Fatal(err)
	}
	for p, s := range both {
		l.act(200, d, "reveal", p, s)
	}
	l.Refused(409, "CERT_NOT_READY", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	if err := l.stack.Start(l.T.Context(), localstack.LogServer); err != nil {
		l.T.Fatal(err)
	}
	d.Certified(e2e.DefaultTimeout)
}
