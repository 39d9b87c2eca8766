// Package trust tests what the parties can verify without trusting the service. It also tests
// what the service refuses after somebody has changed its database.
package trust

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// tampering is a change that needs write access to the database.
type tampering struct {
	what                       string
	change                     []string
	signature, root, inclusion bool // whether each check passes after the change
}

// verifiedOnce lists the tamperings of rows that a log-server has already verified and cached.
// Until the log-server reads the rows again, it uses the cached rows and the certificate stays valid.
var verifiedOnce = []string{"a leaf in its path", "a node at level 8"}

// The tested certificate is leaf 0. Leaf 1 and the last leaf are other certificates. The leaves
// in between are digests without a certificate. The root of leaves 0 to 255 is in a node row.
// internal/escrow and internal/translog test more changes.
var tamperings = []tampering{
	{"a label", payload(`replace(%s, '"label":"ann"', '"label":"eve"')`), false, true, false},
	{"a space in the payload", payload(`'{ ' || substr(%s, 2)`), false, true, false},
	{"the form of input_root", payload(`replace(%s, '"input_root":"sha256:', '"input_root":"SHA256:')`), false, false, false},
	{"input_root taken away", payload(`regexp_replace(%s, '"input_root":"[^"]*"', '"input_root":null')`), false, false, false},
	{"the other certificate's row", []string{
		`UPDATE certificates SET leaf_index = -1 WHERE leaf_index = 1`,
		`UPDATE certificates SET leaf_index = 1, payload = (SELECT payload FROM certificates WHERE leaf_index = -1),
			signature = (SELECT signature FROM certificates WHERE leaf_index = -1) WHERE leaf_index = 0`}, false, false, true},

	{"a digit of r", signature(`overlay(signature placing translate(substr(signature, 10, 1), '0123456789abcdef', '123456789abcdef0') from 10)`), false, true, true},
	{"upper-case hex", signature(`'es256:' || upper(substr(signature, 7))`), false, true, true},
	{"a tree head's signature on the certificate", signature(`(SELECT signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1)`), false, true, true},

	{"the leaf index, to another leaf", []string{`UPDATE certificates SET leaf_index = 9 WHERE leaf_index = 0`}, true, true, false},
	{"the leaf index, to none", []string{`UPDATE certificates SET leaf_index = 1000000 WHERE leaf_index = 0`}, true, true, false},

	{"the leaf's entry", []string{`UPDATE translog.leaves SET entry = sha256(entry) WHERE leaf_index = 0`}, true, true, false},
	{"the leaf taken away", []string{`DELETE FROM translog.leaves WHERE leaf_index = 0`}, true, true, false},
	{"a leaf in its path", []string{`UPDATE translog.leaves SET entry = sha256(entry) WHERE leaf_index = 200`}, true, true, false},
	{"a node at level 8", []string{`UPDATE translog.nodes SET hash = sha256(hash) WHERE level = 8 AND node_index = 0`}, true, true, false},

	{"the tree head's root", newestHead(`root = sha256(root)`), true, true, false},
	{"the tree head's signature", newestHead(`signature = overlay(signature placing translate(substr(signature, 10, 1), '0123456789abcdef', '123456789abcdef0') from 10)`), true, true, false},
	{"the tree head's size", newestHead(`tree_size = tree_size + 1`), true, true, false},
}

func payload(expression string) []string {
	text := fmt.Sprintf(expression, `convert_from(payload, 'UTF8')`)
	return []string{`UPDATE certificates SET payload = convert_to(` + text + `, 'UTF8') WHERE leaf_index = 0`}
}

func signature(expression string) []string {
	return []string{`UPDATE certificates SET signature = ` + expression + ` WHERE leaf_index = 0`}
}

func newestHead(assignment string) []string {
	return []string{`UPDATE translog.tree_heads SET ` + assignment + ` WHERE tree_size = (SELECT max(tree_size) FROM translog.tree_heads)`}
}

