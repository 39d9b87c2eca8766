package page

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// The page reaches the verdict on each shared case of a bundle that the other
// verifiers give, and a message that names what is wrong.
func TestPageRefusesForgedBundles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(e2e.Repo("e2e/testdata/bundles/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(files)) // read by the page's own reader
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	p := newTab(t, e2e.NewClient(t, e2e.BaseURL(t)).Base)
	p.open("/", 1280, "light")
	type verdict struct {
		Failed, Said, Notes []string
	}
	found := eval[[]verdict](p, `(async () => {
		const folder = document.querySelector('script[type=module]').src.replace('page.js', '');
		const [{parse}, {parsePolicy}, {verifyBundle}, {knownKeys}] = await Promise.all(['jcs', 'notes', 'bundle', 'seats'].map((name) => import(folder + name + '.js')));
		const found = [];
		for (const text of `+e2e.JsonText(t, texts)+`) {
			const {bundle, pubkeys = [], policy, parties = {}} = parse(text, 36);
			const known = knownKeys(Object.entries(parties).map(([party, key]) => party + '=' + key).join('\n'));
			const {checks, notes} = await verifyBundle({bundle, keys: pubkeys.map((pubkey) => ({pubkey})), policy: policy ? await parsePolicy(policy) : null, known});
			const bad = checks.filter((check) => !check.ok);
			found.push({Failed: bad.map((check) => check.name), Said: bad.map((check) => check.detail), Notes: notes});
		}
		return found;
	})()`)
	// A policy with a key on the wrong line, or with one key under two names, is refused.
	said := eval[[]string](p, `(async () => {
		const folder = document.querySelector('script[type=module]').src.replace('page.js', '');
		const [{parse}, {parsePolicy}] = await Promise.all(['jcs', 'notes'].map((name) => import(folder + name + '.js')));
		const {policy} = parse(`+e2e.JsonText(t, texts[slices.Index(files, e2e.Repo("e2e/testdata/bundles/good.json"))])+`, 36);
		const [log, first] = policy.split('\n');
		const [own, key] = [log.split(' ')[1], first.split(' ')[2]];
		const policies = [policy, [log, first, 'witness again ' + key, 'quorum again'], ['log ' + key, 'quorum none'], [log, 'witness w ' + own, 'quorum w']];
		return Promise.all(policies.map((lines) => parsePolicy([lines].flat().join('\n')).then(() => '', (fault) => fault.message)));
	})()`)
	for i, what := range []string{"", "twice", "does not belong", "does not belong"} {
		if !strings.Contains(said[i], what) || (said[i] == "") != (what == "") {
			t.Errorf("policy %d: %q, want %q", i, said[i], what)
		}
	}
	forged := 0
	for i, v := range found {
		var c struct {
			Failed       []string
			Says, Policy string
			Unproven     string
			Bundle       struct {
				Own struct{ Input any } `json:"own_input"`
			}
		}
		if err := json.Unmarshal([]byte(texts[i]), &c); err != nil {
			t.Fatal(err)
		}
		name, said := filepath.Base(files[i]), strings.Join(v.Said, "\n")
		if !slices.Equal(v.Failed, c.Failed) || !strings.Contains(said, c.Says) {
			t.Errorf("%s: fails %v, want %v with %q\n%s", name, v.Failed, c.Failed, c.Says, said)
		}
		if len(c.Failed) > 0 {
			forged++
		} else if !strings.Contains(strings.Join(v.Notes, ";"), c.Unproven) {
			t.Errorf("%s: not proven are %q, want %q", name, v.Notes, c.Unproven)
		} else if strings.Contains(strings.Join(v.Notes, ";"), "no witness was checked") != (c.Policy == "") {
			t.Errorf("%s: not proven are %q", name, v.Notes)
		} else if strings.Contains(strings.Join(v.Notes, ";"), "your input was not checked") != (c.Bundle.Own.Input == nil) {
			t.Errorf("%s: not proven are %q", name, v.Notes)
		}
	}
	if forged < 20 || len(found) != len(files) {
		t.Errorf("%d verdicts on %d cases, %d of them forgeries", len(found), len(files), forged)
	}
}

// The page makes the digests and the signed bytes of the shared vectors, and its own
// checks of attested_by hold on them.
func TestPageRunsTheVectorsOfSeatKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/attestations.json"))
	if err != nil {
		t.Fatal(err)
	}
	p := newTab(t, e2e.NewClient(t, e2e.BaseURL(t)).Base)
	p.open("/", 1280, "light")
	wrong := eval[[]string](p, `(async () => {
		const folder = document.querySelector('script[type=module]').src.replace('page.js', '');
		const [{parse, canonical}, {attested, digestOf, seatMessage}, {verify}] = await Promise.all(['jcs', 'seats', 'p256'].map((name) => import(folder + name + '.js')));
		const {declarations, seats} = parse(`+e2e.JsonText(t, string(text))+`, 36);
		const wrong = declarations.length < 2 || seats.length < 2 ? ['too few vectors'] : [];
		for (const d of declarations) {
			if (canonical(d.declaration) !== d.canonical || await digestOf(d.declaration) !== d.sha256) wrong.push(d.canonical);
		}
		for (const s of seats) {
			const by = attested(s.attested_by);
			const bytes = seatMessage(by.origin, s.deal_id, s.party, s.commitment, s.declaration_sha256);
			if (by.origin !== s.origin || new TextDecoder().decode(bytes) !== s.to_sign || !await verify(by.key, bytes, by.signature)) wrong.push(s.attested_by);
			if (await verify(by.key, seatMessage(by.origin, s.deal_id, s.party + 1, s.commitment, s.declaration_sha256), by.signature)) wrong.push('another party');
		}
		return wrong;
	})()`)
	if len(wrong) > 0 {
		t.Errorf("these vectors do not hold: %q", wrong)
	}
}

