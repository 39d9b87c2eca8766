// Package kmstest holds key stores for tests: servers on the loopback that speak
// as much of the protocols of cloud KMSs as the clouds' own Go clients use, with
// real keys and states, which misbehave when told to; and a SoftHSM token. The
// product reaches them by what URI returns.
package kmstest

import (
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

// Fault is a way to misbehave. A server that has no such field in its protocol
// does not have the fault.
type Fault string

// What a server may be told to do, at each call of its signing method unless it
// says otherwise.
const (
	None             Fault = ""
	CorruptedCRC     Fault = "corrupted CRC"
	MissingCRC       Fault = "missing CRC"
	UnverifiedDigest Fault = "unverified digest" // it did not check the digest's CRC
	OtherKeyName     Fault = "wrong key version name"
	HighS            Fault = "high s"
	GarbageDER       Fault = "garbage DER"
	OtherDigest      Fault = "a valid signature of another digest"
	OtherKey         Fault = "a signature by another key"
	Throttled        Fault = "throttling"
	ServerError      Fault = "internal server error"
	Overloaded       Fault = "service unavailable"
	Denied           Fault = "permission denied"
	Hang             Fault = "hang"               // no answer
	CutConnection    Fault = "cut connection"     // in the middle of the call
	Down             Fault = "connection refused" // every method; the port comes back with the next fault

	// Of HTTP alone:
	OtherAlgorithm Fault = "another signing algorithm in the answer"
	TruncatedBody  Fault = "truncated body"
	KeyUnavailable Fault = "key unavailable"
	Redirected     Fault = "redirect"
)

// server is what the servers have in common.
type server struct {
	serve func(net.Listener) (stop func())

	mu      sync.Mutex
	address string // the port of the first time is kept
	stop    func()
	fault   Fault
	left    int           // calls the fault lasts for; negative: until the next one is set
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
	// After Down, another process's connection may sit on the port for a while.
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

// Close ends the server and all connections.
func (s *server) Close() {
	_ = s.SetFault(None)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// Addr is HOST:PORT, the same for as long as the server lives.
func (s *server) Addr() string { return s.address }

// Calls counts the calls of a method that have arrived, refused ones included.
func (s *server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Deny refuses a method to everyone, or grants it again.
func (s *server) Deny(method string, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[method] = denied
}

// SetFault misbehaves so until the next SetFault.
func (s *server) SetFault(f Fault) error { return s.FailTimes(f, -1) }

// FailTimes misbehaves so for the next n signing calls. The error is that the port
// could not be taken again after Down.
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

// take returns the fault of this call.
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

func newEd25519() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // documented never to happen
	}
	return key
}

// signMessage signs by Ed25519 as the fault wants it.
func signMessage(key ed25519.PrivateKey, message []byte, fault Fault) []byte {
	switch fault {
	case OtherKey:
		key = newEd25519()
	case OtherDigest:
		message = append([]byte("x"), message...)
	}
	return ed25519.Sign(key, message)
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // documented never to happen
	}
	return key
}

// sign signs as the fault wants it, in DER.
func sign(key *ecdsa.PrivateKey, digest []byte, fault Fault) ([]byte, error) {
	switch fault {
	case GarbageDER:
		return []byte("0\x06\x02\x01\x01\x02\x02\x00"), nil
	case OtherKey:
		key = newKey()
	case OtherDigest:
		digest = make([]byte, len(digest))
	}
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest)
	if err != nil || fault != HighS {
		return signature, err
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &sig); err != nil {
		return nil, err
	}
	n := key.Params().N
	if sig.S.Cmp(new(big.Int).Rsh(n, 1)) <= 0 {
		sig.S.Sub(n, sig.S)
	}
	return asn1.Marshal(sig)
}
