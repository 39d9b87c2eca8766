package page

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/signing"
)

// The page seals as package timelock does, and its worker runs under the page's content security policy.
func TestTimelockModules(t *testing.T) {
	_, p := frontPage(t)
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/timelock.json"))
	e2e.Must(t, err)
	wrong := modules[[]string](t, p, `
		const lock = await load('timelock', 'bytes');
		const v = JSON.parse(`+e2e.JsonText(t, string(text))+`);
		const chain = {hash: v.chain.chain_hash, key: v.chain.public_key, genesis: v.chain.genesis_time, period: v.chain.period};
		const wrong = v.own.length > 4 && v.rounds.length > 4 ? [] : ['too few vectors'];
		for (const one of v.own) {
			const seal = await lock.sealFor(chain, v.round, lock.bytesOf(one.text.repeat(one.times)), lock.fromHex(one.random));
			if (lock.toHex(await lock.sha256(lock.bytesOf(seal))) !== one.seal_sha256) wrong.push('own ' + one.random);
		}
		const {openSeal} = await load('opening');
		const {openingIn} = await load('settle');
		const textOf = async (seal) => new TextDecoder().decode(await openSeal(seal, chain.hash, v.round, v.signature));
		for (const one of v.own) if (one.seal && await textOf(one.seal) !== one.text.repeat(one.times)) wrong.push('own seal ' + one.random);
		for (const one of v.foreign) if (await textOf(one.seal) !== one.plaintext) wrong.push('seal by ' + one.by);
		for (const {what, seal} of [...v.refused, ...v.not_opened]) if (await textOf(seal).catch(() => null) !== null) wrong.push('opens ' + what);
		for (const one of v.openings) if (Boolean(await openingIn(one.plaintext, one.deal_id, one.party, one.commitment)) !== one.ok) wrong.push('opening: ' + one.what);
		for (const [deadline, round] of v.rounds) if (lock.roundOf(chain, deadline) !== round) wrong.push('deadline ' + deadline);
		return wrong;`)
	if len(wrong) > 0 {
		t.Errorf("the page differs from package timelock:\n%s", strings.Join(wrong, "\n"))
	}

	var v struct {
		Round     int64  `json:"round"`
		Signature string `json:"signature"`
	}
	e2e.Must(t, json.Unmarshal(text, &v))
	const plaintext = `{"deal_id":"d_EXAMPLE","input":{"a":"é"},"party":1,"salt":"x"}`
	chain := drand.Quicknet()
	// The page ignores the key of an operator who names the chain drand quicknet.
	seal := modules[string](t, p, `
		const {sealOpening} = await load('timelock');
		const beacon = {chain_hash: '`+chain.Hash+`', public_key: '00', genesis_time: `+fmt.Sprint(chain.Genesis)+`, period: `+fmt.Sprint(chain.Period)+`};
		const deadline = `+fmt.Sprint(chain.RoundTime(v.Round)-timelock.Delay)+`;
		// The round is past, and anyone could open the seal.
		if (await sealOpening(beacon, deadline, {}).then(() => true, () => false)) throw new Error('sealed for a round of the past');
		Date.now = () => deadline * 1000 - 1;
		return sealOpening(beacon, deadline, {deal_id: 'd_EXAMPLE', input: {a: 'é'}, party: 1, salt: 'x'});`)
	signature, err := hex.DecodeString(v.Signature)
	e2e.Must(t, err)
	key, err := timelock.NewKey(chain, v.Round, signature)
	e2e.Must(t, err)
	sealed, err := timelock.Check(chain, seal, v.Round, 16<<10)
	e2e.Must(t, err)
	if opened, err := sealed.Open(key); err != nil || string(opened) != plaintext {
		t.Errorf("the worker's seal opens to %q, %v; want %q", opened, err, plaintext)
	}

	// A deal that requires no seals is sealed where the service accepts them: escrow.sealRound has the same rules.
	p.open("/new", 390, "light") // the front page has no facts
	by := int64(1900003600)
	round := timelock.RoundOf(chain, by)
	opens := chain.RoundTime(round)
	for name, x := range map[string]struct {
		origin, chain string
		until, drawn  int64
		want          bool
	}{
		"a split":                             {"https://a.example", chain.Hash, opens + timelock.Room, 0, true},
		"no public address":                   {"", chain.Hash, opens + timelock.Room, 0, false},
		"another chain":                       {"https://a.example", strings.Repeat("ab", 32), opens + timelock.Room, 0, false},
		"too little room":                     {"https://a.example", chain.Hash, opens + timelock.Room - 1, 0, false},
		"a draw after the seals":              {"https://a.example", chain.Hash, opens + timelock.Room, round + 1, true},
		"a draw by the round of the seals":    {"https://a.example", chain.Hash, opens + timelock.Room, round, false},
		"a draw by a round before the seals'": {"https://a.example", chain.Hash, opens + timelock.Room, 1, false},
	} {
		params := e2e.Body{}
		if x.drawn > 0 {
			params["beacon_round"] = x.drawn
		}
		view := e2e.JsonText(t, e2e.Body{"commit_deadline": by, "reveal_deadline": x.until, "algorithm_params": params})
		if got := modules[bool](t, p, `
			const {facts, takesSeals} = await load('facts');
			Object.assign(facts, {beacon_chain: '`+chain.Hash+`', beacon_genesis: `+fmt.Sprint(chain.Genesis)+`, beacon_period: `+fmt.Sprint(chain.Period)+`});
			return takesSeals(`+e2e.JsonText(t, x.origin)+`, '`+x.chain+`', `+view+`);`); got != x.want {
			t.Errorf("%s: the page seals: %v, want %v", name, got, x.want)
		}
	}
}

