package e2e

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

	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
	"github.com/fairpact/fairpact/internal/translog"
)

// badDay is a deployment that follows the page on signing keys
// (charts/fairpact/runbooks/keys.md) on the days that are not planned.
type badDay struct {
	*keyholder
	kms   *kmstest.GCP
	c     *client
	w     witness
	tries int
}

// newKey makes a version and gives its URI and label.
func (b *badDay) newKey() (name, uri, label string) {
	b.t.Helper()
	name = b.kms.NewKey()
	label, err := signing.PublicKeyOf(b.t.Context(), b.kms.URI(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return name, b.kms.URI(name), label
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
func (b *badDay) played() *dealt {
	b.t.Helper()
	d := b.c.create(splitBody(time.Hour, 2*time.Hour))
	d.play(annsValues, bobsValues)
	if v := d.view(); v.State != "COMPUTED" {
		b.t.Fatalf("%+v", v)
	}
	return d
}

// good has every verifier accept a certificate that this key signed.
func (b *badDay) good(d *dealt, key string) {
	b.t.Helper()
	certificate := d.certified(patience)
	b.verdicts(d, certificate, true)
	if !signedByKey(b.t, certificate, key) {
		b.t.Errorf("%s is not signed by %s", d.ID, key)
	}
}

// verdicts asks REST, MCP, the command line and the independent verifier.
func (b *badDay) verdicts(d *dealt, certificate []byte, valid bool) (note string) {
	b.t.Helper()
	var shown struct {
		ID string `json:"cert_id"`
	}
	if err := json.Unmarshal(certificate, &shown); err != nil {
		b.t.Fatal(err)
	}
	rest := b.c.verify(shown.ID)
	var mcp report
	b.c.tool("verify_certificate", body{"cert_id": shown.ID}).into(b.t, &mcp)
	if rest.Valid != valid || mcp != rest {
		b.t.Errorf("%s: REST says %+v, MCP %+v; want valid %v", d.ID, rest, mcp, valid)
	}
	independently(b.t, b.c, certificate, valid)
	b.ctl.file("certificate.json", certificate)
	b.ctl.run(map[bool]int{true: 0, false: 1}[valid], "verify", "certificate.json", "--base-url", b.c.base)
	return rest.Note
}

// The current key is stolen, and later one that has retired: the steps of the
// page, in its order, and what it says that they do.
func TestStolenKeys(t *testing.T) {
	t.Parallel()
	b := &badDay{keyholder: &keyholder{t: t}, kms: keyService(t)}
	oldName, oldURI, oldKey := b.newKey()
	_, newURI, newKey := b.newKey()
	_, lastURI, lastKey := b.newKey()
	b.keyholder = newKeyholder(t, oldURI, nil)
	b.c, b.w = newClient(t, b.stack.BaseURL()), database(t, b.stack)
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
	if foreign := b.w.column(foreignLeaves); fmt.Sprint(foreign) != "[1]" {
		t.Errorf("leaves without a certificate: %v, want that of the thief, 1", foreign)
	}
	// A certificate is signed with the old key, and the log does not get it.
	b.stack.Signal(localstack.LogServer, syscall.SIGSTOP)
	overtaken := b.played()
	// 1. Disable the key version. Nothing else changes: deals go on.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_DISABLED)
	b.stack.Signal(localstack.LogServer, syscall.SIGCONT)
	waiting := b.played()
	for _, d := range []*dealt{overtaken, waiting} {
		if a := b.c.do("GET", d.path("/certificate"), d.Tokens[0], nil); a.code() != "CERT_NOT_READY" {
			t.Errorf("with the key disabled: %d %s", a.status, a.body)
		}
	}
	if n := b.w.number(`SELECT count(*) FROM certificates WHERE deal_id = $1 AND signature IS NOT NULL`, overtaken.ID); n != 1 {
		t.Error("no certificate waits under the old key's signature")
	}
	// A restart would not come up: the page says so.
	if said, code := started(t, localstack.LogServer, b.settings()); code != 1 || !strings.Contains(said, "gcloud kms keys versions enable") {
		t.Errorf("a start with the disabled key: %d %s", code, said)
	}
	// 2. The new key at once, and the old one closed at the newest head.
	b.keys(0, "rotate", "--to", newURI, "--now")
	if set := string(b.ctl.read("keys.json")); !strings.Contains(set, `"pubkey":"`+oldKey+`","retired_at":`) || !strings.Contains(set, `"tree_size":2}`) || !strings.Contains(set, newKey) {
		t.Fatal(set)
	}
	// 3. Roll it out.
	back := time.Now()
	b.rollOut()
	b.w.converged()
	t.Logf("%s after the roll-out began all that waited was issued", time.Since(back).Round(100*time.Millisecond))
	b.good(before, oldKey)
	b.good(overtaken, newKey)
	b.good(waiting, newKey)
	// 4. The check, against a head that was kept.
	if out := b.keys(0, "check"); !strings.Contains(out, "next: nothing") {
		t.Error(out)
	}
	// What the thief signs from now on is refused; his leaf of before is found.
	b.kms.SetState(oldName, kmspb.CryptoKeyVersion_ENABLED) // to him it is in reach for ever
	if _, index, err := b.steal(thief); !errors.Is(err, translog.ErrRefused) {
		t.Errorf("a leaf under the closed key: %d, %v", index, err)
	}
	if foreign := b.w.column(foreignLeaves); fmt.Sprint(foreign) != "[1]" {
		t.Errorf("leaves without a certificate: %v", foreign)
	}

	t.Log("A retired key is stolen: closed")
	b.falseLog(thief, 2, true)  // to who keeps no head it looks like a log of the past
	b.falseLog(thief, 3, false) // and never like one of later

	t.Log("A retired key is stolen: open")
	b.keys(0, "rotate", "--to", lastURI, "--in", "20s")
	b.rollOut()
	b.switched()
	genuine := b.played()
	b.good(genuine, lastKey)
	if thief, err = signing.Open(t.Context(), newURI); err != nil {
		t.Fatal(err)
	}
	_, stolen, err := b.steal(thief)
	if err != nil {
		t.Fatalf("the thief's leaf under the open key: %v", err)
	}
	if foreign := b.w.column(foreignLeaves); fmt.Sprint(foreign) != fmt.Sprintf("[1 %d]", stolen) {
		t.Errorf("leaves without a certificate: %v", foreign)
	}
	size := fmt.Sprint(stolen)
	b.close(newKey, "--tree-size", size)
	b.rollOut()
	for d, key := range map[*dealt]string{before: oldKey, overtaken: newKey, waiting: newKey, genuine: lastKey} {
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
	forged := decoded(t, later.certified(0))
	forged["signature"] = b.signed(thief, later)
	(&vault{b.w}).change(t, []string{fmt.Sprintf(`UPDATE certificates SET signature = '%s' WHERE deal_id = '%s'`, forged["signature"], later.ID)})
	if note := b.verdicts(later, encoded(t, forged), false); !strings.Contains(note, "retired when the log had "+size+" leaves") {
		t.Errorf("the note is %q", note)
	}
}

// signed is a signature of a deal's certificate by the thief.
func (b *badDay) signed(key *signing.Signer, d *dealt) string {
	b.t.Helper()
	payload := value[[]byte](b.w, `SELECT payload FROM certificates WHERE deal_id = $1`, d.ID)
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
	root := hex.EncodeToString(treeRoot([][]byte{{1}, {2}, {3}}[:size]))
	signature, err := key.Sign(b.t.Context(), sha256.Sum256(fmt.Appendf(nil, `{"root_hash":%q,"tree_size":%d}`, root, size)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.ctl.file("false.json", body{"tree_size": size, "root_hash": root, "signature": signature})
	out := b.keys(1, "check", "--tree-head", "false.json")
	want := map[bool]string{true: "two logs are signed", false: "retired at tree size 2 and it is of size 3"}[told]
	if !strings.Contains(out, "FAIL consistency") || !strings.Contains(out, want) {
		b.t.Errorf("a false log of %d leaves: %s", size, out)
	}
}
