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
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
	"github.com/fairpact/fairpact/internal/translog"
)

// badDay is a deployment that follows the page on signing keys
// (charts/fairpact/runbooks/keys.md) on the days that are not planned.
type badDay struct {
	t     *testing.T
	kms   *kmstest.GCP
	stack *localstack.Stack
	c     *e2e.Client
	w     e2e.Witness
	ctl   *e2e.Ctl // its keys.json is the operator's
	uri   string
	tries int
}

// keys runs fairpactctl keys with the operator's file.
func (b *badDay) keys(code int, args ...string) string {
	b.t.Helper()
	args = append(append([]string{"keys"}, args...), "--file", "keys.json")
	if args[1] != "check" && args[1] != "show" {
		args = append(args, "--out", "keys.json")
	}
	out, errs := b.ctl.Run(code, args...)
	return out + errs
}

// settings are what every process is given: the URI, and the key set as the file
// is now.
func (b *badDay) settings() []string {
	b.t.Helper()
	return []string{"FAIRPACT_SIGNING_KEY=" + b.uri, "FAIRPACT_KEY_SET_FILE=" + e2e.File(b.t, b.ctl.Read("keys.json"))}
}

// rollOut restarts one process after the other.
func (b *badDay) rollOut() {
	b.t.Helper()
	env := b.settings()
	for _, name := range b.stack.Names() {
		if err := b.stack.Restart(b.t.Context(), name, env...); err != nil {
			b.t.Fatal(err)
		}
	}
}