// Two people seal on their phones and close the page. Nobody comes back, and the deal is settled.
func TestPeopleActOnce(t *testing.T) {
	c, ann := browser(t)
	ben, chain := newTab(t, c.Base), e2e.BeaconChain(t)
	var d *e2e.CreatedDeal
	var round, drawn int64
	var seals string
	e2e.InTime(t, 45*time.Second, func(lead time.Duration) bool {
		by := e2e.After(lead)
		round = timelock.RoundOf(chain, by)
		drawn = chain.RoundAt(by+150) + 1
		body := e2e.Timed(e2e.RandomBody(2, drawn, 0, 0), by, by+140)
		body["seals"], body["mode"] = "required", "open"
		if d = c.CreateInTime(c.Key(), body); d == nil || !ann.sealsOnce(d, 0, by, "", "sealed") {
			return false
		}
		ann.accessible("sealed with a timelock")
		ann.receipt(c, d, 0, round)
		ann.open("/", 390, "light") // ben is the last, and his page opens at once; ann's page is closed before
		if !ben.sealsOnce(d, 1, by, "", "opened") {
			return false
		}
		v := d.View()
		if time.Now().Unix() >= chain.RoundTime(round) {
			return false
		}
		if v.Parties[0].Revealed || !v.Parties[1].Revealed {
			t.Errorf("before the round: %+v, want only ben's input opened, by his open page", v.Parties)
		}
		file, err := os.ReadFile(ben.download("#save-seals"))
		e2e.Must(t, err)
		seals = string(file)
		eval[bool](ben, `(() => { for (const [key, text] of Object.entries(localStorage)) if (key.startsWith('fairpact:sealed:')) localStorage.setItem(key, JSON.stringify({...JSON.parse(text), receipt: undefined})); return true; })()`)
		ben.click("#save-seals")
		ben.until("the page names whose seal is missing", "document.querySelector('#save-seals').parentElement.textContent.includes('without the seals of party 1, which')")
		return time.Now().Unix() < chain.RoundTime(round)
	})
	ben.open("/", 390, "light")
	time.Sleep(time.Until(time.Unix(chain.RoundTime(round), 0)))
	e2e.Eventually(t, "ann's input is opened", time.Minute, func() bool { return d.View().Parties[0].Revealed })
	var declared struct{ Seals struct{ Parties []string } }
	c.Want(200, "GET", d.Path("/declaration"), d.Tokens[0], nil).Into(t, &declared)
	if !slices.Equal(declared.Seals.Parties, []string{"opened", "sealed"}) {
		t.Errorf("the seals are %v, want ann's opened, and ben's not needed", declared.Seals.Parties)
	}
	ben.open("/", 390, "light")
	ben.hand("#verify-file", seals)
	ben.until("the page asks for the rounds of the seals", "document.querySelector('#rounds') && document.querySelector('#verify-report').textContent.includes('round "+fmt.Sprint(round)+" of beacon chain')")
	opens, draws := e2e.SignRound(t, round), e2e.SignRound(t, drawn)
	ben.set("#rounds", opens+" "+draws)
	ben.click("#settle")
	ben.until("the page answers", "document.querySelector('#settled').textContent || document.querySelector('#verify-report [role=alert]').textContent")
	if said := ben.text("#settled"); !strings.Contains(said, "was drawn, of 2.") || strings.Contains(said, "Nothing shows") {
		t.Errorf("the saved file settles to %q (%s), want a draw", said, ben.text("#verify-report [role=alert]"))
	}
	ctl := e2e.NewCtl(t, c.Base)
	e2e.Must(t, os.WriteFile(filepath.Join(ctl.Dir, "seals.json"), []byte(seals), 0o600))
	ctl.Run(0, "settle", "seals.json", "--round-signature", opens, "--draw-signature", draws, "--relay", "http://127.0.0.1:1")
}

