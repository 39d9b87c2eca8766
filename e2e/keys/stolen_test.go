package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

// theft is a deployment with a stolen signing key. The test does what
// charts/fairpact/runbooks/stolen-key.md tells the operator to do.
type theft struct {
	*e2e.Keyholder
	kms   *kmstest.GCP
	c     *e2e.Client
	w     e2e.DB
	tries int
}

func (b *theft) newKey() (name, uri, label string) {
	b.T.Helper()
	name = b.kms.NewKey()
	label, err := signing.PublicKeyOf(b.T.Context(), b.kms.URI(name))
	e2e.Must(b.T, err)
	return name, b.kms.URI(name), label
}

func (b *theft) forge(key *signing.Signer) (index int64, err error) {
	b.T.Helper()
	b.tries++
	return e2e.Forge(b.T, b.Stack, key, b.tries)
}

func (b *theft) found(leaves string) {
	b.T.Helper()
	if foreign := b.w.Column(e2e.ForeignLeaves(b.T)); fmt.Sprint(foreign) != leaves {
		b.T.Errorf("the leaves without a certificate are %v, want %s", foreign, leaves)
	}
}

func (b *theft) refused(thief *signing.Signer) {
	b.T.Helper()
	if index, err := b.forge(thief); !errors.Is(err, translog.ErrRefused) {
		b.T.Errorf("an append under the closed key: index %d, error %v, want ErrRefused", index, err)
	}
}

func (b *theft) checked() {
	b.T.Helper()
	if out := b.Keys(0, "check"); !strings.Contains(out, "next: nothing") {
		b.T.Errorf("signing-keys check does not say \"next: nothing\": %s", out)
	}
}

func (b *theft) played() *e2e.CreatedDeal {
	b.T.Helper()
	d := b.c.ComputedDeal()
	if v := d.View(); v.State != "COMPUTED" {
		b.T.Fatalf("after all reveals the view is %+v, want COMPUTED", v)
	}
	return d
}

func (b *theft) good(d *e2e.CreatedDeal, key string) {
	b.T.Helper()
	certificate := d.Certified(e2e.DefaultTimeout)
	b.verdicts(d, certificate, true)
	if !e2e.SignedByKey(b.T, certificate, key) {
		b.T.Errorf("the certificate of deal %s is not signed by %s", d.ID, key)
	}
}

// verdicts requires that REST, MCP, fairpactctl and the independent verifier all find the
// certificate valid, or all invalid, as `valid` says. verdicts returns the note in the REST
// response.
func (b *theft) verdicts(d *e2e.CreatedDeal, certificate []byte, valid bool) (note string) {
	b.T.Helper()
	var shown struct {
		ID string `json:"cert_id"`
	}
	e2e.Must(b.T, json.Unmarshal(certificate, &shown))
	rest := b.c.Verify(shown.ID)
	var mcp e2e.Report
	b.c.Tool("verify_certificate", e2e.Body{"cert_id": shown.ID}).Into(b.T, &mcp)
	if rest.Valid != valid || mcp != rest {
		b.T.Errorf("certificate of deal %s: REST says %+v and MCP %+v, want the same with valid %v", d.ID, rest, mcp, valid)
	}
	e2e.RequireIndependentVerdict(b.T, b.c, certificate, valid)
	b.Ctl.File("certificate.json", certificate)
	b.Ctl.Run(map[bool]int{true: 0, false: 1}[valid], "verify", "certificate.json", "--base-url", b.c.Base)
	return rest.Note
}

