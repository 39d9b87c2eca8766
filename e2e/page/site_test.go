package page

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/signing"
)

func frontPage(t *testing.T) (*e2e.Client, *tab) {
	t.Helper()
	c, p := browser(t)
	p.open("/", 1280, "light")
	return c, p
}

// declares sets dev_ephemeral_key in the service status that the page reads.
func (p *tab) declares(development bool) {
	p.t.Helper()
	eval[bool](p, `(() => {
		const real = globalThis.online ??= window.fetch;
		window.fetch = async (path, options) => path === '/v1/status'
			? Response.json({...await (await real(path, options)).json(), dev_ephemeral_key: `+fmt.Sprint(development)+`}) : real(path, options);
		return true;
	})()`)
}

const byDevelopmentKey = "Consistent in itself, but signed by a development key"
const developmentNote = "a key that the deployment declares a development key"

// The test uses only the keyboard. The page, fairpactctl and the independent verifier accept the
// deal's certificate.
func TestPagePlaysADeal(t *testing.T) {
	c, p := frontPage(t)
	p.until("the page has read the status", "document.querySelector('#deployment span')")
	p.declares(true)
	p.do(chromedp.Focus("#try-go"), chromedp.KeyEvent("\r"))
	p.until("the deal is settled", "document.querySelector('#try-load')")
	if p.text("#try-report .verdict strong") != byDevelopmentKey || eval[int](p, "document.querySelectorAll('#try-report .ok[data-check]').length") != 12 {
		t.Errorf("the report is %.300q, want 12 passed checks, by a development key", p.text("#try-report"))
	}
	if said := p.text("#try-report [data-claim=issued]"); !strings.Contains(said, developmentNote) {
		t.Errorf("the report says of the issuer %q, want that its key is a development key", said)
	}
	if steps := eval[int](p, "document.querySelectorAll('#try-story li').length"); steps != 10 {
		t.Errorf("the page shows %d steps, want 10", steps)
	}
	if story := p.text("#try-story"); strings.Contains(story, "fp_") && !strings.Contains(story, "fp_…") || !strings.Contains(story, "it_…") {
		t.Errorf("the page shows credentials, or no shortened ones: %s", story)
	}
	// Ann gets the car, worth 50 points to Ann. Bob gets the boat, worth 50 points to Bob. The whole
	// piano is worth 20 points to each of them, and each gets half of it: 50 + 10 = 60 %.
	if result := p.text("#try-outcome"); !strings.Contains(result, "Ann gets 60 % of what Ann values; Bob gets 60 %") {
		t.Errorf("the result is %.400q, want 60 %% for Ann and for Bob", result)
	}
	var status e2e.KeysOfStatus
	c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	e2e.NewCtl(t, "").Run(0, "verify", p.download("#try-bundle"), "--pubkey", status.Pubkey)
	p.do(chromedp.Focus("#try-load"), chromedp.KeyEvent("\r"))
	e2e.RequireIndependentVerdict(t, c, []byte(eval[string](p, "document.querySelector('#verify-certificate').value")), true)
	p.do(chromedp.Focus("#verify-go"), chromedp.KeyEvent("\r"))
	p.until("it verifies", "document.querySelector('#verify-report').dataset.valid === 'true'")
	if said := p.text("#verify-report [data-claim=issued]"); !strings.Contains(said, developmentNote) {
		t.Errorf("when opened in the verifier, the report says of the issuer %q, want that its key is a development key", said)
	}
}

func TestPageShowsTheLog(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) { o.Witnesses = 2 })
	c := e2e.NewClient(t, stack.BaseURL())
	c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.AnnsValues, e2e.BobsValues)()
	p := newTab(t, c.Base)
	e2e.Eventually(t, "the page shows a checkpoint with two cosignatures", e2e.DefaultTimeout, func() bool {
		p.open("/", 1280, "light")
		p.until("the log is read", "document.querySelector('#log-checkpoint dl, #log-checkpoint p')")
		shown := p.text("#log-checkpoint")
		return strings.Contains(shown, "witness-1 (cosigned), ") && strings.Contains(shown, "their quorum has cosigned the first 1 certificates")
	})
	if shown, note := p.text("#log-checkpoint"), string(c.Want(200, "GET", "/checkpoint", "", nil).Body); !strings.Contains(shown, localstack.Origin) || !strings.Contains(p.text("#log-checkpoint pre"), strings.TrimSpace(note)) {
		t.Errorf("the page shows\n%s\nwithout %s", shown, note)
	}
}

// The form offers an example of each algorithm except random.v1, which waits for a beacon.
func TestPagePlaysAPublishedExample(t *testing.T) {
	_, p := frontPage(t)
	p.until("the examples are offered", "document.querySelector('#try-example').length === 3")
	eval[bool](p, `(() => {
		const choice = document.querySelector('#try-example');
		choice.value = [...choice.options].find((o) => o.textContent.startsWith('shapley.v1')).value;
		choice.dispatchEvent(new Event('change'));
		document.querySelector('#try-go').click();
		return document.querySelector('#try-items').hidden;
	})()`)
	p.until("the deal is settled", "document.querySelector('#try-load')")
	if p.text("#try-report .verdict strong") != byDevelopmentKey || !strings.Contains(p.text("#try-outcome"), `"total"`) {
		t.Errorf("the outcome is %q, want one with a total, by a development key", p.text("#try-outcome"))
	}
}