// A bundle of this deployment verifies in the form by itself, and says what it did
// not prove.
func TestPageVerifiesABundle(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	d := c.Played(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.Body{"valuations": e2e.Body{"car": 70, "boat": 30}}, e2e.Body{"valuations": e2e.Body{"car": 40, "boat": 60}})()
	bundle := string(d.Bundle)
	p := newTab(t, c.Base)
	p.open("/", 1280, "light")
	p.runs()
	if failed := p.verdict(bundle, "", "", "", ""); len(failed) > 0 {
		t.Errorf("%v failed: %s", failed, p.text("#verify-report"))
	}
	if said := p.text("#verify-report .unproven"); !strings.Contains(said, "no witness was checked") || !strings.Contains(said, "the keys are those that the bundle names") {
		t.Errorf("not proven are: %s", said)
	}
	if said := p.text("#verify-report .unproven"); !strings.Contains(said, "your input was not checked") {
		t.Errorf("without an input, not proven are: %s", said)
	}
	var inputs []e2e.Body
	if err := json.Unmarshal([]byte(d.InputsText), &inputs); err != nil {
		t.Fatal(err)
	}
	whole := e2e.AsBody(t, bundle)
	own := whole["own_input"].(e2e.Body)
	own["input"], own["salt"] = inputs[0]["input"], inputs[0]["salt"]
	bundle = e2e.JsonText(t, whole)
	if failed := p.verdict(bundle, "", "", "", ""); len(failed) > 0 {
		t.Errorf("with its input, %v failed: %s", failed, p.text("#verify-report"))
	}
	if said := p.text("#verify-report .unproven"); strings.Contains(said, "your input was not checked") {
		t.Errorf("with an input, not proven are: %s", said)
	}
	if failed := p.verdict(strings.Replace(bundle, `"salt":"`, `"salt":"0`, 1), d.Key, "", "", ""); !slices.Equal(failed, []string{"own_input", "input_path"}) {
		t.Errorf("another salt: %v failed", failed)
	}
	p.set("#verify-policy", "log x")
	p.set("#verify-certificate", bundle)
	eval[bool](p, "document.querySelector('#verify-go').click(), true")
	p.until("the policy is refused", "document.querySelector('#verify-note.bad')")
	if said := p.text("#verify-note.bad"); !strings.Contains(said, "The policy cannot be read") {
		t.Errorf("a bad policy: %s", said)
	}
}
