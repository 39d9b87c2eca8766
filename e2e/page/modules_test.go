package page

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// The page's JavaScript modules return the same results as the service and the independent verifier.
func TestModules(t *testing.T) {
	_, p := frontPage(t)
	for _, module := range []struct {
		name string
		test func(t *testing.T, p *tab)
	}{
		{"verdicts on bundles", verdictsOnBundles},
		{"verdicts on certificates", verdictsOnCertificates},
		{"vectors of seat keys", vectorsOfSeatKeys},
		{"vectors of the algorithms", vectorsOfTheAlgorithms},
		{"JSON", readsJSONStrictly},
		{"refused inputs", refusesInputsLikeTheService},
		{"hurry", lookNowEndsEveryWait},
		{"percentages", percentagesSumTo100},
		{"calendar", timesAsCalendar},
		{"keys without a status", keysNeedNoStatus},
		{"bundle of another deal", refusesABundleOfAnotherDeal},
	} {
		t.Run(module.name, func(t *testing.T) { module.test(t, p) })
	}
}

// A page of one deal takes no proof of another.
func refusesABundleOfAnotherDeal(t *testing.T, p *tab) {
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/bundles/rows-split.json"))
	e2e.Must(t, err)
	said := modules[[]string](t, p, `
		const {verifyText, parse} = await load('submitted', 'jcs');
		const of = async (deal) => {
			const out = document.createElement('div');
			await verifyText(JSON.stringify(parse(`+e2e.JsonText(t, string(text))+`, 36).bundle), out, {deal});
			return out.textContent;
		};
		return [await of('d_other'), await of('d_rows')];`)
	if strings.Contains(said[0], "checks") || !strings.Contains(said[0], "not of the deal d_other") || !strings.Contains(said[1], "checks") {
		t.Errorf("the page says %q, want a refusal of d_other alone", said)
	}
}

func percentagesSumTo100(t *testing.T, p *tab) {
	got := modules[string](t, p, `
		const {percents} = await load('words');
		return [[15 / 16, 1 / 16], [1 / 3, 1 / 3, 1 / 3], [1 / 7, 6 / 7], [0.3, 0.7], [0, 1]].map((parts) => percents(parts).join(' + ')).join('; ');`)
	if want := "93.8 % + 6.2 %; 33.4 % + 33.3 % + 33.3 %; 14.3 % + 85.7 %; 30 % + 70 %; 0 % + 100 %"; got != want {
		t.Errorf("percents are %s, want %s", got, want)
	}
}

func timesAsCalendar(t *testing.T, p *tab) {
	got := modules[string](t, p, `
		const {calendarOf} = await load('calendar');
		return calendarOf('d_x', 'Ann, Zoé\nand Ben divide a very long list of things; really', [['Seal by', 1795860000]], 1795800000);`)
	want := []string{"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Fairpact//EN", "BEGIN:VEVENT", "UID:d_x-0@fairpact", "DTSTAMP:20261127T172000Z", "DTSTART:20261128T100000Z",
		`SUMMARY:Seal by: Ann\, Zoé and Ben divide a very long list of things\; really`,
		"BEGIN:VALARM", "ACTION:DISPLAY", "DESCRIPTION:Seal by", "TRIGGER:-PT1H", "END:VALARM", "END:VEVENT", "END:VCALENDAR", ""}
	if lines := strings.Split(strings.ReplaceAll(got, "\r\n ", ""), "\r\n"); !slices.Equal(lines, want) {
		t.Errorf("the calendar is %q, want %q", lines, want)
	}
	for _, line := range strings.Split(got, "\r\n") {
		if len(line) > 75 {
			t.Errorf("the line %q has %d bytes, want at most 75", line, len(line))
		}
	}
}

// modules runs `body` as an async JavaScript function in the page and returns the function's result.
// `body` calls `load` to import modules by name.
func modules[T any](t *testing.T, p *tab, body string) T {
	t.Helper()
	here := tab{t: t, ctx: p.ctx}
	return eval[T](&here, `(async () => {
		const folder = document.querySelector('script[type=module]').src.replace(/[^/]*$/, '');
		const load = async (...names) => Object.assign({}, ...await Promise.all(names.map((name) => import(folder + name + '.js'))));
		`+body+`
	})()`)
}