// runs waits until the front page shows the status and the log. After that, the page sends no
// request without a click.
func (p *tab) runs() {
	p.t.Helper()
	p.until("the page runs", "document.querySelector('#deployment span') && !document.querySelector('#log-checkpoint').textContent.startsWith('Reading')")
}

// verdict returns the names of the checks that fail in the page's verifier. The page must verify
// without sending a request.
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
		p.t.Fatalf("the verifier cannot read the form: %s", note)
	}
	failed = eval[[]string](p, "[...document.querySelectorAll('#verify-report .fail[data-check]')].map((row) => row.dataset.check)")
	if valid := eval[string](p, "document.querySelector('#verify-report').dataset.valid"); valid != fmt.Sprint(len(failed) == 0) {
		p.t.Errorf("data-valid is %[2]s, and the failed checks are %[1]v", failed, valid)
	}
	red := eval[string](p, "getComputedStyle(document.querySelector('#verify-report .verdict strong')).color")
	if bad := red == "rgb(168, 32, 26)"; bad != (len(failed) > 0) {
		p.t.Errorf("the verdict has the colour %[2]s, and the failed checks are %[1]v", failed, red)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != before {
		p.t.Errorf("verifying sent %d requests, want none", p.asked-before)
	}
	return failed
}

// The verifier's form accepts a certificate of each algorithm. It rejects changed certificates
// and shows why. TestModules compares the checks with those of the independent verifier.
func TestPageVerifiesCertificates(t *testing.T) {
	c, p := frontPage(t)
	past := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
	fetch := map[string]func() e2e.Finished{
		"split":   c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.AnnsValues, e2e.BobsValues),
		"random":  c.Played(e2e.RandomBody(3, past, time.Hour, 2*time.Hour), e2e.Body{"nonce": "aa"}, e2e.Body{"nonce": "bbb"}, e2e.Body{"nonce": "CC00"}),
		"shapley": c.Played(e2e.ShapleyBody(time.Hour, 2*time.Hour), e2e.Body{"accept": true}, e2e.Body{"accept": true}),
	}
	deals := map[string]e2e.Finished{}
	for name := range fetch {
		deals[name] = fetch[name]()
	}
	p.runs()
	for name, d := range deals {
		if failed := p.verdict(d.Text, d.Key, d.HeadText, d.InputsText, d.ParamsText); len(failed) > 0 {
			t.Errorf("certificate of %s: the failed checks are %v, want none: %s", name, failed, p.text("#verify-report"))
		}
		changed := strings.Replace(d.InputsText, `"salt":"`, `"salt":"0`, 1)
		if failed := p.verdict(d.Text, d.Key, d.HeadText, changed, d.ParamsText); !slices.Equal(failed, []string{"commitments"}) {
			t.Errorf("certificate of %s with another salt: the failed checks are %v, want commitments", name, failed)
		}
	}
	d := deals["split"]
	cert := e2e.AsBody(t, d.Text)
	cert["retention"] = "purge"
	if failed := p.verdict(e2e.JsonText(t, cert), d.Key, d.HeadText, "", ""); !slices.Equal(failed, []string{"signature", "key_in_force", "merkle_inclusion"}) {
		t.Errorf("a certificate with a changed field: the failed checks are %v, want signature, key_in_force and merkle_inclusion", failed)
	}

	uri, anotherKey := e2e.KeyFile(t)
	cert["algorithm"] = "max.v1"
	text, head := signedBy(t, uri, cert)
	failed := p.verdict(text, anotherKey, head, d.InputsText, d.ParamsText)
	if said := p.text("#verify-report [data-check=shape]"); !slices.Contains(failed, "shape") || !strings.Contains(said, "`algorithm` is not one of") {
		t.Errorf("an unknown algorithm: the failed checks are %v, want shape: %s", failed, said)
	}

	p.set("#verify-certificate", d.Text)
	p.set("#verify-keys", "")
	p.set("#verify-head", "")
	p.click("#fetch-trust")
	p.until("keys and head are fetched", "document.querySelector('#verify-head').value")
	keys, fetched := eval[string](p, "document.querySelector('#verify-keys').value"), eval[float64](p, "JSON.parse(document.querySelector('#verify-head').value).tree_size")
	if want := (e2e.Body{"keys": []any{e2e.Body{"pubkey": d.Key, "state": "current"}}}); !reflect.DeepEqual(e2e.AsBody(t, keys), want) || fetched != d.Head["tree_size"] {
		t.Errorf("the button fetched the keys %s and a head of %v leaves", keys, fetched)
	}

	// The key set does not mark development keys, so the button #fetch-trust also fetches /v1/status.
	for _, development := range []bool{true, false} {
		p.declares(development)
		p.set("#verify-head", "")
		p.click("#fetch-trust")
		p.until("keys and head are fetched", "document.querySelector('#verify-head').value")
		failed := p.verdict(d.Text, keys, d.HeadText, "", "")
		if said := p.text("#verify-report [data-claim=issued]"); len(failed) > 0 || strings.Contains(said, developmentNote) != development {
			t.Errorf("development key %v: the failed checks are %v, want none; the report says of the issuer %q", development, failed, said)
		}
	}
}

