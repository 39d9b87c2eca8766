package trust

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// An operator names a party a flaker whose seal opens, commits for an accomplice after it has read the other
// seal, and refuses to open seals. Files that a party holds expose each lie, and the same checks accept
// what the operator does honestly.
func TestDishonestOperatorOfSeals(t *testing.T) {
	t.Parallel()
	stack := e2e.Dishonest(t, 2)
	o := &sealing{t: t, stack: stack, c: e2e.NewClient(t, stack.BaseURL()), by: e2e.After(time.Minute)}
	o.opens = stack.Chain().RoundTime(timelock.RoundOf(stack.Chain(), o.by))
	var status struct{ Pubkey string }
	o.c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	o.trust = []string{"--pubkey", status.Pubkey}

	honest, absent, framed, withheld := o.deal("ann", "bob"), o.deal("ann", "bob"), o.deal("ann", "framed"), o.deal("withheld", "zoe")
	backdated := o.c.Create(e2e.Timed(e2e.SplitBody(0, 0), o.by, o.opens+timelock.Room))
	accept := e2e.Body{"accept": true}
	seat := directories{
		honest:    {o.join(honest, 0, accept), o.join(honest, 1, accept)},
		absent:    {o.join(absent, 0, accept)},
		framed:    {o.join(framed, 0, accept), o.join(framed, 1, accept)},
		withheld:  {o.join(withheld, 0, accept), o.join(withheld, 1, accept)},
		backdated: {o.join(backdated, 0, e2e.AnnsValues)},
	}
	absent.Commit(1, e2e.Seal(t, accept)) // without a seal, and it never reveals
	for _, d := range []*e2e.CreatedDeal{honest, withheld} {
		seat[d][0].Run(0, "deal", "seals", "--deal", d.ID, "--out", "seals.json", "--development-beacon")
	}
	e2e.Eventually(t, "the round of the seals", time.Until(time.Unix(o.opens, 0))+e2e.DefaultTimeout, func() bool { return time.Now().Unix() >= o.opens })

	// The accomplice commits as soon as the operator has read Ann's seal. The operator's own clock says that it was in time.
	if read := o.receipt(seat[backdated][0], 0); !strings.Contains(read, `"car":70`) {
		t.Errorf("at the round, the seal of ann does not open to her input: %s", read)
	}
	chosen := e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 69, "boat": 31}})
	o.c.Want(200, "POST", backdated.Path("/commit"), backdated.Tokens[1], chosen.Timelocked(stack.Chain(), backdated, 1, o.by))

	o.refusesToOpen(honest, withheld, seat)
	o.backdates(honest, backdated, seat)
	o.namesAFlaker(honest, absent, framed, seat)
}

// refusesToOpen: the seals that each party fetched before the round settle the deal without the operator.
func (o *sealing) refusesToOpen(honest, withheld *e2e.CreatedDeal, seat directories) {
	var certified struct{ Result json.RawMessage }
	e2e.Must(o.t, json.Unmarshal(honest.Certified(time.Minute), &certified))
	if alone := o.settle(seat[honest][0]); alone != string(certified.Result) {
		o.t.Errorf("the honest deal settles to %s, but the certificate says %s", alone, certified.Result)
	}
	if alone := o.settle(seat[withheld][0]); !strings.Contains(alone, `"total":120`) {
		o.t.Errorf("the withheld deal settles to %s", alone)
	}
	if v := withheld.View(); v.State != "REVEALING" && v.State != "EXPIRED" {
		o.t.Errorf("the withheld deal is %s", v.State)
	}
}

// backdates: the bundle's closing shows when the commitments were fixed, to whoever trusts the witnesses.
func (o *sealing) backdates(honest, backdated *e2e.CreatedDeal, seat directories) {
	o.verify(seat[honest][0], honest, 0, "OK   closing_witnesses")
	shown := o.verify(seat[backdated][0], backdated, 1, "FAIL closing_witnesses")
	if at := shown.Timing.CommitsClosedAt; at == nil || *at >= o.by {
		o.t.Errorf("the certificate says that the commitments were closed at %v, so its own times expose the lie", at)
	}
}