// Each file of testdata/bundles has a bundle, the checks that must fail, and what a failed check or a claim must say.
// verdictsOnBundles requires that exactly these checks fail in the page, and that the page says this.
func verdictsOnBundles(t *testing.T, p *tab) {
	files, err := filepath.Glob(e2e.Repo("e2e/testdata/bundles/*.json"))
	e2e.Must(t, err)
	texts := make([]string, len(files)) // unparsed, because the page's own parser reads them
	for i, file := range files {
		text, err := os.ReadFile(file)
		e2e.Must(t, err)
		texts[i] = string(text)
	}
	type verdict struct {
		Failed, Said, Agreed []string
		Claims               map[string]string
	}
	found := modules[[]verdict](t, p, `
		const {parse, parsePolicy, verifyBundle, knownKeys} = await load('jcs', 'notes', 'bundle', 'seats');
		const found = [];
		for (const text of `+e2e.JsonText(t, texts)+`) {
			const {bundle, pubkeys = [], policy, parties = {}, openings = []} = parse(text, 36);
			const known = knownKeys(Object.entries(parties).map(([party, key]) => party + '=' + key).join('\n'));
			const {checks, claims} = await verifyBundle({bundle, keys: pubkeys.map((pubkey) => ({pubkey})), policy: policy ? await parsePolicy(policy) : null, known, openings});
			const bad = checks.filter((check) => !check.ok);
			found.push({Failed: bad.map((check) => check.name), Said: [...bad, ...claims].map(({detail}) => detail),
				Claims: Object.fromEntries(claims.map(({claim, status}) => [claim, status])), Agreed: claims[3].parties.map(({status}) => status)});
		}
		return found;`)
	forged := 0
	for i, v := range found {
		var c struct {
			Failed, Agreed []string
			Says           string
			Claims         map[string]string
		}
		e2e.Must(t, json.Unmarshal([]byte(texts[i]), &c))
		name, said := filepath.Base(files[i]), strings.Join(v.Said, "\n")
		slices.Sort(c.Failed)
		slices.Sort(v.Failed)
		if !slices.Equal(v.Failed, c.Failed) || !strings.Contains(said, c.Says) {
			t.Errorf("%s: fails %v, want %v with %q\n%s", name, v.Failed, c.Failed, c.Says, said)
		}
		if len(c.Failed) > 0 {
			forged++
		}
		if !maps.Equal(v.Claims, c.Claims) || !slices.Equal(v.Agreed, c.Agreed) {
			t.Errorf("%s: the claims are %v, the parties %v, want %v, %v", name, v.Claims, v.Agreed, c.Claims, c.Agreed)
		}
	}
	if forged < 20 || len(found) != len(files) {
		t.Errorf("%d verdicts on %d cases, %d of them forgeries", len(found), len(files), forged)
	}

	// A member of another type fails a check; the page does not throw.
	thrown := modules[[]string](t, p, `
		const {parse, verifyBundle} = await load('jcs', 'bundle');
		const {bundle, pubkeys} = parse(`+e2e.JsonText(t, texts[slices.Index(files, e2e.Repo("e2e/testdata/bundles/rows-draw-ground.json"))])+`, 36);
		const thrown = [];
		const replaceIn = async (at, path) => {
			for (const [name, old] of Object.entries(at)) {
				at[name] = Object.create(null); // as parse makes them
				await verifyBundle({bundle, keys: pubkeys.map((pubkey) => ({pubkey}))}).catch((fault) => thrown.push(path + name + ': ' + fault.message));
				at[name] = old;
				if (old && typeof old === 'object') await replaceIn(old, path + name + '.');
			}
		};
		await replaceIn(bundle.certificate, '');
		return thrown;`)
	if len(thrown) > 0 {
		t.Errorf("the page throws if these members are objects: %q", thrown)
	}

	// A witness policy is refused if a key is on a line of the wrong kind or has two names.
	said := modules[[]string](t, p, `
		const {parse, parsePolicy} = await load('jcs', 'notes');
		const {policy} = parse(`+e2e.JsonText(t, texts[slices.Index(files, e2e.Repo("e2e/testdata/bundles/good.json"))])+`, 36);
		const [log, first] = policy.split('\n');
		const [own, key] = [log.split(' ')[1], first.split(' ')[2]];
		const policies = [policy, [log, first, 'witness again ' + key, 'quorum again'], ['log ' + key, 'quorum none'], [log, 'witness w ' + own, 'quorum w']];
		return Promise.all(policies.map((lines) => parsePolicy([lines].flat().join('\n')).then(() => '', (fault) => fault.message)));`)
	for i, what := range []string{"", "twice", "does not belong", "does not belong"} {
		if !strings.Contains(said[i], what) || (said[i] == "") != (what == "") {
			t.Errorf("policy %d: the page says %q, want %q", i, said[i], what)
		}
	}
}

