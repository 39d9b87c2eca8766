package page

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
)

// The deal of the page is real: both parties are played in the browser, by
// keyboard alone, and its certificate verifies there and with a stranger.
func TestPagePlaysADeal(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	p := newTab(t, c.Base)
	p.open("/", 1280, "light")
	p.until("the page has read the status", "document.querySelector('#deployment span')")
	p.do(chromedp.Focus("#try-go"), chromedp.KeyEvent("\r"))
	p.until("the deal is settled", "document.querySelector('#try-load')")
	if p.text("#try-report .verdict strong") != "Valid" || eval[int](p, "document.querySelectorAll('#try-report .ok').length") != 12 {
		t.Errorf("report: %s", p.text("#try-report"))
	}
	if steps := eval[int](p, "document.querySelectorAll('#try-story li').length"); steps != 10 {
		t.Errorf("%d steps are told", steps)
	}
	if story := p.text("#try-story"); strings.Contains(story, "fp_") && !strings.Contains(story, "fp_…") || !strings.Contains(story, "it_…") {
		t.Errorf("credentials are on the screen: %s", story)
	}
	// Ann: 50 of 100 for the car and half the piano; Bob: 50 for the boat and the other half.
	if result := p.text("#try-outcome"); !strings.Contains(result, "Ann gets 60 % of what Ann values; Bob gets 60 %") {
		t.Errorf("result: %.400s", result)
	}
	var status e2e.KeysOfStatus
	c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	e2e.NewCtl(t, "").Run(0, "verify", p.download("#try-bundle"), "--pubkey", status.Pubkey)
	p.do(chromedp.Focus("#try-load"), chromedp.KeyEvent("\r"))
	e2e.Independently(t, c, []byte(eval[string](p, "document.querySelector('#verify-certificate').value")), true)
	p.do(chromedp.Focus("#verify-go"), chromedp.KeyEvent("\r"))
	p.until("it verifies", "document.querySelector('#verify-report').dataset.valid === 'true'")
}

// A newcomer sees the newest checkpoint of the log, and who has cosigned it.
func TestPageShowsTheLog(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Witnesses = 2 })
	c := e2e.NewClient(t, stack.BaseURL())
	c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.AnnsValues, e2e.BobsValues)()
	p := newTab(t, c.Base)
	e2e.Eventually(t, "the page shows a checkpoint with two cosignatures", e2e.Patience, func() bool {
		p.open("/", 1280, "light")
		p.until("the log is read", "document.querySelector('#log-checkpoint dl, #log-checkpoint p')")
		shown := p.text("#log-checkpoint")
		return strings.Contains(shown, "witness-1 (cosigned), ") && strings.Contains(shown, "their quorum has cosigned the first 1 certificates")
	})
	if shown, note := p.text("#log-checkpoint"), string(c.Want(200, "GET", "/checkpoint", "", nil).Body); !strings.Contains(shown, localstack.Origin) || !strings.Contains(p.text("#log-checkpoint pre"), strings.TrimSpace(note)) {
		t.Errorf("%s\nshows not %s", shown, note)
	}
}

// The form offers what the catalogue has: an example of each algorithm that waits
// for no beacon.
func TestPagePlaysAPublishedExample(t *testing.T) {
	t.Parallel()
	p := newTab(t, e2e.NewClient(t, e2e.BaseURL(t)).Base)
	p.open("/", 1280, "light")
	p.until("the examples are offered", "document.querySelector('#try-example').length === 3")
	eval[bool](p, `(() => {
		const choice = document.querySelector('#try-example');
		choice.value = [...choice.options].find((o) => o.textContent.startsWith('shapley.v1')).value;
		choice.dispatchEvent(new Event('change'));
		document.querySelector('#try-go').click();
		return document.querySelector('#try-items').hidden;
	})()`)
	p.until("the deal is settled", "document.querySelector('#try-load')")
	if p.text("#try-report .verdict strong") != "Valid" || !strings.Contains(p.text("#try-outcome"), `"total"`) {
		t.Errorf("report: %s", p.text("#try-outcome"))
	}
}

// runs waits until the front page has asked all that it asks by itself.
func (p *tab) runs() {
	p.t.Helper()
	p.until("the page runs", "document.querySelector('#deployment span') && !document.querySelector('#log-checkpoint').textContent.startsWith('Reading')")
}

