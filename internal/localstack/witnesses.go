package localstack

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/checkpoint"
	"github.com/fairpact/fairpact/internal/checkpoint/devwitness"
	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

// Origin is the name of the log's checkpoints; it stays the same whatever port the
// stack gets.
const Origin = "localhost/fairpact"

const logKey, witnessPolicy = "log-key.pem", "witness-policy"

// witness is a witness of the log, in this process.
type witness struct {
	server *http.Server
	down   atomic.Bool
}

// startWitnesses starts witnesses that cosign the log's checkpoints, and writes
// the policy: more than half of them are its quorum.
func (s *Stack) startWitnesses(ctx context.Context) error {
	key, err := file.OpenDev(ctx, "//"+s.state.path(logKey), provider.Ed25519)
	if err != nil {
		return err
	}
	public, _, err := key.Key(ctx)
	if err != nil {
		return err
	}
	log, err := checkpoint.Ed25519Key(Origin, public.(ed25519.PublicKey))
	if err != nil {
		return err
	}
	policy := &strings.Builder{}
	fmt.Fprintf(policy, "log %s\n", log)
	var names []string
	for i := 1; i <= s.o.Witnesses; i++ {
		name := fmt.Sprintf("witness-%d", i)
		of, err := devwitness.Open(s.state.path(name), "localhost/"+name)
		if err != nil {
			return err
		}
		of.Watch(log)
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		w := &witness{}
		w.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if w.down.Load() {
				panic(http.ErrAbortHandler) // as a process that is gone
			}
			of.ServeHTTP(out, r)
		})}
		s.witnesses = append(s.witnesses, w)
		go func() { _ = w.server.Serve(l) }()
		fmt.Fprintf(policy, "witness %s %s http://%s\n", name, of.Key(), l.Addr())
		names = append(names, name)
	}
	fmt.Fprintf(policy, "group quorum %d %s\nquorum quorum\n", s.o.Witnesses/2+1, strings.Join(names, " "))
	return os.WriteFile(s.state.path(witnessPolicy), []byte(policy.String()), 0o600)
}

// Witness takes the i-th witness, from 1, down or up.
func (s *Stack) Witness(i int, up bool) { s.witnesses[i-1].down.Store(!up) }

// PolicyFile is the witness policy of a stack with witnesses.
func (s *Stack) PolicyFile() string { return s.state.path(witnessPolicy) }
