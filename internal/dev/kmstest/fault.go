// Package kmstest provides key stores for tests: a SoftHSM token, and servers on the
// loopback that stand in for Google Cloud KMS and AWS KMS. They serve only the methods that
// package signing calls. The servers sign with real keys, give each key a state, and fail
// as a test requests (Fault). The method URI of each store returns the URI of a key for
// package signing.
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

// Fault is how a server fails. A server ignores a fault that does not exist in its protocol.
type Fault string

// Unless noted, a fault affects only calls of the signing method (Sign, AsymmetricSign).
const (
	None             Fault = ""
	CorruptedCRC     Fault = "corrupted CRC"
	MissingCRC       Fault = "missing CRC"
	UnverifiedDigest Fault = "unverified digest" // the answer says that the server did not check the request's CRC
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
	Down             Fault = "connection refused" // affects every method; lasts until a test sets another fault

	// Only the server that stands in for AWS KMS has these faults:
	OtherAlgorithm Fault = "another signing algorithm in the answer"
	TruncatedBody  Fault = "truncated body"
	KeyUnavailable Fault = "key unavailable"
	Redirected     Fault = "redirect"
)

type server struct {
	serve func(net.Listener) (stop func())

	mu      sync.Mutex
	address string
	stop    func()
	fault   Fault
	left    int           // calls that still get the fault; negative: all calls until a test sets another fault
	changed chan struct{} // closed and replaced when a test sets a fault
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
	// During the fault Down, another process may get the port for an outgoing connection. Wait
	// until the port is free again.
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

// Addr returns HOST:PORT, which stays the same when the server comes back after the fault Down.
func (s *server) Addr() string { return s.address }

// Calls returns how many calls of a method have arrived, including refused ones.
func (s *server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Deny makes the server refuse all calls of a method or, if `denied` is false, allow them again.
func (s *server) Deny(method string, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[method] = denied
}

// SetFault sets the fault of all signing calls until the next SetFault or FailTimes.
func (s *server) SetFault(f Fault) error { return s.FailTimes(f, -1) }

// FailTimes sets the fault of the next n signing calls. It returns an error if the
// server cannot listen on its port again after the fault Down.
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
		panic(err) // not possible: the system's random source never fails
	}
	return key
}

func newEd25519() crypto.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // not possible: the system's random source never fails
	}
	return key
}

// signed returns a signature of data, with the fault built in. An Ed25519 key signs data as
// a message. A P-256 key signs data as a digest, and the signature is in DER.
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
		panic(err) // not possible: the caller has checked the length of data
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