const openAnyTime = "hoever runs it could open the seals at any time"

// sealsOnce takes a seat, runs fill in the form and seals. It reports whether the page showed the given
// phase and a receipt before the deadline for committing.
func (p *tab) sealsOnce(d *e2e.CreatedDeal, party int, by int64, fill, phase string) (inTime bool) {
	p.t.Helper()
	p.bears = "status of 409" // a commit may be late; then its button is gone, too
	p.take(d, party, 390, "light")
	if !p.by(by, "document.querySelector('#opens-itself')?.textContent.includes('You need not come back')") {
		return false
	}
	for _, place := range []string{"#rules", "#opens-itself"} {
		if said := eval[string](p, "document.querySelector('"+place+"').textContent"); !strings.Contains(said, openAnyTime) {
			p.t.Errorf("%s says %s, want of a development beacon: %s", place, said, openAnyTime)
		}
	}
	eval[bool](p, "(() => { "+fill+"; document.querySelector('#review')?.click(); return true; })()")
	if !p.by(by, "document.querySelector('#seal')") {
		return false
	}
	if said := eval[string](p, "document.querySelector('#reviewed')?.parentElement.textContent ?? ''"); said != "" && (!strings.Contains(said, "It goes to the service encrypted") || !strings.Contains(said, openAnyTime)) {
		p.t.Errorf("the review says %s, want that the input goes to the service encrypted, and %s", said, openAnyTime)
	}
	eval[bool](p, "document.querySelector('#seal')?.click() ?? true")
	return p.by(by, "document.querySelector('#status-box').dataset.phase === '"+phase+"' && document.querySelector('#save-receipt')")
}

// by waits until the condition holds or a unix time has passed, and reports whether it holds.
func (p *tab) by(at int64, condition string) (holds bool) {
	p.t.Helper()
	e2e.Eventually(p.t, condition, 2*e2e.DefaultTimeout, func() bool {
		holds = eval[bool](p, "Boolean("+condition+")")
		return holds || time.Now().Unix() >= at
	})
	return holds
}

