package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// KeyService is a cloud's key service for one test.
func KeyService(t testing.TB) *kmstest.GCP {
	t.Helper()
	kms, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kms.Close)
	return kms
}

// SignedDeal is a deal that was played while the key service was away.
type SignedDeal struct {
	Deal   *Dealt
	Inputs []Sealed
}

const (
	// IssueBound is what a reveal waits for its certificate (internal/escrow).
	IssueBound = 3 * time.Second
)

// PlayedWithoutKey plays a deal whose certificate has to wait, and gives what
// its last reveal took.
func PlayedWithoutKey(c *Client) (SignedDeal, time.Duration) {
	d, took := PlayedAndTimed(c)
	if a := c.Do("GET", d.Deal.Path("/certificate"), d.Deal.Tokens[0], nil); a.Status != 409 || a.Code() != "CERT_NOT_READY" {
		c.T.Errorf("the certificate while the key service is away: %d %s", a.Status, a.Body)
	}
	return d, took
}

// PlayedAndTimed plays a deal and gives what its last reveal took.
func PlayedAndTimed(c *Client) (SignedDeal, time.Duration) {
	d := c.Create(SplitBody(time.Hour, 2*time.Hour))
	inputs := []Sealed{Seal(c.T, AnnsValues), Seal(c.T, BobsValues)}
	for i, in := range inputs {
		d.Commit(i, in)
	}
	d.Reveal(0, inputs[0])
	began := time.Now()
	a := d.Reveal(1, inputs[1])
	took := time.Since(began)
	var told struct{ State string }
	if a.Into(c.T, &told); told.State != "COMPUTED" {
		c.T.Errorf("the last reveal: %s", a.Body)
	}
	return SignedDeal{d, inputs}, took
}

func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Millisecond)
}

// KeysOfStatus are the members of /v1/status that a client verifies with.
type KeysOfStatus struct {
	Pubkey string
	Legacy []string `json:"legacy_pubkeys"`
}

func (s KeysOfStatus) Keys() (*signing.KeySet, error) { return signing.NewKeySet(s.Pubkey, s.Legacy) }

// KeyFile makes a signing key and gives its URI and its published label.
func KeyFile(t testing.TB) (uri, label string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := signing.Open(t.Context(), "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + path, signer.PublicKey()
}

// SignedByKey reports whether a certificate is signed by the labelled key.
func SignedByKey(t testing.TB, certificate []byte, label string) bool {
	t.Helper()
	tree, err := canon.ParseObject(certificate)
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := tree["signature"].(string)
	delete(tree, "signature")
	delete(tree, "log_proof")
	key, err := signing.NewVerifyingKey(label)
	if err != nil {
		t.Fatal(err)
	}
	return key.Verify(canon.Encode(tree), signature) == nil
}

const (
	KeyMargin = 5 * time.Second
	// Soonest is the shortest time in which a rotation may begin to sign.
	Soonest = 2 * KeyMargin
)

// quickRotations lets a test rotate within seconds, in the processes and in
// fairpactctl.
var quickRotations = "FAIRPACT_TEST_KEY_MARGIN=" + KeyMargin.String()

// Keyholder is a stack whose keys are the operator's keys.json.
type Keyholder struct {
	T     testing.TB
	Stack *localstack.Stack
	Ctl   *Ctl
}

// NewKeyholder starts a stack that signs with the key at a URI.
func NewKeyholder(t testing.TB, uri string, change func(*localstack.Options)) *Keyholder {
	t.Helper()
	k := &Keyholder{T: t, Ctl: NewCtl(t, "")}
	k.Ctl.Env = append(k.Ctl.Env, quickRotations)
	k.Ctl.Run(0, "keys", "init", "--signer", uri, "--out", "keys.json")
	k.Stack = Own(t, func(o *localstack.Options) {
		o.Env[""] = append(append(o.Env[""], quickRotations), k.Settings()...)
		if change != nil {
			change(o)
		}
	})
	k.Ctl.Env = append(k.Ctl.Env, "FAIRPACT_URL="+k.Stack.BaseURL(), "DATABASE_URL="+k.Stack.DatabaseURL())
	return k
}

// Settings name the key set as the file is now.
func (k *Keyholder) Settings() []string {
	k.T.Helper()
	return []string{"FAIRPACT_KEY_SET_FILE=" + File(k.T, k.Ctl.Read("keys.json"))}
}

// Keys runs fairpactctl keys with the operator's file.
func (k *Keyholder) Keys(code int, args ...string) string {
	k.T.Helper()
	args = append(append([]string{"keys"}, args...), "--file", "keys.json")
	if args[1] != "check" && args[1] != "show" {
		args = append(args, "--out", "keys.json")
	}
	out, errs := k.Ctl.Run(code, args...)
	return out + errs
}

// RollOut gives processes, all where none is named, the file as it is now, one
// after the other.
func (k *Keyholder) RollOut(names ...string) {
	k.T.Helper()
	if len(names) == 0 {
		names = k.Stack.Names()
	}
	for _, name := range names {
		env := k.Settings()
		if slices.Contains(k.Stack.Names(), SecondLog) && (name == SecondAPI || name == SecondWorker) {
			env = append(env, SecondLogOf(k.Stack)...)
		}
		if err := k.Stack.Restart(k.T.Context(), name, env...); err != nil {
			k.T.Fatal(err)
		}
	}
}

// SignsFrom is when the newest key of the file begins to sign.
func (k *Keyholder) SignsFrom() (from time.Time) {
	k.T.Helper()
	var set struct {
		Keys []struct {
			SignsFrom int64 `json:"signs_from"`
		}
	}
	if err := json.Unmarshal(k.Ctl.Read("keys.json"), &set); err != nil {
		k.T.Fatal(err)
	}
	for _, key := range set.Keys {
		if at := time.Unix(key.SignsFrom, 0); at.After(from) {
			from = at
		}
	}
	return from
}

// Switched waits until the newest key signs.
func (k *Keyholder) Switched() { time.Sleep(time.Until(k.SignsFrom())) }

// Close closes a key; it is refused until no clock signs with it and nothing of it
// is pending.
func (k *Keyholder) Close(label string, more ...string) {
	k.T.Helper()
	Eventually(k.T, "the key may be closed", 2*Patience, func() bool {
		args := append([]string{"keys", "close", label, "--file", "keys.json", "--out", "keys.json"}, more...)
		cmd := exec.CommandContext(k.T.Context(), filepath.Join(Bin, "fairpactctl"), args...)
		cmd.Dir, cmd.Env = k.Ctl.Dir, k.Ctl.Env
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "only a key that signs nowhere any more") && !strings.Contains(string(out), "wait for the log") {
			k.T.Fatalf("%v: %s", err, out)
		}
		return err == nil
	})
}