// verdict fills the verifier's form, verifies, and gives the names of the checks
// that failed. It fails where the checks ask the service anything.
func (p *tab) verdict(certificate, key, head, inputs, params string) (failed []string) {
	p.t.Helper()
	for field, value := range map[string]string{"certificate": certificate, "keys": key, "head": head, "inputs": inputs, "params": params} {
		p.set("#verify-"+field, value)
	}
	p.mu.Lock()
	before := p.asked
	p.mu.Unlock()
	eval[bool](p, "document.querySelector('#verify-report').replaceChildren(), delete document.querySelector('#verify-report').dataset.valid, document.querySelector('#verify-go').click(), true")
	p.until("a verdict: "+p.text("#verify-note"), "document.querySelector('#verify-report').dataset.valid || document.querySelector('#verify-note.bad')")
	if note := p.text("#verify-note.bad"); note != "" {
		p.t.Fatalf("the verifier refuses: %s", note)
	}
	failed = eval[[]string](p, "[...document.querySelectorAll('#verify-report .fail')].map((row) => row.dataset.check)")
	if valid := eval[string](p, "document.querySelector('#verify-report').dataset.valid"); valid != fmt.Sprint(len(failed) == 0) {
		p.t.Errorf("failed are %v, and the verdict is %s", failed, valid)
	}
	red := eval[string](p, "getComputedStyle(document.querySelector('#verify-report .verdict strong')).color")
	if bad := red == "rgb(168, 32, 26)"; bad != (len(failed) > 0) {
		p.t.Errorf("failed are %v, and the verdict is shown in %s", failed, red)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != before {
		p.t.Errorf("verifying sent %d requests", p.asked-before)
	}
	return failed
}

func TestPageVerifiesAndSeesForgeries(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	fetch := map[string]func() e2e.Finished{
		"split":   c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.Body{"valuations": e2e.Body{"car": 70, "boat": 30}}, e2e.Body{"valuations": e2e.Body{"car": 40, "boat": 60}}),
		"random":  c.Played(e2e.RandomBody(3, past, time.Hour, 2*time.Hour), e2e.Body{"nonce": "aa"}, e2e.Body{"nonce": "bbb"}, e2e.Body{"nonce": "CC00"}),
		"shapley": c.Played(e2e.ShapleyBody(time.Hour, 2*time.Hour), e2e.Body{"accept": true}, e2e.Body{"accept": true}),
	}
	for range 3 { // with three leaves behind it, a leaf's path has two nodes or more
		c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.Body{"valuations": e2e.Body{"car": 1}}, e2e.Body{"valuations": e2e.Body{"boat": 1}})
	}
	deals := map[string]e2e.Finished{}
	for name := range fetch {
		deals[name] = fetch[name]()
	}
	p := newTab(t, c.Base)
	p.open("/", 1280, "light")
	p.runs()
	for name, d := range deals {
		if failed := p.verdict(d.Text, d.Key, d.HeadText, d.InputsText, d.ParamsText); len(failed) > 0 {
			t.Errorf("%s: %v failed: %s", name, failed, p.text("#verify-report"))
		}
		if failed := p.verdict(d.Text, d.Key, d.HeadText, "", ""); len(failed) > 0 {
			t.Errorf("%s without inputs: %v failed", name, failed)
		}
		changed := strings.Replace(d.InputsText, `"salt":"`, `"salt":"0`, 1)
		if failed := p.verdict(d.Text, d.Key, d.HeadText, changed, d.ParamsText); !slices.Equal(failed, []string{"commitments", "input_root", "result"}) {
			t.Errorf("%s with another salt: %v failed", name, failed)
		}
		e2e.Independently(t, c, []byte(d.Text), true)
	}

	d, other := deals["split"], deals["shapley"]
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forgeries := map[string]struct {
		forge  func(cert, head e2e.Body)
		failed []string
	}{
		"a changed field": {func(cert, _ e2e.Body) { cert["retention"] = "purge" }, []string{"signature", "key_in_force", "merkle_inclusion"}},
		"the other s":     {func(cert, _ e2e.Body) { cert["signature"] = otherS(t, cert["signature"].(string)) }, []string{"signature", "key_in_force"}},
		"upper-case hex": {func(cert, _ e2e.Body) {
			cert["signature"] = "es256:" + strings.ToUpper(cert["signature"].(string)[6:])
		}, []string{"shape", "signature", "key_in_force", "tree_size", "merkle_inclusion", "input_root_wellformed", "consistency"}},
		"a swapped path": {func(cert, _ e2e.Body) {
			path := cert["log_proof"].(e2e.Body)["inclusion_path"].([]any)
			path[0], path[1] = path[1], path[0]
		}, []string{"merkle_inclusion"}},
		"another leaf's proof": {func(cert, head e2e.Body) {
			proof := other.Certificate["log_proof"].(e2e.Body)
			cert["log_proof"] = proof
			for name, value := range other.Head {
				head[name] = value
			}
		}, []string{"merkle_inclusion"}},
		"a foreign tree head": {func(cert, head e2e.Body) {
			leaf := foreignHead(t, foreign, cert)
			head["tree_size"], head["root_hash"], head["signature"] = 1, leaf.root, leaf.signature
			cert["log_proof"] = e2e.Body{"tree_size": 1, "leaf_index": 0, "inclusion_path": []string{}}
		}, []string{"tree_head_signature", "key_in_force"}},
	}
	for name, f := range forgeries {
		cert, head := e2e.AsBody(t, d.Text), e2e.AsBody(t, d.HeadText)
		f.forge(cert, head)
		if failed := p.verdict(e2e.JsonText(t, cert), d.Key, e2e.JsonText(t, head), "", ""); !slices.Equal(failed, f.failed) {
			t.Errorf("%s: %v failed, want %v", name, failed, f.failed)
		}
	}

	// A certificate of an algorithm that the page does not know verifies, and the
	// page says what it did not check.
	cert, head := e2e.AsBody(t, d.Text), e2e.AsBody(t, d.HeadText)
	cert["algorithm"] = "max.v1"
	later := foreignHead(t, foreign, cert)
	cert["signature"], cert["log_proof"] = later.certificate, e2e.Body{"tree_size": 1, "leaf_index": 0, "inclusion_path": []string{}}
	head["tree_size"], head["root_hash"], head["signature"] = 1, later.root, later.signature
	failed := p.verdict(e2e.JsonText(t, cert), labelOf(t, foreign), e2e.JsonText(t, head), d.InputsText, d.ParamsText)
	if said := p.text("#verify-report .verdict"); len(failed) > 0 || !strings.Contains(said, "does not know max.v1: it verified signature and log, and did not recompute the result") {
		t.Errorf("an unknown algorithm: %v failed: %s", failed, said)
	}

	// The key set says what a key may have signed.
	leaf, size := d.Certificate["log_proof"].(e2e.Body)["leaf_index"].(float64), d.Head["tree_size"].(float64)
	for name, k := range map[string]struct {
		row   e2e.Body
		words string
	}{
		"the next key":       {e2e.Body{"state": "next"}, "OK: certificate: the next key; tree head: the next key"},
		"an open retirement": {e2e.Body{"state": "retired", "retired_at": 1795257295}, "OK: certificate: a retired key that no tree size closes; tree head: a retired key that no tree size closes"},
		"retired after":      {e2e.Body{"state": "retired", "tree_size": size}, fmt.Sprintf("OK: certificate: a key retired at tree size %v; tree head: a key retired at tree size %v", size, size)},
		"a head too large":   {e2e.Body{"state": "retired", "tree_size": size - 1}, fmt.Sprintf("FAIL: the key of the tree head retired at tree size %v and the head is of size %v", size-1, size)},
		"a leaf too late":    {e2e.Body{"state": "retired", "tree_size": leaf}, fmt.Sprintf("FAIL: the key of the certificate retired at tree size %v and this is leaf %v", leaf, leaf)},
	} {
		k.row["pubkey"] = d.Key
		document := e2e.JsonText(t, e2e.Body{"keys": []e2e.Body{{"pubkey": labelOf(t, foreign), "state": "current"}, k.row}})
		failed := p.verdict(d.Text, document, d.HeadText, "", "")
		said := "OK: "
		if len(failed) > 0 {
			said = "FAIL: "
		}
		said += p.text("#verify-report [data-check=key_in_force] .detail")
		if !strings.HasPrefix(said, k.words) || len(failed) > 0 && !slices.Equal(failed, []string{"key_in_force"}) {
			t.Errorf("%s: %v failed, %s, want %s", name, failed, said, k.words)
		}
	}

	// Fetched on demand, the keys and the head are those of the service.
	p.set("#verify-certificate", d.Text)
	p.set("#verify-keys", "")
	p.set("#verify-head", "")
	eval[bool](p, "document.querySelector('#fetch-trust').click(), true")
	p.until("keys and head are fetched", "document.querySelector('#verify-head').value")
	keys, fetched := eval[string](p, "document.querySelector('#verify-keys').value"), eval[float64](p, "JSON.parse(document.querySelector('#verify-head').value).tree_size")
	if want := (e2e.Body{"keys": []any{e2e.Body{"pubkey": d.Key, "state": "current"}}}); !reflect.DeepEqual(e2e.AsBody(t, keys), want) || fetched != size {
		t.Errorf("fetched: %s and a head of %v leaves", keys, fetched)
	}

	// A deployment without that path still names its keys in the status.
	eval[bool](p, `(() => {
		const real = window.fetch;
		window.fetch = (path, options) => path === '/v1/pubkeys' ? Promise.resolve(new Response('{"error":"NOT_FOUND: no such path"}', {status: 404})) : real(path, options);
		document.querySelector('#verify-keys').value = '';
		document.querySelector('#fetch-trust').click();
		return true;
	})()`)
	p.until("the keys of the status are fetched", "document.querySelector('#verify-keys').value")
	status := eval[string](p, "document.querySelector('#verify-keys').value")
	if failed := p.verdict(d.Text, status, d.HeadText, "", ""); len(failed) > 0 || e2e.AsBody(t, status)["pubkey"] != d.Key {
		t.Errorf("%v failed with %s", failed, status)
	}
	if said := p.text("#verify-report [data-check=key_in_force] .detail"); !strings.Contains(said, "without its state") {
		t.Errorf("keys of a status: %s", said)
	}
}

