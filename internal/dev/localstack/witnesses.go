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

	"github.com/fairpact/fairpact/internal/dev/devwitness"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/signing/file"
	"github.com/fairpact/fairpact/internal/signing/provider"
)

// Origin is the name of the log in its checkpoints. It contains no port number, because ports
// change from one stack to the next.
const Origin = "localhost/fairpact"

const logKey, witnessPolicy = "log-key.pem", "witness-policy"

// witness is an HTTP server that cosigns checkpoints. It runs in this process.
type witness struct {
	server *http.Server
	down   atomic.Bool
}

// startWitnesses starts the witnesses and writes a policy file. The policy's quorum is more
// than half of the witnesses.
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
		of, err := devwitness.Open(s.state.path(name), "localhost/"+name, log)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		w := &witness{}
		w.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if w.down.Load() {
				panic(http.ErrAbortHandler)
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

// Witness switches the i-th witness, counted from 1, on or off. While a witness is off, it drops
// every connection.
func (s *Stack) Witness(i int, up bool) { s.witnesses[i-1].down.Store(!up) }

// PolicyFile returns the path of the witness policy (c2sp.org/tlog-policy). The file exists
// only in a stack with witnesses.
func (s *Stack) PolicyFile() string { return s.state.path(witnessPolicy) }
