package page

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
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
	"github.com/fairpact/fairpact/internal/rules/timelock"
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
		return sealOpening(beacon, `+fmt.Sprint(chain.RoundTime(v.Round)-timelock.Delay)+`, {deal_id: 'd_EXAMPLE', input: {a: 'é'}, party: 1, salt: 'x'});`)
	signature, err := hex.DecodeString(v.Signature)
	e2e.Must(t, err)
	key, err := timelock.NewKey(chain, v.Round, signature)
	e2e.Must(t, err)
	sealed, err := timelock.Check(chain, seal, v.Round, 16<<10)
	e2e.Must(t, err)
	if opened, err := sealed.Open(key); err != nil || string(opened) != plaintext {
		t.Errorf("the worker's seal opens to %q, %v; want %q", opened, err, plaintext)
	}
}

// Two people seal on their phones and close the page. Nobody comes back, and the deal is settled.
func TestPeopleActOnce(t *testing.T) {
	c, ann := browser(t)
	ben, chain := newTab(t, c.Base), e2e.BeaconChain(t)
	var d *e2e.CreatedDeal
	var round int64
	e2e.InTime(t, 45*time.Second, func(lead time.Duration) bool {
		by := e2e.After(lead)
		round = timelock.RoundOf(chain, by)
		body := e2e.Timed(e2e.RandomBody(2, chain.RoundAt(by+150)+1, 0, 0), by, by+140)
		body["seals"] = "required"
		if d = c.CreateInTime(c.Key(), body); d == nil || !ann.sealsOnce(d, 0, by, "sealed") {
			return false
		}
		ann.accessible("sealed with a timelock")
		ann.open("/", 390, "light") // ben is the last, and his page opens at once; ann's page is closed before
		if !ben.sealsOnce(d, 1, by, "opened") {
			return false
		}
		v := d.View()
		if time.Now().Unix() >= chain.RoundTime(round) {
			return false
		}
		if v.Parties[0].Revealed || !v.Parties[1].Revealed {
			t.Errorf("before the round: %+v, want only ben's input opened, by his open page", v.Parties)
		}
		return true
	})
	ben.open("/", 390, "light")
	time.Sleep(time.Until(time.Unix(chain.RoundTime(round), 0)))
	e2e.Eventually(t, "ann's input is opened", time.Minute, func() bool { return d.View().Parties[0].Revealed })
	var declared struct{ Seals struct{ Parties []string } }
	c.Want(200, "GET", d.Path("/declaration"), d.Tokens[0], nil).Into(t, &declared)
	if !slices.Equal(declared.Seals.Parties, []string{"opened", "sealed"}) {
		t.Errorf("the seals are %v, want ann's opened, and ben's not needed", declared.Seals.Parties)
	}
}

// sealsOnce takes a seat in a draw and seals. It reports whether the page showed the given phase before
// the deadline for committing.
func (p *tab) sealsOnce(d *e2e.CreatedDeal, party int, by int64, phase string) (inTime bool) {
	p.t.Helper()
	p.bears = "status of 409" // a commit may be late
	p.take(d, party, 390, "light")
	if !p.by(by, "document.querySelector('#seal') && document.querySelector('#opens-itself')?.textContent.includes('You need not come back')") {
		return false
	}
	eval[bool](p, "document.querySelector('#seal')?.click() ?? true") // the button is gone if the deadline has just passed
	return p.by(by, "document.querySelector('#status-box').dataset.phase === '"+phase+"'")
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

// A person makes a deal whose inputs open by themselves. The invitations say that nobody has to come back.
func TestPersonMakesADealThatOpensByItself(t *testing.T) {
	c, ann := browser(t)
	ann.open("/new", 390, "light")
	ann.until("the form is there", "document.querySelector('#kinds input:checked')")
	ann.enter("#names", "Ann\rBen")
	ann.enter("#items", "car\rboat")
	ann.enter("#act-once", " ")
	ann.accessible("new deal that opens by itself")
	ann.enter("#create", "\r")
	ann.until("the deal is made", "!document.querySelector('#made').hidden")
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
	seat := invitation.Seat{DealID: found[1], Algorithm: alg, From: "Ann", Party: 1, Label: "Ben", Token: found[2], CommitDeadline: terms.Commit, RevealDeadline: terms.Reveal, OpensAt: opens}
	if want := invitation.Text(c.Base, seat); text != want || !strings.Contains(text, "You need not come back") {
		t.Errorf("the page's invitation is\n%s\nwant, as from the service,\n%s", text, want)
	}
}
