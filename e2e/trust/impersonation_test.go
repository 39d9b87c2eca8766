package trust

import (
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// verdicts verifies a bundle with fairpactctl and with the independent verifier, and returns what
// the two verifiers print. Both must accept the bundle if `accepted` is true, and reject it
// otherwise. `known` lists the parties' signing keys that the verifiers require, as "party=key".
func verdicts(t *testing.T, ctl *e2e.Ctl, bundle []byte, accepted bool, known ...string) []string {
	t.Helper()
	code := 1
	if accepted {
		code = 4 // the keys come from the bundle
	}
	var party []string
	for _, one := range known {
		party = append(party, "--seat-key", one)
	}
	said, _ := ctl.Run(code, append([]string{"verify", ctl.File("bundle.json", bundle)}, party...)...)
	good, python := e2e.Verifier(t, append([]string{"--bundle", e2e.File(t, bundle)}, party...)...)
	if good != accepted {
		t.Errorf("the independent verifier accepts the bundle: %v, want %v\n%s", good, accepted, python)
	}
	return []string{said, python}
}

func says(t *testing.T, said []string, words ...string) {
	t.Helper()
	for _, one := range said {
		for _, w := range words {
			if !strings.Contains(one, w) {
				t.Errorf("a verifier does not print %q:\n%s", w, one)
			}
		}
	}
}

// The initiator has all tokens and tries to commit in another party's name. If that party's seat
// has a declared key, the service refuses the commit. Without a declared key, the service accepts
// the commit, and the verifiers report that the owner of the signing key is not proven. A verifier
// that knows the party's real key rejects the certificate.
func TestInitiatorCannotImpersonateASeatWithAKey(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	ctl := e2e.NewCtl(t, c.Base)
	made, _ := ctl.Run(0, "seat-key", "bob.pem", "--type", "es256")
	bobs := strings.TrimSpace(made)
	made, _ = ctl.Run(0, "seat-key", "initiator.pem")
	own := strings.TrimSpace(made)
	ann, bob := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	sealed := ctl.File("sealed.json", e2e.Body{"input": bob.Input, "salt": bob.Salt})
	send := func(code int, d *e2e.CreatedDeal, keyFile string) string {
		out, errs := ctl.Run(code, "deal", "commit", sealed, "--deal", d.ID, "--token", d.Tokens[1], "--seat-key", keyFile)
		return out + errs
	}

	body := e2e.SplitBody(time.Hour, 2*time.Hour)
	body["party_keys"] = []any{nil, bobs}
	d := c.Create(body)
	d.Commit(0, ann)
	c.Refused(403, "SEAT_KEY_REQUIRED", "POST", d.Path("/commit"), d.Tokens[1], bob.Act("commit"))
	if said := send(1, d, "initiator.pem"); !strings.Contains(said, "for party 1 the deal declares the key") {
		t.Errorf("a commit with another key: %s", said)
	}
	send(0, d, "bob.pem")
	d.Reveal(0, ann)
	d.Reveal(1, bob)
	d.Certified(e2e.DefaultTimeout)
	bundle := c.Do("GET", d.Path("/bundle"), d.Tokens[1], nil).Body
	says(t, verdicts(t, ctl, bundle, true, "1="+bobs), "party_keys", "party 0: no seat key signed")
	says(t, verdicts(t, ctl, bundle, true), "party 1: signed with "+bobs)
	says(t, verdicts(t, ctl, bundle, false, "1="+own), "party 1 signed with "+bobs)

	// Without a declared key, the initiator can sign with a key of its own.
	d = c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	d.Commit(0, ann)
	send(0, d, "initiator.pem")
	if a := c.Do("POST", d.Path("/commit"), d.Tokens[1], bob.Act("commit")); a.Code() != "ALREADY_COMMITTED" || !strings.Contains(a.ErrorText(), "somebody used this invite token") {
		t.Errorf("the party whose token was used receives %s, want a refusal", a.Body)
	}
	d.Reveal(0, ann)
	d.Reveal(1, bob)
	d.Certified(e2e.DefaultTimeout)
	bundle = c.Do("GET", d.Path("/bundle"), d.Tokens[0], nil).Body
	says(t, verdicts(t, ctl, bundle, true), "which the initiator may have named or brought")
	says(t, verdicts(t, ctl, bundle, false, "1="+bobs), "party 1 signed with "+own)
}
