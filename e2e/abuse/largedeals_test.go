package abuse

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

const (
	workerLimit    = "270MiB"  // GOMEMLIMIT: 90 % of 300 MB
	mostOfWorker   = 300 << 20 // bytes
	drawDelay      = time.Minute
	partiesOfDraws = 5000 // of 3,900 bytes each
)

// draws completes ten large random.v1 deals at the same moment, and leaves the draws to the worker. The
// worker must not be killed, and must stay below mostOfWorker.
func draws(stack *localstack.Stack) func(*testing.T) {
	return func(t *testing.T) {
		c := e2e.NewClient(t, stack.BaseURL())
		e2e.Must(t, stack.Restart(t.Context(), localstack.DeadlineWorker, "GOMEMLIMIT="+workerLimit))
		round := stack.Chain().RoundAt(time.Now().Unix() - 60)
		sealed := e2e.Seal(t, e2e.Body{"nonce": "aa", "x": strings.Repeat("x", 3900)})
		var all []*e2e.CreatedDeal
		for range 10 {
			d := c.Create(e2e.RandomBody(partiesOfDraws, round, hour, 2*hour))
			many(t, c, partiesOfDraws, func(i int) (string, string, string, any) {
				return "POST", d.Path("/commit"), d.Tokens[i], sealed.Act("commit")
			})
			many(t, c, partiesOfDraws-1, func(i int) (string, string, string, any) {
				return "POST", d.Path("/reveal"), d.Tokens[i], sealed.Act("reveal")
			})
			all = append(all, d)
		}
		many(t, c, len(all), func(i int) (string, string, string, any) {
			return "POST", all[i].Path("/reveal"), all[i].Tokens[partiesOfDraws-1], sealed.Act("reveal")
		})
		began := time.Now()
		for _, d := range all {
			// A read of the certificate does not draw, unlike a call of /entropy.
			d.Certified(drawDelay + 2*time.Minute)
		}
		select {
		case <-stack.Ended(localstack.DeadlineWorker):
			t.Error("deadline-worker was killed")
			return
		default:
		}
		held := peakOf(t, stack, localstack.DeadlineWorker)
		t.Logf("ROW | 2c ten draws of %d x 3,900 B | %d MB (worker) | %.1f s after the draws were due |", partiesOfDraws, held>>20, (time.Since(began) - drawDelay).Seconds())
		if held > mostOfWorker {
			t.Errorf("deadline-worker used %d MB, want at most %d", held>>20, mostOfWorker>>20)
		}
	}
}

// replaysWithKeys verifies a certificate with thousands of seat signatures again and again.
func replaysWithKeys(t *testing.T, stack *localstack.Stack) func(context.Context, *crowd) {
	const missing = 20 // so that the deal becomes VOID at its commit deadline
	c := e2e.NewClient(t, stack.BaseURL())
	d := c.Create(largeBody(stack, time.Minute))
	var declared struct {
		Origin string
		Digest string `json:"declaration_sha256"`
	}
	c.Want(200, "GET", d.Path("/declaration"), d.Tokens[0], nil).Into(t, &declared)
	public, private, err := ed25519.GenerateKey(nil)
	e2e.Must(t, err)
	sealed := e2e.Seal(t, e2e.Body{"nonce": "aa"})
	many(t, c, len(d.Tokens)-missing, func(i int) (string, string, string, any) {
		seat := certificate.Seat{DealID: d.ID, Party: i, Commitment: sealed.Commitment, Declaration: declared.Digest}
		body := sealed.Act("commit")
		body["party_key"] = "ed25519:" + hex.EncodeToString(public)
		body["party_signature"] = "ed25519:" + hex.EncodeToString(ed25519.Sign(private, seat.Message(declared.Origin)))
		return "POST", d.Path("/commit"), d.Tokens[i], body
	})
	body := `{"certificate":` + string(d.Certified(3*time.Minute)) + `}`
	return flood(8, func(int) (string, string, string, any) { return "POST", "/v1/verify", "", body })
}
