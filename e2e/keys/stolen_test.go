package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
	"github.com/fairpact/fairpact/internal/translog"
)

// badDay is a deployment that follows the page on signing keys
// (charts/fairpact/runbooks/stolen-key.md) on the days that are not planned.
type badDay struct {
	*e2e.Keyholder
	kms   *kmstest.GCP
	c     *e2e.Client
	w     e2e.Witness
	tries int
}

// newKey makes a version and gives its URI and label.
func (b *badDay) newKey() (name, uri, label string) {
	b.T.Helper()
	name = b.kms.NewKey()
	label, err := signing.PublicKeyOf(b.T.Context(), b.kms.URI(name))
	if err != nil {
		b.T.Fatal(err)
	}
	return name, b.kms.URI(name), label
}

// steal is what a thief of the key and of the append secret can do: sign a
// digest, and bring it to the log.
func (b *badDay) steal(key *signing.Signer) (entry [32]byte, index int64, err error) {
	b.T.Helper()
	secret, err := os.ReadFile(b.Stack.AppendSecretFile())
	if err != nil {
		b.T.Fatal(err)
	}
	b.tries++
	entry = sha256.Sum256(fmt.Appendf(nil, "a false certificate, number %d", b.tries))
	signature, err := key.Sign(b.T.Context(), entry)
	if err != nil {
		b.T.Fatal(err)
	}
	log := translog.NewClient(b.Stack.LogAppendURL(localstack.LogServer), b.Stack.LogReadURL(localstack.LogServer), strings.TrimSpace(string(secret)))
	index, err = log.Append(b.T.Context(), entry, signature, translog.Tag{})
	return entry, index, err
}

// foreignLeaves is the query of the page.
const foreignLeaves = `SELECT l.leaf_index FROM translog.leaves l
 WHERE NOT EXISTS (SELECT FROM public.certificates c WHERE c.leaf_index = l.leaf_index AND sha256(c.payload) = l.entry) ORDER BY 1`

// played plays a deal; its certificate may have to wait.
func (b *badDay) played() *e2e.Dealt {
	b.T.Helper()
	d := b.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	d.Play(e2e.AnnsValues, e2e.BobsValues)
	if v := d.View(); v.State != "COMPUTED" {
		b.T.Fatalf("%+v", v)
	}
	return d
}

// good has every verifier accept a certificate that this key signed.
func (b *badDay) good(d *e2e.Dealt, key string) {
	b.T.Helper()
	certificate := d.Certified(e2e.Patience)
	b.verdicts(d, certificate, true)
	if !e2e.SignedByKey(b.T, certificate, key) {
		b.T.Errorf("%s is not signed by %s", d.ID, key)
	}
}

// verdicts asks REST, MCP, the command line and the independent verifier.
func (b *badDay) verdicts(d *e2e.Dealt, certificate []byte, valid bool) (note string) {
	b.T.Helper()
	var shown struct {
		ID string `json:"cert_id"`
	}
	if err := json.Unmarshal(certificate, &shown); err != nil {
		b.T.Fatal(err)
	}
	rest := b.c.Verify(shown.ID)
	var mcp e2e.Report
	b.c.Tool("verify_certificate", e2e.Body{"cert_id": shown.ID}).Into(b.T, &mcp)
	if rest.Valid != valid || mcp != rest {
		b.T.Errorf("%s: REST says %+v, MCP %+v; want valid %v", d.ID, rest, mcp, valid)
	}
	e2e.Independently(b.T, b.c, certificate, valid)
	b.Ctl.File("certificate.json", certificate)
	b.Ctl.Run(map[bool]int{true: 0, false: 1}[valid], "verify", "certificate.json", "--base-url", b.c.Base)
	return rest.Note
}