// receipt saves the receipt of the party's seal, which must be what the service signed.
func (p *tab) receipt(c *e2e.Client, d *e2e.CreatedDeal, party int, round int64) {
	p.t.Helper()
	text, err := os.ReadFile(p.download("#save-receipt"))
	e2e.Must(p.t, err)
	var file struct {
		Seal, Pubkey string
		Receipt      struct{ Text, Signature string }
	}
	e2e.Must(p.t, json.Unmarshal(text, &file))
	receipt, err := timelock.ParseReceipt(file.Receipt.Text)
	e2e.Must(p.t, err)
	e2e.Must(p.t, receipt.Matches(e2e.BeaconChain(p.t), file.Seal))
	e2e.Must(p.t, keys.Verify(file.Pubkey, []byte(file.Receipt.Text), file.Receipt.Signature))
	var status wire.Status
	c.Want(200, "GET", "/v1/status", "", nil).Into(p.t, &status)
	if receipt.DealID != d.ID || receipt.Party != int64(party) || receipt.Round != round || file.Pubkey != status.PublicKey {
		p.t.Errorf("the receipt is %+v under %s, want one of party %d in deal %s for round %d", receipt, file.Pubkey, party, d.ID, round)
	}
}

// The page keeps a receipt that proves nothing, and says why. A key that the service made since is known.
func TestPageChecksTheReceipt(t *testing.T) {
	c, p := browser(t)
	dir, chain := t.TempDir(), e2e.BeaconChain(t)
	key := func(name string) (string, *signing.SeatKey) {
		public, err := signing.MakeKeyFile(filepath.Join(dir, name), "es256")
		e2e.Must(t, err)
		signer, err := signing.ReadSeatKey(filepath.Join(dir, name))
		e2e.Must(t, err)
		return public, &signer
	}
	old, _ := key("old.pem")
	own, signer := key("own.pem")
	_, stranger := key("stranger.pem")
	by := chain.RoundTime(1000) - timelock.Delay
	good := timelock.Receipt{Origin: "https://fairpact.example", DealID: "d_1", Party: 1, Commitment: "sha256:" + strings.Repeat("0a", 32), SealHash: timelock.Hash("seal"), Chain: chain.Hash, Round: 1000, Time: chain.RoundTime(1000) - 1}
	p.open("/", 390, "light")
	for name, x := range map[string]struct {
		change func(*timelock.Receipt)
		signer *signing.SeatKey
		more   string
		doubt  string
	}{
		"good":           {func(*timelock.Receipt) {}, signer, "", ""},
		"another round":  {func(r *timelock.Receipt) { r.Round++ }, signer, "", "its text is not"},
		"another origin": {func(r *timelock.Receipt) { r.Origin = "https://other.example" }, signer, "", "its text is not"},
		"one line more":  {func(*timelock.Receipt) {}, signer, "x\n", "its text is not"},
		"too late":       {func(r *timelock.Receipt) { r.Time++ }, signer, "", "its time is not before"},
		"backdated":      {func(r *timelock.Receipt) { r.Time -= 301 }, signer, "", "its time is 20"},
		"another key":    {func(*timelock.Receipt) {}, stranger, "", "no key of the service"},
		"none":           {func(*timelock.Receipt) {}, nil, "", "the service signed none"},
	} {
		receipt := good
		x.change(&receipt)
		given := "undefined"
		if x.signer != nil {
			text := string(receipt.Message()) + x.more
			signature, err := x.signer.Sign([]byte(text))
			e2e.Must(t, err)
			given = e2e.JsonText(t, e2e.Body{"text": text, "signature": signature})
		}
		doubt := modules[string](t, p, `
			const {receiptFile} = await load('receipt');
			const [real, clock] = [window.fetch, Date.now];
			Date.now = () => `+fmt.Sprint(good.Time)+` * 1000;
			window.fetch = async (path) => new Response(path === '/v1/pubkeys' ? `+"`"+e2e.JsonText(t, e2e.Body{"keys": []e2e.Body{{"pubkey": old, "state": "retired", "tree_size": 1}, {"pubkey": own, "state": "current"}}})+"`"+` : '');
			const {file, doubt} = await receiptFile({beacon: `+e2e.JsonText(t, wire.BeaconOf(chain))+`, seal: 'seal'}, `+given+`, {deal: 'd_1', party: 1, commitment: '`+good.Commitment+`', origin: '`+good.Origin+`', deadline: `+fmt.Sprint(by)+`}).finally(() => { [window.fetch, Date.now] = [real, clock]; });
			return file.seal === 'seal' && Boolean(file.pubkey) === (doubt === null) ? doubt ?? '' : 'the file is ' + JSON.stringify(file);`)
		if x.doubt == "" && doubt != "" || !strings.HasPrefix(doubt, x.doubt) {
			t.Errorf("%s: the page doubts the receipt with %q, want %q", name, doubt, x.doubt)
		}
	}

	body := e2e.SplitBody(10*time.Minute, 20*time.Minute)
	body["seals"] = "required"
	d := c.Create(body)
	p.take(d, 0, 390, "light")
	p.until("the form is there", "document.querySelector('#review') && document.querySelector('#opens-itself')")
	eval[bool](p, `(() => {
		window.real = window.fetch;
		document.querySelectorAll('#action [id^=points-]').forEach((field, i) => { field.value = 60 - 20 * i; });
		document.querySelector('#review').click();
		return true;
	})()`)
	p.until("the review is there", "document.querySelector('#seal')")
	beacon := wire.BeaconOf(chain)
	for name, x := range map[string]struct {
		change func(*wire.BeaconChain)
		says   string
	}{
		"another chain":  {func(b *wire.BeaconChain) { b.Hash = strings.Repeat("ab", 32) }, "The seals of this deal are for the beacon chain " + chain.Hash + ", but the service uses abab"},
		"drand quicknet": {func(b *wire.BeaconChain) { b.Hash = drand.Quicknet().Hash }, "The seals of this deal are for the beacon chain " + chain.Hash + ", but the service uses 52db"},
		"another key":    {func(b *wire.BeaconChain) { b.PublicKey = hex.EncodeToString(drand.Quicknet().PublicKey) }, "do not hash to " + chain.Hash},
		"no seed":        {func(b *wire.BeaconChain) { b.Seed, b.ID = "", "" }, "do not hash to " + chain.Hash},
	} {
		answer := beacon
		x.change(&answer.BeaconChain)
		eval[bool](p, `(() => {
			window.fetch = async (path, how) => (path === '/v1/beacon' ? new Response(`+e2e.JsonText(t, e2e.JsonText(t, answer))+`) : window.real(path, how));
			document.querySelector('#problem').textContent = '';
			document.querySelector('#seal').click();
			return true;
		})()`)
		p.until(name+" is refused", "document.querySelector('#problem').textContent.includes('"+x.says+"') && !document.querySelector('#seal').hasAttribute('aria-disabled')")
	}
	if view := d.View(); view.Parties[0].Committed {
		t.Error("the page has sealed for a chain that the deal does not declare")
	}
	eval[bool](p, `(() => {
		const { real } = window;
		window.fetch = async (path, how) => {
			const answer = await real(path, how);
			while (path.endsWith('/commit') && document.querySelector('#status-box').dataset.phase !== 'sealed') await new Promise((done) => { setTimeout(done, 10); });
			return path.endsWith('/commit') ? new Response(JSON.stringify({...await answer.json(), receipt: undefined}), {status: answer.status, headers: answer.headers}) : answer;
		};
		return true;
	})()`)
	p.click("#seal") // the answer comes after the page has read the deal, and the panel is drawn again
	p.until("the page warns", "document.querySelector('#doubt')?.textContent.includes('the service signed none')")
	if title := p.text("#action h2"); title != "Sealed" {
		t.Errorf("without a receipt the panel is titled %q, want Sealed", title)
	}

	// A deal that declares no chain may be sealed for drand quicknet only, which this deployment does not use.
	p.take(c.Create(e2e.SplitBody(10*time.Minute, 20*time.Minute)), 0, 390, "light")
	p.until("the form is drawn after the declaration is read", "document.querySelector('#prove') && document.querySelector('#review')")
	if eval[bool](p, "Boolean(document.querySelector('#opens-itself, #seal-chain'))") || !strings.Contains(p.text("#action"), "be here after all have sealed") {
		t.Errorf("of a deal without a declared chain the page says %s, want that the person opens by hand", p.text("#action"))
	}
}