// namesAFlaker: receipt, seal and round contradict the certificate.
func (o *sealing) namesAFlaker(honest, absent, framed *e2e.CreatedDeal, seat directories) {
	for _, x := range []struct {
		deal        *e2e.CreatedDeal
		party, code int
		flakers     []int
	}{{honest, 0, 0, nil}, {honest, 1, 0, nil}, {absent, 0, 0, []int{1}}, {framed, 0, 0, []int{1}}, {framed, 1, 1, []int{1}}} {
		x.deal.Certified(time.Until(time.Unix(o.opens+timelock.Room, 0)) + time.Minute)
		party, held := seat[x.deal][x.party], "held.json"
		if shown := o.bundle(party, x.deal, held); !slices.Equal(shown.VoidFlakers, x.flakers) {
			o.t.Fatalf("the certificate names %v, want %v", shown.VoidFlakers, x.flakers)
		}
		if said := o.receipt(party, x.code, "--certificate", held); x.code == 1 && !strings.Contains(said, "names party 1 for an absence") {
			o.t.Errorf("the receipt of the framed party: %s", said)
		}
	}
	o.verify(seat[framed][1], framed, 0, "proven         issued") // nothing but the receipt exposes the certificate
}

type directories map[*e2e.CreatedDeal][]*e2e.Ctl // of the parties that joined, in party order

// sealing plays deals whose parties seal and leave.
type sealing struct {
	t         *testing.T
	stack     *localstack.Stack
	c         *e2e.Client
	by, opens int64
	trust     []string // options of fairpactctl: the deployment's key
}

func (o *sealing) deal(first, second string) *e2e.CreatedDeal {
	b := e2e.Retained(e2e.Timed(e2e.ShapleyBody(0, 0), o.by, o.opens+timelock.Room), "open", "standard")
	b["party_labels"], b["algorithm_params"] = []string{first, second}, e2e.Body{"coalition_values": e2e.Body{first: 60, second: 0, first + "," + second: 120}}
	return o.c.Create(b)
}

// join seals and commits for a party, and returns its directory with the receipt file.
func (o *sealing) join(d *e2e.CreatedDeal, party int, input e2e.Body) *e2e.Ctl {
	o.t.Helper()
	ctl := e2e.NewCtl(o.t, o.c.Base)
	ctl.Env = append(ctl.Env, "FAIRPACT_TOKEN="+d.Tokens[party])
	ctl.Run(0, "deal", "join", fmt.Sprintf("%s/d/%s#%s", o.c.Base, d.ID, d.Tokens[party]), ctl.File("input.json", input), "--out", "mine.json", "--development-beacon")
	return ctl
}

// receipt runs fairpactctl receipt, without the service.
func (o *sealing) receipt(party *e2e.Ctl, code int, more ...string) string {
	o.t.Helper()
	args := append([]string{"receipt", "mine.json.receipt", "--json", "--relay", o.stack.BeaconURL()}, append(o.trust, more...)...)
	out, errs := party.Run(code, args...)
	return strings.NewReplacer(" ", "", "\n", "").Replace(out) + errs
}

// settle returns the result that a party computes from its seals file, without the service.
func (o *sealing) settle(party *e2e.Ctl) string {
	o.t.Helper()
	var of struct{ Result json.RawMessage }
	party.Json(&of, "settle", "seals.json", "--relay", o.stack.BeaconURL())
	var text bytes.Buffer
	e2e.Must(o.t, json.Compact(&text, of.Result))
	return text.String()
}

// bundle fetches the complete bundle of a deal and returns its certificate.
func (o *sealing) bundle(party *e2e.Ctl, d *e2e.CreatedDeal, name string) (c certificate.Payload) {
	o.t.Helper()
	d.Certified(time.Minute)
	e2e.Eventually(o.t, "the bundle is complete", e2e.DefaultTimeout, func() bool {
		_ = os.Remove(filepath.Join(party.Dir, name))
		_, noted := party.Run(0, "deal", "certificate", "--deal", d.ID, "--out", name)
		return !strings.Contains(noted, "log_proof") && !strings.Contains(noted, "quorum") && strings.Contains(string(party.Read(name)), `"closing"`)
	})
	e2e.Must(o.t, json.Unmarshal(party.Read(name), &struct{ Certificate any }{&c}))
	return c
}

// verify runs both verifiers with the policy of the witnesses, and returns the certificate.
func (o *sealing) verify(party *e2e.Ctl, d *e2e.CreatedDeal, code int, want string) certificate.Payload {
	o.t.Helper()
	shown := o.bundle(party, d, "bundle.json")
	args := append([]string{filepath.Join(party.Dir, "bundle.json"), "--policy", o.stack.PolicyFile()}, o.trust...)
	inGo, _ := party.Run(code, append([]string{"verify"}, args...)...)
	good, inPython := e2e.Verifier(o.t, append([]string{"--bundle"}, args...)...)
	if good != (code == 0) || !strings.Contains(inGo, want) || !strings.Contains(inPython, want) {
		o.t.Errorf("%q, exit code %d; the independent verifier: %v\n%s\n%s", want, code, good, inGo, inPython)
	}
	return shown
}
