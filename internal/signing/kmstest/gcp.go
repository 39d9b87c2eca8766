package kmstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/url"
	"sync"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// GCP serves google.cloud.kms.v1.KeyManagementService (AsymmetricSign,
// GetPublicKey, GetCryptoKeyVersion) over plaintext gRPC on the loopback.
type GCP struct {
	kmspb.UnimplementedKeyManagementServiceServer
	address string

	mu      sync.Mutex
	server  *grpc.Server
	conns   *connections
	keys    map[string]*gcpKey
	fault   Fault
	left    int           // calls the fault lasts for; negative: until the next one is set
	changed chan struct{} // closed when the fault changes
	calls   map[string]int
	denied  map[string]bool
	spare   *ecdsa.PrivateKey // of OtherKey
}

type gcpKey struct {
	private   *ecdsa.PrivateKey
	state     kmspb.CryptoKeyVersion_CryptoKeyVersionState
	algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm
	level     kmspb.ProtectionLevel
}

// StartGCP serves on a free port until Close.
func StartGCP() (*GCP, error) {
	spare, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	g := &GCP{address: "127.0.0.1:0", keys: map[string]*gcpKey{}, calls: map[string]int{}, denied: map[string]bool{}, changed: make(chan struct{}), spare: spare}
	if err := g.listen(); err != nil {
		return nil, err
	}
	return g, nil
}

// listen serves at the address; the port of the first time is kept.
func (g *GCP) listen() error {
	l, err := net.Listen("tcp", g.address)
	if err != nil {
		return err
	}
	g.address = l.Addr().String()
	g.conns = &connections{Listener: l, open: map[net.Conn]struct{}{}}
	g.server = grpc.NewServer()
	kmspb.RegisterKeyManagementServiceServer(g.server, g)
	server, conns := g.server, g.conns
	go func() { _ = server.Serve(conns) }()
	return nil
}

// Close ends the server and all connections.
func (g *GCP) Close() {
	_ = g.SetFault(None)
	g.mu.Lock()
	server := g.server
	g.mu.Unlock()
	server.Stop()
}

// Addr is HOST:PORT, the same for as long as the server lives.
func (g *GCP) Addr() string { return g.address }

// NewKey makes a key of EC_SIGN_P256_SHA256 with one enabled version in an HSM
// (that is, in memory) and gives the name of the version.
func (g *GCP) NewKey() string { return g.newKey(elliptic.P256()) }

// NewKeyP384 makes a key of EC_SIGN_P384_SHA384, which no Fairpact signs with.
func (g *GCP) NewKeyP384() string { return g.newKey(elliptic.P384()) }

func (g *GCP) newKey(curve elliptic.Curve) string {
	private, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err) // documented never to happen
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	name := fmt.Sprintf("projects/test/locations/europe-west6/keyRings/fairpact/cryptoKeys/key-%d/cryptoKeyVersions/1", len(g.keys)+1)
	key := &gcpKey{private, kmspb.CryptoKeyVersion_ENABLED, kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256, kmspb.ProtectionLevel_HSM}
	if curve == elliptic.P384() {
		key.algorithm = kmspb.CryptoKeyVersion_EC_SIGN_P384_SHA384
	}
	g.keys[name] = key
	return name
}

// SetState moves a version to a state: ENABLED, DISABLED, DESTROYED and so on.
func (g *GCP) SetState(name string, state kmspb.CryptoKeyVersion_CryptoKeyVersionState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[name].state = state
}

// SetAlgorithm lies about a version's algorithm: its key stays what it is.
func (g *GCP) SetAlgorithm(name string, algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[name].algorithm = algorithm
}

// Deny refuses a method ("AsymmetricSign", "GetPublicKey") to everyone, or grants
// it again.
func (g *GCP) Deny(method string, denied bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.denied[method] = denied
}

// permissions are what IAM asks for each method.
var permissions = map[string]string{
	"AsymmetricSign": "useToSign", "GetPublicKey": "viewPublicKey", "GetCryptoKeyVersion": "get",
}

// URI is the FAIRPACT_SIGNING_KEY of a version on this server.
func (g *GCP) URI(name string) string {
	return "gcpkms://" + name + "?endpoint=" + url.QueryEscape(g.address) + "&plaintext=true"
}

// Calls counts the calls of a method that have arrived, refused ones included:
// "AsymmetricSign", "GetPublicKey", "GetCryptoKeyVersion".
func (g *GCP) Calls(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[method]
}

// SetFault misbehaves so until the next SetFault.
func (g *GCP) SetFault(f Fault) error { return g.FailTimes(f, -1) }

// FailTimes misbehaves so for the next n calls of AsymmetricSign. The error is
// that the port could not be had again after Down.
func (g *GCP) FailTimes(f Fault, n int) error {
	g.mu.Lock()
	was := g.fault
	g.fault, g.left = f, n
	close(g.changed)
	g.changed = make(chan struct{})
	server := g.server
	g.mu.Unlock()
	switch {
	case f == Down && was != Down:
		server.Stop()
	case f != Down && was == Down:
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.listen()
	}
	return nil
}

// take gives the fault of this call.
func (g *GCP) take() (Fault, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.fault
	if g.left == 0 {
		return None, g.changed
	}
	if g.left > 0 {
		g.left--
	}
	return f, g.changed
}

// version finds a usable version and counts the call.
func (g *GCP) version(method, name string) (*gcpKey, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[method]++
	key, ok := g.keys[name]
	switch {
	case name == "":
		return nil, status.Error(codes.InvalidArgument, "Request is missing required field 'name'.")
	case g.denied[method]:
		return nil, status.Errorf(codes.PermissionDenied, "Permission 'cloudkms.cryptoKeyVersions.%s' denied on resource '%s' (or it may not exist).", permissions[method], name)
	case !ok:
		return nil, status.Errorf(codes.NotFound, "CryptoKeyVersion %s not found.", name)
	case method != "GetCryptoKeyVersion" && key.state != kmspb.CryptoKeyVersion_ENABLED:
		return nil, status.Errorf(codes.FailedPrecondition, "%s is not enabled, current state is: %s.", name, key.state)
	}
	copied := *key
	return &copied, nil
}

// GetPublicKey gives the key in PEM with its checksum.
func (g *GCP) GetPublicKey(_ context.Context, r *kmspb.GetPublicKeyRequest) (*kmspb.PublicKey, error) {
	key, err := g.version("GetPublicKey", r.Name)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.private.PublicKey)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return &kmspb.PublicKey{
		Pem: string(text), PemCrc32C: wrapperspb.Int64(checksum(text)), Name: r.Name,
		Algorithm: key.algorithm, ProtectionLevel: key.level, PublicKeyFormat: kmspb.PublicKey_PEM,
	}, nil
}

// GetCryptoKeyVersion gives a version's state, whatever it is.
func (g *GCP) GetCryptoKeyVersion(_ context.Context, r *kmspb.GetCryptoKeyVersionRequest) (*kmspb.CryptoKeyVersion, error) {
	key, err := g.version("GetCryptoKeyVersion", r.Name)
	if err != nil {
		return nil, err
	}
	return &kmspb.CryptoKeyVersion{Name: r.Name, State: key.state, Algorithm: key.algorithm, ProtectionLevel: key.level}, nil
}

func checksum(data []byte) int64 {
	return int64(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// connections lets a test cut what is connected.
type connections struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		c.open[conn] = struct{}{}
		c.mu.Unlock()
	}
	return conn, err
}

func (c *connections) cut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for conn := range c.open {
		err = errors.Join(err, conn.Close())
	}
	clear(c.open)
	return err
}
