//go:build long

// Package failover tests the service during a failover of its database to a streaming
// standby, and after a restore from a backup.
package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localservers"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

func pair(t *testing.T) (primary, standby *localservers.Postgres) {
	t.Helper()
	primary, err := localservers.StartPostgres(t.Context(), localservers.Options{})
	e2e.Must(t, err)
	t.Cleanup(func() { e2e.Must(t, primary.Close()) })
	_, err = primary.EnsureDatabase(t.Context(), "fairpact")
	e2e.Must(t, err)
	standby, err = primary.StartStandby(t.Context(), localservers.Options{})
	e2e.Must(t, err)
	t.Cleanup(func() { e2e.Must(t, standby.Close()) })
	return primary, standby
}

func guarded(t *testing.T) []string {
	return []string{"FAIRPACT_FORK_GUARD=file://" + t.TempDir() + "/guard.json"}
}

// heads records, for each tree size, the root that clients have read.
type heads struct {
	mu   sync.Mutex
	seen map[int64]string
}

// watch reads tree heads in the background until ctx ends. Two different roots of one size are a
// fork and fail the test. The returned function waits until all clients have stopped reading.
func (h *heads) watch(ctx context.Context, t *testing.T, clients ...*e2e.Client) (wait func()) {
	h.seen = map[int64]string{}
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if a, err := c.Try(ctx, "GET", "/v1/log/tree-head", "", nil); err == nil && a.Status == 200 {
					h.note(t, a.Body)
				}
				e2e.Pause(ctx, 20*time.Millisecond)
			}
		})
	}
	return all.Wait
}

func (h *heads) note(t *testing.T, text []byte) {
	var head struct {
		Size int64  `json:"tree_size"`
		Root string `json:"root_hash"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		t.Errorf("decode the tree head %s: %v", text, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if root, known := h.seen[head.Size]; known && root != head.Root {
		t.Errorf("clients read two heads of size %d, with the roots %s and %s", head.Size, root, head.Root)
	}
	h.seen[head.Size] = head.Root
}

func (h *heads) stand(w e2e.DB) {
	w.T.Helper()
	for size, root := range h.seen {
		if n := w.Number("SELECT count(*) FROM translog.tree_heads WHERE tree_size = $1 AND encode(root, 'hex') = $2", size, root); n != 1 {
			w.T.Errorf("the log has no head of size %d and root %s, which a client has read", size, root)
		}
	}
}

func answers(ctx context.Context, client *e2e.Client) error {
	for ctx.Err() == nil {
		if a, err := client.Try(ctx, "POST", "/v1/keys", "", nil); err == nil && a.Status < 300 {
			return nil
		}
		e2e.Pause(ctx, 5*time.Millisecond)
	}
	return fmt.Errorf("deal-api at %s has accepted no write: %w", client.Base, ctx.Err())
}