// Two people and an agent act once each in a division, a draw and a rejection. Nobody comes back, and the
// worker ends each deal after its round.
func TestEverybodyActsOnce(t *testing.T) {
	c, ann := browser(t)
	ben, chain := newTab(t, c.Base), e2e.BeaconChain(t)
	labels := []string{"Ann", "Ben", "bot"}
	const points, accepts = "document.querySelectorAll('#action [id^=points-]').forEach((field, i) => { field.value = 60 - 20 * i; })", "document.querySelector('input[name=accept][value=true]')?.click()"
	kinds := []struct {
		name, ann, ben string
		body           e2e.Body
		bot            e2e.Body
		outcome        string
	}{
		{"split", points, points, e2e.Body{"algorithm": "split.v1", "algorithm_params": e2e.Body{"items": []string{"car", "boat"}}}, e2e.AnnsValues, "COMPUTED"},
		{"rejection", accepts, strings.Replace(accepts, "true", "false", 1), e2e.Body{"algorithm": "shapley.v1", "algorithm_params": e2e.Body{"coalition_values": e2e.Body{"Ann,Ben,bot": 90}}}, e2e.Body{"accept": true}, "VOID"},
		{"draw", "", "", e2e.Body{"algorithm": "random.v1"}, e2e.Body{"nonce": "0b"}, "COMPUTED"},
	}
	deals := make([]*e2e.CreatedDeal, len(kinds))
	var round, drawn int64
	e2e.InTime(t, 90*time.Second, func(lead time.Duration) bool {
		by := e2e.After(lead)
		round, drawn = timelock.RoundOf(chain, by), chain.RoundAt(by+150)+1
		for i, kind := range kinds {
			body := e2e.Timed(with(kind.body, e2e.Body{"party_labels": labels, "seals": "required", "mode": "open"}), by, by+140)
			if kind.name == "draw" {
				body["algorithm_params"] = e2e.Body{"beacon_round": drawn}
				delete(body, "seals") // the page and the agent seal although the deal does not require it
			}
			if deals[i] = c.CreateInTime(c.Key(), body); deals[i] == nil {
				return false
			}
			if !ann.sealsOnce(deals[i], 0, by, kind.ann, "sealed") || !ben.sealsOnce(deals[i], 1, by, kind.ben, "sealed") {
				return false
			}
		}
		ann.open("/", 390, "light")
		ben.open("/", 390, "light") // no page is open when the agents seal
		for i, kind := range kinds {
			if !agentSeals(c, deals[i], 2, kind.bot) {
				return false
			}
		}
		return true
	})
	for i, kind := range kinds {
		due := chain.RoundTime(round)
		if kind.name == "draw" {
			due = chain.RoundTime(drawn)
		}
		time.Sleep(time.Until(time.Unix(due, 0)))
		if os.Getenv("FAIRPACT_BASE_URL") == "" {
			db := e2e.OpenDB(t, e2e.Shared(t))
			e2e.Eventually(t, "the worker ends the "+kind.name, e2e.DefaultTimeout, func() bool { return db.Phase(deals[i]) == kind.outcome })
		}
		text := deals[i].Certified(e2e.DefaultTimeout)
		t.Logf("%s: certified %d s after its round is due", kind.name, time.Now().Unix()-due)
		var cert struct {
			Outcome    string
			Flakers    []int `json:"void_flakers"`
			Properties []string
		}
		e2e.Must(t, json.Unmarshal(text, &cert))
		if cert.Outcome != kind.outcome || !slices.Contains(cert.Properties, fmt.Sprintf("opened-by-timelock:%d", round)) || (kind.outcome == "VOID") != slices.Equal(cert.Flakers, []int{1}) {
			t.Errorf("%s: %+v, want %s with inputs from seals of round %d", kind.name, cert, kind.outcome, round)
		}
		e2e.RequireIndependentVerdict(t, c, text, true)
		ann.take(deals[i], 0, 390, "light")
		ann.until("the proof is there", "document.querySelector('#verify-bundle')")
		ann.click("#verify-bundle")
		ann.until("it verifies", "document.querySelector('#report').dataset.valid === 'true'")
		if claims := ann.claims("#report"); claims["result"] != "proven" && kind.outcome == "COMPUTED" {
			t.Errorf("%s: the claims are %v, want the result proven", kind.name, claims)
		}
	}
}