// verdictsOnCertificates runs the test cases of the independent verifier. The same checks must
// fail in the page and in that verifier.
func verdictsOnCertificates(t *testing.T, p *tab) {
	text, err := exec.Command("python3", e2e.Repo("e2e/verifier/cases.py")).Output()
	e2e.Must(t, err)
	var cases []map[string]json.RawMessage
	e2e.Must(t, json.Unmarshal(text, &cases))
	texts := make([]map[string]string, len(cases)) // unparsed, because the page's own parser reads them
	for i, x := range cases {
		texts[i] = map[string]string{}
		for name, value := range x {
			texts[i][name] = string(value)
		}
	}
	found := modules[[][]string](t, p, `
		const {parse, keysOf, verifyCertificate} = await load('jcs', 'keys', 'verify');
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
			const {checks} = await verifyCertificate({certificate: read('certificate'), head: read('tree_head'), keys, inputs: read('inputs'), params: read('params')});
			found.push(checks.filter((check) => !check.ok).map((check) => check.name).sort());
		}
		return found;`)
	if len(found) != len(cases) {
		t.Fatalf("%d verdicts on %d cases", len(found), len(cases))
	}
	verdicts := map[string]int{}
	for i, x := range cases {
		var want []string
		e2e.Must(t, json.Unmarshal(x["failed"], &want))
		if !slices.Equal(found[i], want) {
			t.Errorf("case %d fails %v, the independent verifier fails %v\n%s", i, found[i], want, x["certificate"])
		}
		verdicts[strings.Join(found[i], " ")]++
	}
	if verdicts[""] < 10 || verdicts["unreadable"] < 30 || verdicts["key_in_force"] < 8 || len(cases) < 300 {
		t.Errorf("the %d cases have the verdicts %v: too few of a kind", len(cases), verdicts)
	}
}

// vectorsOfSeatKeys requires that the page computes the digests and the signed bytes of
// testdata/attestations.json. Each signature must verify for its own party and for no other.
func vectorsOfSeatKeys(t *testing.T, p *tab) {
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/attestations.json"))
	e2e.Must(t, err)
	wrong := modules[[]string](t, p, `
		const {parse, canonical, attested, digestOf, seatMessage, verify} = await load('jcs', 'seats', 'p256');
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
		return wrong;`)
	if len(wrong) > 0 {
		t.Errorf("the page computes these vectors of seat keys wrongly: %q", wrong)
	}
}

func vectorsOfTheAlgorithms(t *testing.T, p *tab) {
	wrong := modules[[]string](t, p, `
		const {parse, canonical, known} = await load('jcs', 'algorithms');
		const {algorithms} = parse(await (await fetch('/v1/algorithms')).text(), 40);
		const wrong = [];
		let count = 0;
		for (const v of algorithms.flatMap((a) => a.test_vectors)) {
			count++;
			const got = canonical(await known(v.algorithm).result(v.input.party_labels, v.input.algorithm_params, v.input.party_inputs, v.expected_output?.beacon));
			if (got !== canonical(v.expected_output)) wrong.push(v.vector_id + ': ' + got);
		}
		if (count < 30) wrong.push('only ' + count + ' vectors');
		return wrong;`)
	if len(wrong) > 0 {
		t.Errorf("the page computes these published vectors wrongly: %q", wrong)
	}
}

// The page's JSON reader refuses invalid and ambiguous texts, and its canonical form is that of RFC 8785.
func readsJSONStrictly(t *testing.T, p *tab) {
	refused := []string{``, `{"a":1,"a":1}`, `{"a":1,}`, `[1.0]`, `[1e3]`, `[9007199254740992]`, `[01]`, `["\ud800"]`, `["\x"]`, "[\"\n\"]", `[1] 2`, `{a:1}`, `[nul]`, `"`, strings.Repeat("[", 33) + strings.Repeat("]", 33), "\ufeff[]", `[+1]`, "[\u00a01]"}
	read := modules[[]string](t, p, `
		const {parse} = await load('jcs');
		return `+e2e.JsonText(t, refused)+`.filter((text) => { try { parse(text); return true; } catch { return false; } });`)
	if len(read) > 0 {
		t.Errorf("the page's JSON reader accepted %q, want a refusal", read)
	}
	for text, want := range map[string]string{`{"b":-0,"a":[true,null,"\u20ac\/\u0001\u007f"]}`: "{\"a\":[true,null,\"\u20ac/\\u0001\u007f\"],\"b\":0}", "{\"\U0001F600\":1,\"\ufb33\":2,\"__proto__\":3}": "{\"__proto__\":3,\"\U0001F600\":1,\"\ufb33\":2}", `[-9007199254740991]`: `[-9007199254740991]`} {
		if got := modules[string](t, p, `const {parse, canonical} = await load('jcs'); return canonical(parse(`+e2e.JsonText(t, text)+`));`); got != want {
			t.Errorf("the canonical form of %s is %s, want %s", text, got, want)
		}
	}
}