// signedBy signs the certificate with the key at a URI. It also signs the tree head of a log whose
// only leaf is this certificate.
func signedBy(t *testing.T, uri string, cert e2e.Body) (certificate, head string) {
	t.Helper()
	key, err := signing.Open(t.Context(), uri)
	e2e.Must(t, err)
	sign := func(digest [32]byte) string {
		signature, err := key.Sign(t.Context(), digest)
		e2e.Must(t, err)
		return signature
	}
	payload, err := canon.ParseObject([]byte(e2e.JsonText(t, cert)))
	e2e.Must(t, err)
	delete(payload, "signature")
	delete(payload, "log_proof")
	entry := sha256.Sum256(canon.Encode(payload))
	root := hex.EncodeToString(e2e.Hashed(0, entry[:]))
	cert["signature"], cert["log_proof"] = sign(entry), e2e.Body{"tree_size": 1, "leaf_index": 0, "inclusion_path": []string{}}
	return e2e.JsonText(t, cert), e2e.JsonText(t, e2e.Body{"tree_size": 1, "root_hash": root, "signature": sign(sha256.Sum256([]byte(`{"root_hash":"` + root + `","tree_size":1}`)))})
}

func TestPageVerifiesABundle(t *testing.T) {
	c, p := frontPage(t)
	d := c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.AnnsValues, e2e.BobsValues)()
	p.runs()
	if failed := p.verdict(string(d.Bundle), "", "", "", ""); len(failed) > 0 {
		t.Errorf("a bundle: the failed checks are %v, want none: %s", failed, p.text("#verify-report"))
	}
	if claims := p.claims("#verify-report"); claims["issued"] != "not proven" || claims["cosigned"] != "not proven" || claims["result"] != "not proven" {
		t.Errorf("a bundle alone proves %v, want neither issuer nor witnesses nor result", claims)
	}
	var inputs []e2e.Body
	e2e.Must(t, json.Unmarshal([]byte(d.InputsText), &inputs))
	p.set("#verify-certificate", "")
	eval[bool](p, "delete document.querySelector('#verify-report').dataset.valid")
	p.hand("#verify-file", string(d.Bundle))
	p.until("the file verifies", "document.querySelector('#verify-report').dataset.valid === 'true'")
	whole := e2e.AsBody(t, string(d.Bundle))
	own := whole["own_input"].(e2e.Body)
	own["input"], own["salt"] = inputs[0]["input"], inputs[0]["salt"]
	bundle := e2e.JsonText(t, whole)
	if failed := p.verdict(bundle, "", "", "", ""); len(failed) > 0 {
		t.Errorf("a bundle with its input: the failed checks are %v, want none: %s", failed, p.text("#verify-report"))
	}
	if failed := p.verdict(strings.Replace(bundle, `"salt":"`, `"salt":"0`, 1), d.Key, "", "", ""); !slices.Equal(failed, []string{"own_input", "input_path"}) {
		t.Errorf("a bundle with another salt: the failed checks are %v, want own_input and input_path", failed)
	}
	p.set("#verify-policy", "log x")
	p.set("#verify-certificate", bundle)
	p.click("#verify-go")
	p.until("the policy is refused", "document.querySelector('#verify-note.bad')")
	if said := p.text("#verify-note.bad"); !strings.Contains(said, "The policy cannot be read") {
		t.Errorf("for a bad policy the page says %q, want that it cannot be read", said)
	}
}

// axe finds no violation of WCAG level A or AA on a narrow or a wide page, in either colour scheme.
// No page needs horizontal scrolling.
func TestPageIsAccessible(t *testing.T) {
	_, p := browser(t)
	for _, look := range []struct {
		path, scheme string
		width        int64
	}{{"/", "light", 1280}, {"/", "dark", 320}, {"/reference", "light", 320}, {"/reference", "dark", 1280}, {"/trust", "light", 320}, {"/protocol", "dark", 390}, {"/protocol", "light", 320}} {
		name := fmt.Sprintf("%s at %d px in %s", look.path, look.width, look.scheme)
		p.open(look.path, look.width, look.scheme)
		if look.path == "/" {
			p.until(name+": the page runs", "document.querySelector('#deployment span')")
			p.click("#try-go")
			p.until(name+": the deal is settled", "document.querySelector('#try-load')")
			eval[bool](p, "document.querySelector('#try-load').click(), document.querySelector('#verify-certificate').value = document.querySelector('#verify-certificate').value.replace('sealed', 'open'), document.querySelector('#verify-go').click(), true")
			p.until(name+": a red verdict", "document.querySelector('#verify-report .fail')")
		} else if look.path == "/reference" {
			p.until(name+": it is drawn", "document.querySelector('.operation')")
		}
		eval[bool](p, "document.querySelectorAll('details').forEach((one) => { one.open = true; }), true")
		p.accessible(name)
	}
}
