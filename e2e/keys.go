package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/signing"
)

// KeyService starts a simulated cloud key service for one test.
func KeyService(t testing.TB) *kmstest.GCP {
	t.Helper()
	kms, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kms.Close)
	return kms
}

// KeysOfStatus has the members of /v1/status that a client needs to verify signatures.
type KeysOfStatus struct {
	Pubkey string
	Legacy []string `json:"legacy_pubkeys"`
}

func (s KeysOfStatus) Keys() keys.List { return keys.Of(append([]string{s.Pubkey}, s.Legacy...)...) }

// KeyFile writes a new signing key to a file and returns the file's URI. label is the public key,
// in the form that /v1/status publishes.
func KeyFile(t testing.TB) (uri, label string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	signer, err := signing.Open(t.Context(), "dev://"+path) // creates the key
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + path, signer.PublicKey()
}

// OneKey returns the setting of a key set in which the key of the URI signs.
func OneKey(t testing.TB, uri string) string {
	t.Helper()
	setting, err := localstack.OneKey(filepath.Join(t.TempDir(), "keys.json"), uri)
	Must(t, err)
	return setting
}

// SignedByKey reports whether a certificate is signed with the key whose public key is label.
func SignedByKey(t testing.TB, certificate []byte, label string) bool {
	t.Helper()
	members, err := canon.ParseObject(certificate)
	if err := errors.Join(err, keys.Check(label)); err != nil {
		t.Fatal(err)
	}
	signature, _ := members["signature"].(string)
	delete(members, "signature")
	delete(members, "log_proof")
	return keys.Verify(label, canon.Encode(members), signature) == nil
}

// KeyMargin replaces the 5 minutes that signing.Margin returns in production.
const KeyMargin = 5 * time.Second

var quickRotations = "FAIRPACT_TEST_KEY_MARGIN=" + KeyMargin.String()

// Keyholder is a stack whose key set is in the file keys.json. Ctl edits the file, and the
// processes read copies of it.
type Keyholder struct {
	T     testing.TB
	Stack *localstack.Stack
	Ctl   *Ctl

	shared string // the copy of keys.json that the processes read until RollOut gives them another one
}

// NewKeyholder starts a stack that signs with the key at this URI.
func NewKeyholder(t testing.TB, uri string, change func(*localstack.Options)) *Keyholder {
	t.Helper()
	k := &Keyholder{T: t, Ctl: NewCtl(t, "")}
	k.Ctl.Env = append(k.Ctl.Env, quickRotations)
	k.Ctl.Run(0, "signing-keys", "init", "--signer", uri, "--out", "keys.json")
	k.Stack = Own(t, func(o *localstack.Options) {
		_, k.shared, _ = strings.Cut(k.Settings()[0], "=")
		o.Env[""] = append(o.Env[""], quickRotations, "FAIRPACT_KEY_SET_FILE="+k.shared)
		if change != nil {
			change(o)
		}
	})
	k.Ctl.Env = append(k.Ctl.Env, "FAIRPACT_URL="+k.Stack.BaseURL(), "DATABASE_URL="+k.Stack.DatabaseURL())
	return k
}

// Settings copies keys.json and returns the setting that names the copy.
func (k *Keyholder) Settings() []string {
	k.T.Helper()
	return []string{"FAIRPACT_KEY_SET_FILE=" + File(k.T, k.Ctl.Read("keys.json"))}
}

// Keys runs `fairpactctl signing-keys` on keys.json, requires this exit code, and returns stdout and stderr.
func (k *Keyholder) Keys(code int, args ...string) string {
	k.T.Helper()
	args = append(append([]string{"signing-keys"}, args...), "--file", "keys.json")
	if args[1] != "check" {
		args = append(args, "--out", "keys.json")
	}
	out, errs := k.Ctl.Run(code, args...)
	return out + errs
}

// Give replaces the key set of the processes that no RollOut has restarted.
func (k *Keyholder) Give(document []byte) {
	k.T.Helper()
	Must(k.T, os.WriteFile(k.shared, document, 0o600))
}

// Reload gives the current keys.json to the processes that no RollOut has restarted, and waits until
// all processes have it.
func (k *Keyholder) Reload() {
	k.T.Helper()
	k.Give(k.Ctl.Read("keys.json"))
	Eventually(k.T, "all processes have the key set", 2*DefaultTimeout, func() bool {
		code, _, _ := k.Ctl.Try("signing-keys", "check", "--file", "keys.json")
		return code == 0
	})
}

// RollOut restarts the named processes one after another with the current keys.json. Without
// names, it restarts all processes.
func (k *Keyholder) RollOut(names ...string) {
	k.T.Helper()
	if len(names) == 0 {
		names = k.Stack.Names()
	}
	for _, name := range names {
		env := k.Settings()
		if slices.Contains(k.Stack.Names(), SecondLog) && (name == SecondAPI || name == SecondWorker) {
			env = append(env, SecondLogEnv(k.Stack)...)
		}
		if err := k.Stack.Restart(k.T.Context(), name, env...); err != nil {
			k.T.Fatal(err)
		}
	}
}

// SignsFrom returns the time from which the newest key in keys.json signs.
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

// Close closes a key in keys.json. It retries while fairpactctl refuses because a process may
// still sign with the key, or because certificates that the key signed are not yet in the log.
func (k *Keyholder) Close(label string, more ...string) {
	k.T.Helper()
	Eventually(k.T, "fairpactctl closes the key", 2*DefaultTimeout, func() bool {
		code, out, errs := k.Ctl.Try(append([]string{"signing-keys", "close", label, "--file", "keys.json", "--out", "keys.json"}, more...)...)
		if said := out + errs; code != 0 && !strings.Contains(said, "cannot be closed") && !strings.Contains(said, "wait for the log") {
			k.T.Fatalf("fairpactctl signing-keys close %s: exit code %d: %s", label, code, said)
		}
		return code == 0
	})
}