// A thief steals the current key, and later a retired key. The steps of runbooks/stolen-key.md
// have the effects that the runbook promises.
func TestStolenKeys(t *testing.T) {
	t.Parallel()
	b := &theft{Keyholder: &e2e.Keyholder{T: t}, kms: e2e.KeyService(t)}
	oldName, oldURI, oldKey := b.newKey()
	_, newURI, newKey := b.newKey()
	_, lastURI, lastKey := b.newKey()
	b.Keyholder = e2e.NewKeyholder(t, oldURI, nil)
	b.c, b.w = e2e.NewClient(t, b.Stack.BaseURL()), e2e.OpenDB(t, b.Stack)
	before := b.played()
	b.good(before, oldKey)
	thief, err := signing.Open(t.Context(), oldURI)
	e2e.Must(t, err)

	t.Log("Emergency rotation")
	if _, err := b.forge(thief); err != nil {
		t.Fatalf("the thief's append under the current key: %v, want success", err)
	}
	b.found("[1]")
	// Stop the log-server, so that one certificate is signed with the old key but not appended.
	b.Stack.Signal(localstack.LogServer, syscall.SIGSTOP)
	overtaken := b.played()
	// With the key disabled, deals still end, and their certificates wait.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_DISABLED)
	b.Stack.Signal(localstack.LogServer, syscall.SIGCONT)
	waiting := b.played()
	for _, d := range []*e2e.CreatedDeal{overtaken, waiting} {
		if a := b.c.Do("GET", d.Path("/certificate"), d.Tokens[0], nil); a.Code() != "CERT_NOT_READY" {
			t.Errorf("GET certificate of deal %s with the key disabled: %d %s, want CERT_NOT_READY", d.ID, a.Status, a.Body)
		}
	}
	if n := b.w.Number(`SELECT count(*) FROM certificates WHERE deal_id = $1 AND signature IS NOT NULL`, overtaken.ID); n != 1 {
		t.Error("the certificate that waits for the log has no signature")
	}
	// A process does not start with the disabled key, as the runbook warns.
	if said, code := started(t, localstack.LogServer, b.Settings()); code != 1 || !strings.Contains(said, "gcloud kms keys versions enable") {
		t.Errorf("log-server with the disabled key: exit code %d, want 1 and the gcloud command that enables the key: %s", code, said)
	}
	// --now also closes the old key at the size of the newest tree head.
	b.Keys(0, "rotate", "--to", newURI, "--now")
	if set := string(b.Ctl.Read("keys.json")); !strings.Contains(set, `"pubkey":"`+oldKey+`","retired_at":`) || !strings.Contains(set, `"tree_size":2}`) || !strings.Contains(set, newKey) {
		t.Fatalf("keys.json does not have %s closed at tree size 2 and the new key %s: %s", oldKey, newKey, set)
	}
	back := time.Now()
	b.RollOut()
	b.w.Converged()
	t.Logf("all waiting certificates were issued %s after the rollout began", time.Since(back).Round(100*time.Millisecond))
	b.good(before, oldKey)
	b.good(overtaken, newKey)
	b.good(waiting, newKey)
	b.checked()
	// The log now refuses the thief's entries. The query still finds the leaf that the
	// thief appended before the rotation.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_ENABLED) // simulates the thief's copy of the key
	b.refused(thief)
	b.found("[1]")

	t.Log("A retired key is stolen: closed")
	b.falseLog(thief, 2, true)  // the key may sign a tree head of size 2, but this head contradicts the log
	b.falseLog(thief, 3, false) // the key is closed at tree size 2, so it must not sign a head of size 3

	t.Log("A retired key is stolen: open")
	b.Keys(0, "rotate", "--to", lastURI, "--in", soonest.String())
	b.RollOut()
	b.Switched()
	genuine := b.played()
	b.good(genuine, lastKey)
	if thief, err = signing.Open(t.Context(), newURI); err != nil {
		t.Fatal(err)
	}
	stolen, err := b.forge(thief)
	if err != nil {
		t.Fatalf("the thief's append under the open key: %v, want success", err)
	}
	b.found(fmt.Sprintf("[1 %d]", stolen))
	size := fmt.Sprint(stolen)
	b.Close(newKey, "--tree-size", size)
	b.RollOut()
	for d, key := range map[*e2e.CreatedDeal]string{before: oldKey, overtaken: newKey, waiting: newKey, genuine: lastKey} {
		b.good(d, key)
	}
	b.refused(thief)
	b.checked()
	// Every verifier rejects a certificate that the closed key signed, if the leaf index of the
	// certificate is at least the tree size at which the key was closed.
	later := b.played()
	b.good(later, lastKey)
	forged := e2e.Decoded(t, later.Certified(0))
	forged["signature"] = b.signed(thief, later)
	(&e2e.RowEditor{W: b.w}).Update(t, []string{fmt.Sprintf(`UPDATE certificates SET signature = '%s' WHERE deal_id = '%s'`, forged["signature"], later.ID)})
	if note := b.verdicts(later, e2e.Encoded(t, forged), false); !strings.Contains(note, "retired when the log had "+size+" leaves") {
		t.Errorf("the note is %q, want the tree size %s at which the key was retired", note, size)
	}
}

func (b *theft) signed(key *signing.Signer, d *e2e.CreatedDeal) string {
	b.T.Helper()
	payload := e2e.Value[[]byte](b.w, `SELECT payload FROM certificates WHERE deal_id = $1`, d.ID)
	signature, err := key.Sign(b.T.Context(), sha256.Sum256(payload))
	e2e.Must(b.T, err)
	return signature
}

// falseLog signs a forged tree head, which `fairpactctl signing-keys check` must reject. If inForce is
// false, the key is closed at a tree size below `size`.
func (b *theft) falseLog(key *signing.Signer, size int, inForce bool) {
	b.T.Helper()
	root := hex.EncodeToString(e2e.TreeRoot([][]byte{{1}, {2}, {3}}[:size]))
	signature, err := key.Sign(b.T.Context(), sha256.Sum256(fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, root, size)))
	e2e.Must(b.T, err)
	b.Ctl.File("false.json", e2e.Body{"tree_size": size, "root_hash": root, "signature": signature})
	out := b.Keys(1, "check", "--tree-head", "false.json")
	want := map[bool]string{true: "the log is forked", false: "retired at tree size 2, so it must not sign a head of size 3"}[inForce]
	if !strings.Contains(out, "FAIL consistency") || !strings.Contains(out, want) {
		b.T.Errorf("signing-keys check of a false head of size %d: %s, want FAIL consistency with %q", size, out, want)
	}
}