// SPEC 2.9: every replica makes each check of a verification from the stored rows. After a change,
// exactly the expected checks fail. After the undo, all checks pass again.
func TestTampering(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 0}
	})
	if err := stack.Restart(t.Context(), e2e.SecondAPI, e2e.SecondLogEnv(stack)...); err != nil {
		t.Fatal(err)
	}
	v := &e2e.RowEditor{W: e2e.OpenDB(t, stack)}
	doors := []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}
	first, second := issued(t, doors[0]), issued(t, doors[1])
	fill(t, stack, 300)
	last := issued(t, doors[0])
	if n := v.W.Number(`SELECT count(*) FROM translog.nodes`); n != 1 {
		t.Fatalf("the log has %d node rows, want 1", n)
	}

	high := highS(t, e2e.Value[string](v.W, `SELECT signature FROM certificates WHERE leaf_index = 0`))
	highHead := highS(t, e2e.Value[string](v.W, `SELECT signature FROM translog.tree_heads ORDER BY tree_size DESC LIMIT 1`))
	for _, x := range append(tamperings,
		tampering{"a high S", signature(`'` + high + `'`), false, true, true},
		tampering{"a high S of the tree head", newestHead(`signature = '` + highHead + `'`), true, true, false},
	) {
		t.Run(x.what, func(t *testing.T) {
			defer v.Update(t, x.change)()
			if slices.Contains(verifiedOnce, x.what) {
				for _, c := range doors {
					if r := c.Verify(first.certID); !r.Valid {
						t.Errorf("%s, with the rows in memory, reports %+v, want valid", c.Base, r)
					}
				}
				restartLogs(t, stack)
			}
			for _, c := range doors {
				here := c.In(t)
				r := here.Verify(first.certID)
				if r.Valid || r.CertID != first.certID || r.Checks.Signature != x.signature || r.Checks.InputRoot != x.root || r.Checks.Inclusion != x.inclusion {
					t.Errorf("%s reports %+v, want not valid with signature %v, input_root %v, inclusion %v", c.Base, r, x.signature, x.root, x.inclusion)
				}
				here.Refused(503, "LOG_INCONSISTENT", "GET", first.deal.Path("/certificate"), first.deal.Tokens[0], nil)
			}
		})
		for _, c := range doors {
			for _, d := range []*vaulted{first, second, last} {
				if r := c.Verify(d.certID); !r.Valid {
					t.Fatalf("after the undo of %s the report is %+v, want valid", x.what, r)
				}
				c.Want(200, "GET", d.deal.Path("/certificate"), d.deal.Tokens[1], nil)
			}
		}
	}
	e2e.RequireIndependentVerdict(t, doors[1], last.deal.Certified(0), true)
}

// restartLogs restarts both log-servers, so that they read the rows of the log again.
func restartLogs(t *testing.T, stack *localstack.Stack) {
	t.Helper()
	for _, name := range []string{localstack.LogServer, e2e.SecondLog} {
		if err := stack.Restart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

type vaulted struct {
	deal   *e2e.CreatedDeal
	certID string
}

func issued(t *testing.T, c *e2e.Client) *vaulted {
	t.Helper()
	d := c.Create(e2e.SplitBody(3600e9, 7200e9))
	d.Play(e2e.AnnsValues, e2e.BobsValues)
	certID := *d.View().CertificateID
	if r := c.Verify(certID); !r.Valid {
		t.Fatalf("before the change the report is %+v, want valid", r)
	}
	return &vaulted{d, certID}
}

// fill appends leaves without a certificate to the log, with the deployment's key and append secret.
func fill(t *testing.T, stack *localstack.Stack, entries int) {
	t.Helper()
	signer, err := signing.Open(t.Context(), "dev://"+filepath.Join(stack.Dir(), "dev-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(stack.AppendSecretFile())
	if err != nil {
		t.Fatal(err)
	}
	log := translog.NewClient(stack.LogAppendURL(e2e.SecondLog), stack.LogReadURL(e2e.SecondLog), strings.TrimSpace(string(secret)))
	var wg sync.WaitGroup
	for i := range entries {
		wg.Go(func() {
			entry := sha256.Sum256(fmt.Appendf(nil, "entry %d", i))
			signature, err := signer.Sign(t.Context(), entry)
			if err == nil {
				_, err = log.Append(t.Context(), entry, signature, translog.Tag(entry))
			}
			if err != nil {
				t.Errorf("append a digest to the log: %v", err)
			}
		})
	}
	wg.Wait()
}

// highS replaces the value s of an es256 signature by n-s, where n is the order of P-256. Under
// ECDSA, the old and the new signature are both valid.
func highS(t *testing.T, signature string) string {
	t.Helper()
	s, ok := new(big.Int).SetString(signature[len("es256:")+64:], 16)
	if !ok {
		t.Fatalf("not an es256 signature: %q", signature)
	}
	s.Sub(elliptic.P256().Params().N, s)
	return signature[:len("es256:")+64] + hex.EncodeToString(s.FillBytes(make([]byte, 32)))
}