// agentSeals is an agent without a shell that seals over MCP. It reports whether it was in time.
func agentSeals(c *e2e.Client, d *e2e.CreatedDeal, party int, input e2e.Body) (inTime bool) {
	c.T.Helper()
	seat := e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[party]}
	var hashed struct{ Commitment, Seal string }
	c.Tool("compute_commitment_tool", with(seat, e2e.Body{"input": input, "salt": "00112233445566778899aabbccddeeff", "timelock": true})).Into(c.T, &hashed)
	arguments, err := json.Marshal(with(seat, e2e.Body{"commitment": hashed.Commitment, "seal": hashed.Seal}))
	e2e.Must(c.T, err)
	done := c.Raw("commit_input", string(arguments))
	if done.IsError && !strings.Contains(done.Content[0].Text, "DEADLINE_PASSED") {
		c.T.Fatalf("commit_input: %+v", done.Content)
	}
	return !done.IsError
}

// A person makes a deal whose inputs open by themselves. The invitations say that nobody has to come back.
func TestPersonMakesADealThatOpensByItself(t *testing.T) {
	c, ann := browser(t)
	ann.open("/new", 390, "light")
	ann.until("the form is there", "document.querySelector('#kinds input:checked')")
	ann.enter("#names", "Ann\rBen")
	ann.enter("#items", "car\rboat")
	if !eval[bool](ann, "document.querySelector('#could-open').checkVisibility() && !document.querySelector('#nobody-reads').checkVisibility()") {
		t.Error("the form says that nobody can read a seal before it opens, although the beacon is not drand quicknet")
	}
	ann.accessible("new deal that opens by itself")
	eval[bool](ann, "Boolean(Storage.prototype.setItem = () => { throw new DOMException('storage is off', 'QuotaExceededError'); })")
	ann.enter("#create", "\r")
	ann.until("the deal is made", "!document.querySelector('#made').hidden")
	if said := ann.text("#kept"); said != "Save all invitations now: this browser keeps none." {
		t.Errorf("without storage the page says of the invitations: %s", said)
	}
	text := eval[string](ann, "document.querySelector('#invitations textarea').value")
	found := regexp.MustCompile(`/d/(d_[^#]+)#(it_\S+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("the invitation has no link: %s", text)
	}
	var declared wire.Declaration
	c.Want(200, "GET", "/v1/deals/"+found[1]+"/declaration", found[2], nil).Into(t, &declared)
	var terms struct {
		Commit int64 `json:"commit_deadline"`
		Reveal int64 `json:"reveal_deadline"`
		Seals  string
	}
	e2e.Must(t, json.Unmarshal(declared.Declared, &terms))
	chain := e2e.BeaconChain(t)
	opens := chain.RoundTime(timelock.RoundOf(chain, terms.Commit))
	if terms.Seals != "required" || declared.Seals == nil || declared.Seals.OpensAt != opens {
		t.Errorf("the declaration is %s with %+v, want required seals that open at %d", declared.Declared, declared.Seals, opens)
	}
	alg, _ := algorithm.Lookup("split.v1")
	seat := invitation.Seat{DealID: found[1], Algorithm: alg, From: "Ann", Party: 1, Label: "Ben", Token: found[2], CommitDeadline: terms.Commit, RevealDeadline: terms.Reveal, OpensAt: opens, Chain: chain.Hash}
	if want := invitation.Text(c.Base, seat); text != want || !strings.Contains(text, "You need not come back") {
		t.Errorf("the page's invitation is\n%s\nwant, as from the service,\n%s", text, want)
	}
}