// The page gives the independent verifier's verdict on every case of that
// verifier's own tests, and names the same checks.
func TestPageAgreesWithTheIndependentVerifier(t *testing.T) {
	t.Parallel()
	text, err := exec.Command("python3", e2e.Repo("e2e/verifier/cases.py")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var cases []map[string]json.RawMessage
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	texts := make([]map[string]string, len(cases)) // read by the page's own reader
	for i, x := range cases {
		texts[i] = map[string]string{}
		for name, value := range x {
			texts[i][name] = string(value)
		}
	}
	p := newTab(t, e2e.NewClient(t, e2e.BaseURL(t)).Base)
	p.open("/", 1280, "light")
	found := eval[[][]string](p, `(async () => {
		const folder = document.querySelector('script[type=module]').src.replace('page.js', '');
		const [{parse}, {keysOf}, {verifyCertificate}] = await Promise.all(['jcs', 'keys', 'verify'].map((name) => import(folder + name + '.js')));
		const found = [];
		for (const one of `+e2e.JsonText(t, texts)+`) {
			const read = (name) => parse(one[name], 40);
			let keys = read('keys');
			try {
				keys = Array.isArray(keys) ? keys.map((pubkey) => ({pubkey})) : keysOf(keys);
			} catch {
				found.push(['unreadable']);
				continue;
			}
			const checks = await verifyCertificate({certificate: read('certificate'), head: read('tree_head'), keys, inputs: read('inputs'), params: read('params')});
			found.push(checks.filter((check) => !check.ok).map((check) => check.name).sort());
		}
		return found;
	})()`)
	if len(found) != len(cases) {
		t.Fatalf("%d verdicts on %d cases", len(found), len(cases))
	}
	verdicts := map[string]int{}
	for i, x := range cases {
		var want []string
		if err := json.Unmarshal(x["failed"], &want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(found[i], want) {
			t.Errorf("case %d fails %v, the independent verifier fails %v\n%s", i, found[i], want, x["certificate"])
		}
		verdicts[strings.Join(found[i], " ")]++
	}
	if verdicts[""] < 10 || verdicts["unreadable"] < 30 || verdicts["key_in_force"] < 8 || len(cases) < 300 {
		t.Errorf("of %d cases: %v: too few to mean anything", len(cases), verdicts)
	}
}

// labelOf is the key's public half as a key set names it.
func labelOf(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("es256:%02x%x", 2+point[64]&1, point[1:33])
}

func otherS(t *testing.T, signature string) string {
	t.Helper()
	s, ok := new(big.Int).SetString(signature[6+64:], 16)
	if !ok {
		t.Fatal(signature)
	}
	return fmt.Sprintf("%s%064x", signature[:6+64], new(big.Int).Sub(elliptic.P256().Params().N, s))
}

type forged struct{ root, signature, certificate string }

// foreignHead is a head over the certificate as the only leaf, and a signature of
// the certificate, by a key that is not the deployment's: right in all but that.
func foreignHead(t *testing.T, key *ecdsa.PrivateKey, cert e2e.Body) forged {
	t.Helper()
	payload := e2e.Body{}
	for name, value := range cert {
		if name != "signature" && name != "log_proof" {
			payload[name] = value
		}
	}
	signed, err := canon.ParseObject([]byte(e2e.JsonText(t, payload)))
	if err != nil {
		t.Fatal(err)
	}
	entry := sha256.Sum256(canon.Encode(signed))
	leaf := sha256.Sum256(append([]byte{0}, entry[:]...))
	root := hex.EncodeToString(leaf[:])
	sign := func(digest [32]byte) string {
		r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
		if err != nil {
			t.Fatal(err)
		}
		if n := elliptic.P256().Params().N; s.Cmp(new(big.Int).Rsh(n, 1)) > 0 {
			s.Sub(n, s)
		}
		return fmt.Sprintf("es256:%064x%064x", r, s)
	}
	return forged{root, sign(sha256.Sum256([]byte(`{"root_hash":"` + root + `","tree_size":1}`))), sign(entry)}
}

// axe finds no violation of WCAG level A or AA, and nothing is cut off or needs
// scrolling to the side, however the page is looked at.
func TestPageIsAccessible(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	p := newTab(t, c.Base)
	for _, look := range []struct {
		path, scheme string
		width        int64
	}{{"/", "light", 1280}, {"/", "dark", 320}, {"/reference", "light", 320}, {"/reference", "dark", 1280}} {
		name := fmt.Sprintf("%s at %d px in %s", look.path, look.width, look.scheme)
		p.open(look.path, look.width, look.scheme)
		if look.path == "/" {
			p.until(name+": the page runs", "document.querySelector('#deployment span')")
			eval[bool](p, "document.querySelector('#try-go').click(), true")
			p.until(name+": the deal is settled", "document.querySelector('#try-load')")
			eval[bool](p, "document.querySelector('#try-load').click(), document.querySelector('#verify-certificate').value = document.querySelector('#verify-certificate').value.replace('sealed', 'open'), document.querySelector('#verify-go').click(), true")
			p.until(name+": a red verdict", "document.querySelector('#verify-report .fail')")
		} else {
			p.until(name+": it is drawn", "document.querySelector('.operation')")
		}
		eval[bool](p, "document.querySelectorAll('details').forEach((one) => { one.open = true; }), true")
		p.accessible(name)
	}
}

// The page's own arithmetic gives every published vector, and its JSON reader
// refuses what has no single meaning.
func TestPageRecomputesTheVectors(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	p := newTab(t, c.Base)
	p.open("/", 1280, "light")
	const modules = "const folder = document.querySelector('script[type=module]').src.replace('page.js', ''); const [{parse, canonical}, {result}] = await Promise.all([import(folder + 'jcs.js'), import(folder + 'algorithms.js')]);"
	wrong := eval[[]string](p, `(async () => { `+modules+`
		const {algorithms} = parse(await (await fetch('/v1/algorithms')).text(), 40);
		const wrong = [];
		let count = 0;
		for (const v of algorithms.flatMap((a) => a.test_vectors)) {
			count++;
			const got = canonical(await result(v.algorithm, v.input.party_labels, v.input.algorithm_params, v.input.party_inputs, v.expected_output?.beacon));
			if (got !== canonical(v.expected_output)) wrong.push(v.vector_id + ': ' + got);
		}
		if (count < 30) wrong.push('only ' + count + ' vectors');
		return wrong;
	})()`)
	for _, vector := range wrong {
		t.Error(vector)
	}
	refused := []string{``, `{"a":1,"a":1}`, `{"a":1,}`, `[1.0]`, `[1e3]`, `[9007199254740992]`, `[01]`, `["\ud800"]`, `["\x"]`, "[\"\n\"]", `[1] 2`, `{a:1}`, `[nul]`, `"`, strings.Repeat("[", 33) + strings.Repeat("]", 33), "\ufeff[]", `[+1]`, "[\u00a01]"}
	read := eval[[]string](p, `(async () => { `+modules+` const read = [];
		for (const text of `+e2e.JsonText(t, refused)+`) { try { parse(text); read.push(text); } catch {} }
		return read; })()`)
	for _, text := range read {
		t.Errorf("%q is read", text)
	}
	for text, want := range map[string]string{`{"b":-0,"a":[true,null,"\u20ac\/\u0001\u007f"]}`: "{\"a\":[true,null,\"\u20ac/\\u0001\u007f\"],\"b\":0}", "{\"\U0001F600\":1,\"\ufb33\":2,\"__proto__\":3}": "{\"__proto__\":3,\"\U0001F600\":1,\"\ufb33\":2}", `[-9007199254740991]`: `[-9007199254740991]`} {
		if got := eval[string](p, `(async () => { `+modules+` return canonical(parse(`+e2e.JsonText(t, text)+`)); })()`); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