// replaceAll stops all processes and then starts them.
func (b *badDay) replaceAll() time.Duration {
	b.t.Helper()
	env, began := b.settings(), time.Now()
	for _, name := range b.stack.Names() {
		if err := b.stack.Stop(name); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, name := range b.stack.Names() {
		if err := b.stack.Start(b.t.Context(), name, env...); err != nil {
			b.t.Fatal(err)
		}
	}
	return time.Since(began)
}

// newKey makes a version and gives its URI and label.
func (b *badDay) newKey() (name, uri, label string) {
	b.t.Helper()
	name = b.kms.NewKey()
	signer, err := signing.Open(b.t.Context(), b.kms.URI(name))
	if err != nil {
		b.t.Fatal(err)
	}
	defer signer.Close()
	return name, b.kms.URI(name), signer.PublicKey()
}

// steal is what a thief of the key and of the append secret can do: sign a
// digest, and bring it to the log.
func (b *badDay) steal(key *signing.Signer) (entry [32]byte, index int64, err error) {
	b.t.Helper()
	secret, err := os.ReadFile(b.stack.AppendSecretFile())
	if err != nil {
		b.t.Fatal(err)
	}
	b.tries++
	entry = sha256.Sum256(fmt.Appendf(nil, "a false certificate, number %d", b.tries))
	signature, err := key.Sign(b.t.Context(), entry)
	if err != nil {
		b.t.Fatal(err)
	}
	log := translog.NewClient(b.stack.LogAppendURL(localstack.LogServer), b.stack.LogReadURL(localstack.LogServer), strings.TrimSpace(string(secret)))
	index, err = log.Append(b.t.Context(), entry, signature)
	return entry, index, err
}

// foreignLeaves is the query of the page.
const foreignLeaves = `SELECT l.leaf_index FROM translog.leaves l
 WHERE NOT EXISTS (SELECT FROM public.certificates c WHERE c.leaf_index = l.leaf_index AND sha256(c.payload) = l.entry) ORDER BY 1`

// played plays a deal; its certificate may have to wait.
func (b *badDay) played() *e2e.Dealt {
	b.t.Helper()
	d := b.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	d.Play(e2e.AnnsValues, e2e.BobsValues)
	if v := d.View(); v.State != "COMPUTED" {
		b.t.Fatalf("%+v", v)
	}
	return d
}

// good has every verifier accept a certificate that this key signed.
func (b *badDay) good(d *e2e.Dealt, key string) {
	b.t.Helper()
	certificate := d.Certified(e2e.Patience)
	b.verdicts(d, certificate, true)
	tree, err := canon.ParseObject(certificate)
	if err != nil {
		b.t.Fatal(err)
	}
	signature, _ := tree["signature"].(string)
	delete(tree, "signature")
	delete(tree, "log_proof")
	by, err := signing.NewVerifyingKey(key)
	if err == nil {
		err = by.Verify(canon.Encode(tree), signature)
	}
	if err != nil {
		b.t.Errorf("%s is not signed by %s: %v", d.ID, key, err)
	}
}

// verdicts asks REST, MCP, the command line and the independent verifier.
func (b *badDay) verdicts(d *e2e.Dealt, certificate []byte, valid bool) (note string) {
	b.t.Helper()
	var shown struct {
		ID string `json:"cert_id"`
	}
	if err := json.Unmarshal(certificate, &shown); err != nil {
		b.t.Fatal(err)
	}
	rest := b.c.Verify(shown.ID)
	var mcp e2e.Report
	b.c.Tool("verify_certificate", e2e.Body{"cert_id": shown.ID}).Into(b.t, &mcp)
	if rest.Valid != valid || mcp != rest {
		b.t.Errorf("%s: REST says %+v, MCP %+v; want valid %v", d.ID, rest, mcp, valid)
	}
	e2e.Independently(b.t, b.c, certificate, valid)
	b.ctl.File("certificate.json", certificate)
	b.ctl.Run(map[bool]int{true: 0, false: 1}[valid], "verify", "certificate.json", "--base-url", b.c.Base)
	return rest.Note
}

// The current key is stolen, and later one that has retired: the steps of the
// page, in its order, and what it says that they do.
func TestStolenKeys(t *testing.T) {
	t.Parallel()
	b := &badDay{t: t, kms: e2e.KeyService(t)}
	oldName, oldURI, oldKey := b.newKey()
	_, newURI, newKey := b.newKey()
	_, lastURI, lastKey := b.newKey()
	b.uri, b.ctl = oldURI, e2e.NewCtl(t, "")
	b.ctl.Run(0, "keys", "init", "--signer", oldURI, "--out", "keys.json")
	b.stack = e2e.Own(t, func(o *localstack.Options) { o.Env[""] = append(o.Env[""], b.settings()...) })
	b.ctl.Env = append(b.ctl.Env, "FAIRPACT_URL="+b.stack.BaseURL())
	b.c, b.w = e2e.NewClient(t, b.stack.BaseURL()), e2e.Database(t, b.stack)
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
	b.stack.Signal(localstack.LogServer, syscall.SIGSTOP)
	overtaken := b.played()
	// 1. Disable the key version. Nothing else changes: deals go on.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_DISABLED)
	b.stack.Signal(localstack.LogServer, syscall.SIGCONT)
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
	if said, code := started(t, localstack.LogServer, b.settings()); code != 1 || !strings.Contains(said, "gcloud kms keys versions enable") {
		t.Errorf("a start with the disabled key: %d %s", code, said)
	}
	// 2. Next, current and closed in the one file.
	b.keys(0, "add-next", "--signer", newURI)
	b.keys(0, "promote")
	b.keys(0, "close", oldKey)
	var set struct {
		Keys []struct {
			Pubkey   string
			TreeSize *int64 `json:"tree_size"`
		}
	}
	if err := json.Unmarshal(b.ctl.Read("keys.json"), &set); err != nil || set.Keys[0].Pubkey != newKey || set.Keys[1].TreeSize == nil || *set.Keys[1].TreeSize != 2 {
		t.Fatalf("%v: %s", err, b.ctl.Read("keys.json"))
	}
	// 3. Stop all, start all.
	b.uri = newURI
	away := b.replaceAll()
	back := time.Now()
	b.w.Converged()
	t.Logf("all processes were replaced in %s; what waited was issued %s later", away.Round(100*time.Millisecond), time.Since(back).Round(100*time.Millisecond))
	b.good(before, oldKey)
	b.good(overtaken, newKey)
	b.good(waiting, newKey)
	// 4. The check, against a head that was kept.
	if out := b.keys(0, "check", "--signer", newURI); !strings.Contains(out, "next: nothing") {
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
	b.keys(0, "add-next", "--signer", lastURI)
	b.rollOut()
	b.keys(0, "promote")
	b.uri = lastURI
	b.rollOut()
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
	if said := b.keys(1, "close", newKey, "--tree-size", size); !strings.Contains(said, "--disown") {
		t.Error(said)
	}
	b.keys(0, "close", newKey, "--tree-size", size, "--disown")
	b.rollOut()
	for d, key := range map[*e2e.Dealt]string{before: oldKey, overtaken: newKey, waiting: newKey, genuine: lastKey} {
		b.good(d, key)
	}
	if _, index, err := b.steal(thief); !errors.Is(err, translog.ErrRefused) {
		t.Errorf("a leaf under the closed key: %d, %v", index, err)
	}
	if out := b.keys(0, "check"); !strings.Contains(out, "next: nothing") {
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
	b.t.Helper()
	payload := e2e.Value[[]byte](b.w, `SELECT payload FROM certificates WHERE deal_id = $1`, d.ID)
	signature, err := key.Sign(b.t.Context(), sha256.Sum256(payload))
	if err != nil {
		b.t.Fatal(err)
	}
	return signature
}

// falseLog is a head of so many leaves that nobody logged: told tells whether it
// verifies under the key set by itself. The check against the real log exposes
// it either way.
func (b *badDay) falseLog(key *signing.Signer, size int, told bool) {
	b.t.Helper()
	root := hex.EncodeToString(e2e.TreeRoot([][]byte{{1}, {2}, {3}}[:size]))
	signature, err := key.Sign(b.t.Context(), sha256.Sum256(fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, root, size)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.ctl.File("false.json", e2e.Body{"tree_size": size, "root_hash": root, "signature": signature})
	out := b.keys(1, "check", "--tree-head", "false.json")
	want := map[bool]string{true: "two logs are signed", false: "retired at tree size 2 and it is of size 3"}[told]
	if !strings.Contains(out, "FAIL consistency") || !strings.Contains(out, want) {
		b.t.Errorf("a false log of %d leaves: %s", size, out)
	}
}