// The current key is stolen, and later one that has retired: the steps of the
// page, in its order, and what it says that they do.
func TestStolenKeys(t *testing.T) {
	t.Parallel()
	b := &badDay{Keyholder: &e2e.Keyholder{T: t}, kms: e2e.KeyService(t)}
	oldName, oldURI, oldKey := b.newKey()
	_, newURI, newKey := b.newKey()
	_, lastURI, lastKey := b.newKey()
	b.Keyholder = e2e.NewKeyholder(t, oldURI, nil)
	b.c, b.w = e2e.NewClient(t, b.Stack.BaseURL()), e2e.Database(t, b.Stack)
	before := b.played()
	b.good(before, oldKey)
	thief, err := signing.Open(t.Context(), oldURI)
	if err != nil {
		t.Fatal(err)
	}

	t.Log("Emergency rotation")
	if _, _, err := b.steal(thief); err != nil {
		t.Fatalf("the thief's leaf under the current key: %v", err)
	}
	if foreign := b.w.Column(foreignLeaves); fmt.Sprint(foreign) != "[1]" {
		t.Errorf("leaves without a certificate: %v, want that of the thief, 1", foreign)
	}
	// A certificate is signed with the old key, and the log does not get it.
	b.Stack.Signal(localstack.LogServer, syscall.SIGSTOP)
	overtaken := b.played()
	// 1. Disable the key version. Nothing else changes: deals go on.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_DISABLED)
	b.Stack.Signal(localstack.LogServer, syscall.SIGCONT)
	waiting := b.played()
	for _, d := range []*e2e.Dealt{overtaken, waiting} {
		if a := b.c.Do("GET", d.Path("/certificate"), d.Tokens[0], nil); a.Code() != "CERT_NOT_READY" {
			t.Errorf("with the key disabled: %d %s", a.Status, a.Body)
		}
	}
	if n := b.w.Number(`SELECT count(*) FROM certificates WHERE deal_id = $1 AND signature IS NOT NULL`, overtaken.ID); n != 1 {
		t.Error("no certificate waits under the old key's signature")
	}
	// A restart would not come up: the page says so.
	if said, code := started(t, localstack.LogServer, b.Settings()); code != 1 || !strings.Contains(said, "gcloud kms keys versions enable") {
		t.Errorf("a start with the disabled key: %d %s", code, said)
	}
	// 2. The new key at once, and the old one closed at the newest head.
	b.Keys(0, "rotate", "--to", newURI, "--now")
	if set := string(b.Ctl.Read("keys.json")); !strings.Contains(set, `"pubkey":"`+oldKey+`","retired_at":`) || !strings.Contains(set, `"tree_size":2}`) || !strings.Contains(set, newKey) {
		t.Fatal(set)
	}
	// 3. Roll it out.
	back := time.Now()
	b.RollOut()
	b.w.Converged()
	t.Logf("%s after the roll-out began all that waited was issued", time.Since(back).Round(100*time.Millisecond))
	b.good(before, oldKey)
	b.good(overtaken, newKey)
	b.good(waiting, newKey)
	// 4. The check, against a head that was kept.
	if out := b.Keys(0, "check"); !strings.Contains(out, "next: nothing") {
		t.Error(out)
	}
	// What the thief signs from now on is refused; his leaf of before is found.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_ENABLED) // to him it is in reach for ever
	if _, index, err := b.steal(thief); !errors.Is(err, translog.ErrRefused) {
		t.Errorf("a leaf under the closed key: %d, %v", index, err)
	}
	if foreign := b.w.Column(foreignLeaves); fmt.Sprint(foreign) != "[1]" {
		t.Errorf("leaves without a certificate: %v", foreign)
	}

	t.Log("A retired key is stolen: closed")
	b.falseLog(thief, 2, true)  // to who keeps no head it looks like a log of the past
	b.falseLog(thief, 3, false) // and never like one of later

	t.Log("A retired key is stolen: open")
	b.Keys(0, "rotate", "--to", lastURI, "--in", e2e.Soonest.String())
	b.RollOut()
	b.Switched()
	genuine := b.played()
	b.good(genuine, lastKey)
	if thief, err = signing.Open(t.Context(), newURI); err != nil {
		t.Fatal(err)
	}
	_, stolen, err := b.steal(thief)
	if err != nil {
		t.Fatalf("the thief's leaf under the open key: %v", err)
	}
	if foreign := b.w.Column(foreignLeaves); fmt.Sprint(foreign) != fmt.Sprintf("[1 %d]", stolen) {
		t.Errorf("leaves without a certificate: %v", foreign)
	}
	size := fmt.Sprint(stolen)
	b.Close(newKey, "--tree-size", size)
	b.RollOut()
	for d, key := range map[*e2e.Dealt]string{before: oldKey, overtaken: newKey, waiting: newKey, genuine: lastKey} {
		b.good(d, key)
	}
	if _, index, err := b.steal(thief); !errors.Is(err, translog.ErrRefused) {
		t.Errorf("a leaf under the closed key: %d, %v", index, err)
	}
	if out := b.Keys(0, "check"); !strings.Contains(out, "next: nothing") {
		t.Error(out)
	}
	// One that the key signed beyond is found out by everybody.
	later := b.played()
	b.good(later, lastKey)
	forged := e2e.Decoded(t, later.Certified(0))
	forged["signature"] = b.signed(thief, later)
	(&e2e.Vault{W: b.w}).Change(t, []string{fmt.Sprintf(`UPDATE certificates SET signature = '%s' WHERE deal_id = '%s'`, forged["signature"], later.ID)})
	if note := b.verdicts(later, e2e.Encoded(t, forged), false); !strings.Contains(note, "retired when the log had "+size+" leaves") {
		t.Errorf("the note is %q", note)
	}
}

// signed is a signature of a deal's certificate by the thief.
func (b *badDay) signed(key *signing.Signer, d *e2e.Dealt) string {
	b.T.Helper()
	payload := e2e.Value[[]byte](b.w, `SELECT payload FROM certificates WHERE deal_id = $1`, d.ID)
	signature, err := key.Sign(b.T.Context(), sha256.Sum256(payload))
	if err != nil {
		b.T.Fatal(err)
	}
	return signature
}

// falseLog is a head of so many leaves that nobody logged: told reports whether it
// verifies under the key set by itself. The check against the real log exposes
// it either way.
func (b *badDay) falseLog(key *signing.Signer, size int, told bool) {
	b.T.Helper()
	root := hex.EncodeToString(e2e.TreeRoot([][]byte{{1}, {2}, {3}}[:size]))
	signature, err := key.Sign(b.T.Context(), sha256.Sum256(fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, root, size)))
	if err != nil {
		b.T.Fatal(err)
	}
	b.Ctl.File("false.json", e2e.Body{"tree_size": size, "root_hash": root, "signature": signature})
	out := b.Keys(1, "check", "--tree-head", "false.json")
	want := map[bool]string{true: "two logs are signed", false: "retired at tree size 2 and it is of size 3"}[told]
	if !strings.Contains(out, "FAIL consistency") || !strings.Contains(out, want) {
		b.T.Errorf("a false log of %d leaves: %s", size, out)
	}
}
