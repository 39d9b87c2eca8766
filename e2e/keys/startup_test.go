package keys

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/kms/apiv1/kmspb"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// soonest is the minimum time between the command `fairpactctl signing-keys rotate` and the signs_from of the
// new key.
const soonest = 2 * e2e.KeyMargin

// A binary exits with code 1 at startup if the signing key cannot sign or is not the published key.
// The last log line says what to correct. The binary detects the bad key even while Postgres, Redis
// and the log-server are down.
func TestStartWithABadKeyIsRefused(t *testing.T) {
	t.Parallel()
	google := e2e.KeyService(t)
	amazon, err := kmstest.StartAWS()
	e2e.Must(t, err)
	t.Cleanup(amazon.Close)
	disabled := google.NewKey()
	google.SetState(disabled, kmspb.CryptoKeyVersion_DISABLED)
	p384 := google.NewKey()
	google.SetAlgorithm(p384, kmspb.CryptoKeyVersion_EC_SIGN_P384_SHA384)
	amazon.Deny("Sign", true)
	denied := amazon.NewKey()
	_, published := e2e.KeyFile(t)
	other := "FAIRPACT_KEY_SET_FILE=" + e2e.File(t, e2e.Body{"keys": []e2e.Body{{"pubkey": published, "uri": google.URI(google.NewKey()), "signs_from": 0}}})
	set := func(uri string) string { return e2e.OneKey(t, uri) }
	for _, c := range []struct {
		binary, set string
		env         []string
		want        []string
	}{
		{localstack.DealAPI, set(google.URI(disabled)), nil, []string{disabled, "the key version is not enabled: run `gcloud kms keys versions enable`"}},
		{localstack.DeadlineWorker, set(amazon.URI(denied)), amazon.Env(), []string{denied, "access denied: allow kms:Sign on this key to the role of this process"}},
		{localstack.LogServer, other, nil, []string{"holds another key", published, `correct "uri" or "pubkey" in the key set`}},
		{localstack.LogServer, set(google.URI(p384)), nil, []string{"EC_SIGN_P384_SHA384", "--default-algorithm=ec-sign-p256-sha256"}},
	} {
		t.Run(c.binary+" "+c.want[0], func(t *testing.T) {
			t.Parallel()
			said, code := started(t, c.binary, append(c.env, c.set))
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			var last struct{ Level, Err, Error string }
			lines := strings.Split(strings.TrimSpace(said), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Level != "ERROR" {
				t.Fatalf("the last line is not an error in JSON (%v):\n%s", err, said)
			}
			for _, part := range append(c.want, "FAIRPACT_KEY_SET_FILE") {
				if !strings.Contains(last.Err+last.Error, part) {
					t.Errorf("the error %q does not contain %q", last.Err+last.Error, part)
				}
			}
		})
	}
}

// started runs a binary until it exits. The settings that env does not replace are valid, but no
// server listens at their URLs.
func started(t *testing.T, binary string, env []string) (said string, code int) {
	t.Helper()
	secrets := t.TempDir()
	for name, text := range map[string]string{"server": strings.Repeat("ab", 32), "append": strings.Repeat("x", 32)} {
		e2e.Must(t, os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.DefaultTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(e2e.Bin, binary))
	const nowhere = "127.0.0.1:1"
	cmd.Env = append([]string{
		"DATABASE_URL=postgres://" + nowhere + "/none", "REDIS_URL=redis://" + nowhere, "GORACE=atexit_sleep_ms=0",
		"FAIRPACT_LOG_READ_URL=http://" + nowhere, "FAIRPACT_LOG_APPEND_URL=http://" + nowhere,
		"FAIRPACT_SERVER_SECRET_FILE=" + secrets + "/server", "FAIRPACT_APPEND_SECRET_FILE=" + secrets + "/append",
		"FAIRPACT_LISTEN=127.0.0.1:0", "FAIRPACT_ADMIN_LISTEN=127.0.0.1:0", "FAIRPACT_READ_LISTEN=127.0.0.1:0", "FAIRPACT_APPEND_LISTEN=127.0.0.1:0",
	}, env...)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited && err != nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
