package localstack

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairpact/fairpact/internal/dev/devwitness"
	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
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

// openLogKey returns the public key in a log key's PEM file, and makes the file at the first start. It
// does not use package signing, because that would link the cloud KMS into every tool that starts a stack.
func openLogKey(path string) (ed25519.PublicKey, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			return nil, err
		}
		text = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if err := files.Create(path, text, 0o600); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file: remove it", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, is := key.(ed25519.PrivateKey)
	if !is {
		return nil, fmt.Errorf("%s holds no Ed25519 key: remove it", path)
	}
	return private.Public().(ed25519.PublicKey), nil
}

// startWitnesses starts the witnesses and writes a policy file. The policy's quorum is more
// than half of the witnesses.
func (s *Stack) startWitnesses(ctx context.Context) error {
	public, err := openLogKey(s.state.path(logKey))
	if err != nil {
		return err
	}
	log, err := checkpoint.Ed25519Key(Origin, public)
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
