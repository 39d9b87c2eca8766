package ops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
)

// The server secret is changed in the middle of a deal, as a roll-out would.
func TestChangedServerSecret(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	ann, bob := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	d.Commit(0, ann)
	d.Commit(1, bob)
	d.Reveal(0, ann)

	other := filepath.Join(t.TempDir(), "server-secret")
	if err := os.WriteFile(other, []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
		if err := stack.Restart(t.Context(), name, "FAIRPACT_SERVER_SECRET_FILE="+other); err == nil {
			t.Fatalf("%s serves under another server secret", name)
		}
		if said, err := os.ReadFile(stack.Log(name)); err != nil || !strings.Contains(string(said), "put the former one back") {
			t.Errorf("%s does not say what to do: %v", name, err)
		}
	}
	if _, err := stack.Fairpactctl(t.Context(), "secret", "adopt", "--secret-file", other, "--database-url", stack.DatabaseURL()); err == nil || !strings.Contains(err.Error(), "1 of the deals and 0 of the pending certificates need the former secret") {
		t.Errorf("adopt in the middle of a deal: %v", err)
	}

	for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
		if err := stack.Start(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	c = e2e.NewClient(t, stack.BaseURL())
	d.C = c
	d.Reveal(1, bob)
	d.Certified(e2e.Patience)

	for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
		if err := stack.Stop(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stack.Fairpactctl(t.Context(), "secret", "adopt", "--secret-file", other, "--database-url", stack.DatabaseURL()); err != nil {
		t.Fatal(err)
	}
	if err := stack.Start(t.Context(), localstack.DealAPI, "FAIRPACT_SERVER_SECRET_FILE="+other); err != nil {
		t.Fatal(err)
	}
	again := e2e.NewClient(t, stack.BaseURL()).Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	again.Play(e2e.AnnsValues, e2e.BobsValues)
	again.Certified(e2e.Patience)
}
