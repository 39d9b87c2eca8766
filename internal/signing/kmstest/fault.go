// Package kmstest provides key stores for tests: a SoftHSM token, and loopback
// servers for the parts of the cloud KMS protocols that the clouds' Go clients
// use. The servers have real keys and key states, and fail as a test tells them.
// Each store has a method URI that returns the key URI for package signing.
package kmstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"errors"
	"math/big"
	"net"
	"sync"
	"syscall"
	"time"
)

// Fault is how a server fails. A server ignores a fault that its protocol cannot have.
type Fault string

// A fault affects calls of the signing method, except where noted.
const (
	None             Fault = ""
	CorruptedCRC     Fault = "corrupted CRC"
	MissingCRC       Fault = "missing CRC"
	UnverifiedDigest Fault = "unverified digest" // the server did not check the digest's CRC
	OtherKeyName     Fault = "wrong key version name"
	HighS            Fault = "high s"
	GarbageDER       Fault = "garbage DER"
	OtherDigest      Fault = "a valid signature of another digest"
	OtherKey         Fault = "a signature by another key"
	Throttled        Fault = "throttling"
	ServerError      Fault = "internal server error"
	Overloaded       Fault = "service unavailable"
	Denied           Fault = "permission denied"
	Hang             Fault = "hang"
	CutConnection    Fault = "cut connection"
	Down             Fault = "connection refused" // affects every method, and lasts until the next fault is set

	// Only AWS, the HTTP server, has these faults:
	OtherAlgorithm Fault = "another signing algorithm in the answer"
	TruncatedBody  Fault = "truncated body"
	KeyUnavailable Fault = "key unavailable"
	Redirected     Fault = "redirect"
)

type server struct {
	serve func(net.Listener) (stop func())

	mu      sync.Mutex
	address string // does not change when the server comes back
	stop    func()
	fault   Fault
	left    int           // number of calls with the fault; negative: all until the next fault is set
	changed chan struct{} // closed when the fault changes
	calls   map[string]int
	denied  map[string]bool
}

func (s *server) start(serve func(net.Listener) (stop func())) error {
	s.serve, s.address = serve, "127.0.0.1:0"
	s.changed, s.calls, s.denied = make(chan struct{}), map[string]int{}, map[string]bool{}
	return s.listen()
}

func (s *server) listen() error {
	l, err := net.Listen("tcp", s.address)
	// After Down, a connection of another process may use the port for a while.
	for until := time.Now().Add(30 * time.Second); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(until); {
		time.Sleep(50 * time.Millisecond)
		l, err = net.Listen("tcp", s.address)
	}
	if err != nil {
		return err
	}
	if s.stop == nil {
		s.address = l.Addr().String()
	}
	s.stop = s.serve(l)
	return nil
}

// Close stops the server and closes all connections.
func (s *server) Close() {
	_ = s.SetFault(None)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// Addr returns HOST:PORT. It does not change.
func (s *server) Addr() string { return s.address }

// Calls returns how many calls of a method have arrived, including refused ones.
func (s *server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Deny makes the server refuse a method, or allow it again.
func (s *server) Deny(method string, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[method] = denied
}

// SetFault sets the fault of all calls until the next SetFault or FailTimes.
func (s *server) SetFault(f Fault) error { return s.FailTimes(f, -1) }

// FailTimes sets the fault of the next n signing calls. It returns an error if the
// server cannot listen on its port again after Down.
func (s *server) FailTimes(f Fault, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.fault
	s.fault, s.left = f, n
	close(s.changed)
	s.changed = make(chan struct{})
	switch {
	case f == Down && was != Down:
		s.stop()
	case f != Down && was == Down:
		return s.listen()
	}
	return nil
}

func (s *server) take() (Fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return None, s.changed
	}
	if s.left > 0 {
		s.left--
	}
	return s.fault, s.changed
}

func newP256() crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // documented never to happen
	}
	return key
}

func newEd25519() crypto.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // documented never to happen
	}
	return key
}

// signed signs data and builds the fault into the signature. An Ed25519 key signs data as
// a message. A P-256 key signs data as a digest and returns DER.
func signed(key crypto.Signer, data []byte, fault Fault) []byte {
	hash := crypto.SHA256
	_, ofMessage := key.(ed25519.PrivateKey)
	if ofMessage {
		hash = crypto.Hash(0)
	}
	switch {
	case fault == GarbageDER:
		return []byte("0\x06\x02\x01\x01\x02\x02\x00")
	case fault == OtherKey && ofMessage:
		key = newEd25519()
	case fault == OtherKey:
		key = newP256()
	case fault == OtherDigest:
		data = make([]byte, 32)
	}
	signature, err := key.Sign(rand.Reader, data, hash)
	if err != nil {
		panic(err) // the caller has checked the length of data
	}
	if fault != HighS || ofMessage {
		return signature
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &sig); err != nil {
		panic(err)
	}
	n := elliptic.P256().Params().N
	if sig.S.Cmp(new(big.Int).Rsh(n, 1)) <= 0 {
		sig.S.Sub(n, sig.S)
	}
	if signature, err = asn1.Marshal(sig); err != nil {
		panic(err)
	}
	return signature
}