func refusesInputsLikeTheService(t *testing.T, p *tab) {
	p.open("/new", 1280, "light") // which has the facts of the algorithms
	type checked struct {
		Algorithm     string
		MaxInput      int
		Labels        []string
		Params, Input json.RawMessage
		said          string
	}
	var cases []checked
	add := func(v algorithm.Vector, input map[string]any) {
		a, _ := algorithm.Lookup(v.Algorithm)
		params, err := canon.ParseObject([]byte(e2e.JsonText(t, v.Input.AlgorithmParams)))
		e2e.Must(t, err)
		said := ""
		if err := a.CheckInput(v.Input.PartyLabels, params, input, a.InputLimit(params)); err != nil {
			said = err.Error()
		}
		cases = append(cases, checked{a.ID, a.MaxInput, v.Input.PartyLabels, canon.Encode(params), canon.Encode(input), said})
	}
	values := []any{nil, true, int64(-1), int64(7), canon.MaxInt + int64(0), "x", "0aF", strings.Repeat("a", 1025), strings.Repeat("a", 1024), strings.Repeat("é", 600), "xyz", strings.Repeat("b", 5000), []any{}, map[string]any{}, map[string]any{"no such item": int64(1)}}
	for _, v := range algorithm.Vectors() {
		var inputs []map[string]any
		for _, raw := range v.Input.PartyInputs {
			input, err := canon.ParseObject([]byte(e2e.JsonText(t, raw)))
			e2e.Must(t, err)
			inputs = append(inputs, input)
			add(v, input)
		}
		add(v, map[string]any{})
		for member := range inputs[0] {
			for _, value := range values {
				add(v, map[string]any{member: value, "extra": "ignored"})
			}
		}
		if valuations, ok := inputs[0]["valuations"].(map[string]any); ok {
			for item := range valuations {
				for _, value := range values {
					add(v, map[string]any{"valuations": map[string]any{item: value, "unknown": int64(1)}})
					add(v, map[string]any{"valuations": map[string]any{item: value}})
				}
			}
		}
	}
	said := modules[[]string](t, p, `
		const {parse, inputProblem, pageOf} = await load('jcs', 'inputcheck', 'facts');
		const said = [];
		for (const one of parse(`+e2e.JsonText(t, e2e.JsonText(t, cases))+`)) {
			const {check} = await pageOf(one.Algorithm);
			said.push(inputProblem(check, one.Algorithm, one.MaxInput, one.Params, one.Input) ?? '');
		}
		return said;`)
	refused := 0
	for i, x := range cases {
		if said[i] != x.said {
			t.Errorf("%s %.200s: the page says %q, the service %q", x.Algorithm, x.Input, said[i], x.said)
		}
		if x.said != "" {
			refused++
		}
	}
	if refused < 100 || len(cases)-refused < 50 {
		t.Errorf("%d of %d inputs are refused: too few of a kind", refused, len(cases))
	}
}

// lookNowEndsEveryWait requires that lookNow ends a waiting read, even if an action was
// retried during that read.
func lookNowEndsEveryWait(t *testing.T, p *tab) {
	ended := modules[bool](t, p, `
		const {Seat} = await load('seat');
		const online = window.fetch;
		let read, posts = 0;
		window.fetch = (path, {method, signal}) => {
			if (method === 'POST') return posts++ ? Promise.resolve(Response.json({}, {status: 409})) : Promise.reject(new TypeError('offline'));
			read = signal;
			return new Promise(() => {});
		};
		const seat = new Seat('d', 'it_', () => {});
		seat.view();
		await seat.act('commit');
		seat.lookNow();
		window.fetch = online;
		return read.aborted;`)
	if !ended {
		t.Error("after lookNow the read still waits")
	}
}

// The page must get the published keys (originKeys) even if GET /v1/status fails. Without them, the
// page would check a forged bundle only against that bundle's own keys.
func keysNeedNoStatus(t *testing.T, p *tab) {
	type key struct {
		Pubkey      string
		Development *bool
	}
	found := modules[[][]key](t, p, `
		const {originKeys} = await load('keys');
		const online = window.fetch;
		const answers = [
			() => online('/v1/status'),
			() => Promise.resolve(Response.json({error: 'RATE_LIMITED: slow down'}, {status: 429})),
			() => Promise.resolve(new Response('<h1>unavailable</h1>', {status: 503})),
			() => Promise.reject(new TypeError('offline')),
		];
		const found = [];
		for (const answer of answers) {
			window.fetch = (path, options) => path === '/v1/status' ? answer() : online(path, options);
			found.push((await originKeys().catch(() => [])).map(({pubkey, development}) => ({Pubkey: pubkey, Development: development ?? null})));
		}
		window.fetch = online;
		return found;`)
	for i, keys := range found {
		if len(keys) != 1 || keys[0].Pubkey != found[0][0].Pubkey || (keys[0].Development != nil) != (i == 0) {
			t.Errorf("with answer %d for the status, originKeys returned %+v", i, keys)
		}
	}
}
