package kmstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Faults that a protocol over HTTP has besides the others.
const (
	OtherAlgorithm Fault = "another signing algorithm in the answer"
	TruncatedBody  Fault = "truncated body"
	KeyUnavailable Fault = "key unavailable"
	Redirected     Fault = "redirect"
)

const (
	awsTestRegion  = "eu-central-1"
	awsTestAccount = "111122223333"
)

// AWS serves Sign, GetPublicKey and DescribeKey of AWS KMS (the JSON 1.1
// protocol, version 2014-11-01) over HTTP on the loopback. It checks the shape
// of a request's SigV4 header, its date and its scope, and not the signature
// itself: any credentials do.
type AWS struct {
	address string

	mu      sync.Mutex
	server  *http.Server
	keys    map[string]*awsKey // by id
	denied  map[string]bool
	fault   Fault
	left    int
	changed chan struct{}
	calls   map[string]int
	spare   *ecdsa.PrivateKey
}

type awsKey struct {
	id, arn     string
	spec, usage string
	state       string
	made        time.Time
	multiRegion bool
	private     *ecdsa.PrivateKey // nil where Go has no such key
}

// StartAWS serves on a free port until Close.
func StartAWS() (*AWS, error) {
	spare, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &AWS{
		address: "127.0.0.1:0", keys: map[string]*awsKey{}, denied: map[string]bool{},
		calls: map[string]int{}, changed: make(chan struct{}), spare: spare,
	}
	if err := a.listen(); err != nil {
		return nil, err
	}
	return a, nil
}

// listen serves at the address; the port of the first time is kept.
func (a *AWS) listen() error {
	l, err := net.Listen("tcp", a.address)
	if err != nil {
		return err
	}
	a.address = l.Addr().String()
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
	server := a.server
	go func() { _ = server.Serve(l) }()
	return nil
}

// Close ends the server and all connections.
func (a *AWS) Close() {
	_ = a.SetFault(None)
	a.mu.Lock()
	server := a.server
	a.mu.Unlock()
	_ = server.Close()
}

// URL is the endpoint, the same for as long as the server lives.
func (a *AWS) URL() string { return "http://" + a.address }

// Env is credentials for a process that calls the server.
func (a *AWS) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY=of-no-account", "AWS_EC2_METADATA_DISABLED=true"}
}

// NewKey makes an enabled ECC_NIST_P256 key for signing and gives its ARN.
func (a *AWS) NewKey() string { return a.NewKeyOf("ECC_NIST_P256", "SIGN_VERIFY", false) }

// NewKeyOf makes a key of a spec (ECC_NIST_P256, ECC_NIST_P384,
// ECC_SECG_P256K1, SYMMETRIC_DEFAULT) and a usage, and gives its ARN. Only the
// NIST ones can sign.
func (a *AWS) NewKeyOf(spec, usage string, multiRegion bool) string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	text := hex.EncodeToString(random[:])
	id := fmt.Sprintf("%s-%s-%s-%s-%s", text[:8], text[8:12], text[12:16], text[16:20], text[20:])
	if multiRegion {
		id = "mrk-" + text
	}
	key := &awsKey{
		id: id, arn: "arn:aws:kms:" + awsTestRegion + ":" + awsTestAccount + ":key/" + id,
		spec: spec, usage: usage, state: "Enabled", made: time.Now(), multiRegion: multiRegion,
	}
	curve := map[string]elliptic.Curve{"ECC_NIST_P256": elliptic.P256(), "ECC_NIST_P384": elliptic.P384()}[spec]
	if curve != nil {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err) // documented never to happen
		}
		key.private = private
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[id] = key
	return key.arn
}

// SetState moves a key to a state: Enabled, Disabled, PendingDeletion,
// Unavailable and so on.
func (a *AWS) SetState(arn, state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range a.keys {
		if key.arn == arn {
			key.state = state
		}
	}
}

// Deny refuses an operation ("Sign", "GetPublicKey", "DescribeKey") to everyone,
// or grants it again.
func (a *AWS) Deny(operation string, denied bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied[operation] = denied
}

// URI is the FAIRPACT_SIGNING_KEY of a key, by its ARN or its id, on this server.
func (a *AWS) URI(key string) string {
	return "awskms:///" + key + "?region=" + awsTestRegion + "&endpoint=" + url.QueryEscape(a.URL())
}

// Calls counts the calls of an operation that have arrived, refused ones
// included: "Sign", "GetPublicKey", "DescribeKey".
func (a *AWS) Calls(operation string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[operation]
}

// SetFault misbehaves so until the next SetFault.
func (a *AWS) SetFault(f Fault) error { return a.FailTimes(f, -1) }

// FailTimes misbehaves so for the next n calls of Sign. The error is that the
// port could not be had again after Down.
func (a *AWS) FailTimes(f Fault, n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.fault
	a.fault, a.left = f, n
	close(a.changed)
	a.changed = make(chan struct{})
	switch {
	case f == Down && was != Down:
		return a.server.Close()
	case f != Down && was == Down:
		return a.listen()
	}
	return nil
}

// take gives the fault of this call.
func (a *AWS) take() (Fault, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == 0 {
		return None, a.changed
	}
	if a.left > 0 {
		a.left--
	}
	return a.fault, a.changed
}
