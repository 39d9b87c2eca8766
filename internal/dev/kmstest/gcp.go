package kmstest

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"net"
	"net/url"
	"strings"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// GCP is a server on the loopback that serves AsymmetricSign and GetPublicKey of
// google.cloud.kms.v1.KeyManagementService over plaintext gRPC. It has gRPC's default
// keepalive policy, which refuses clients that ping more often than every 5 minutes.
type GCP struct {
	kmspb.UnimplementedKeyManagementServiceServer
	server
	keys map[string]*gcpKey // guarded by server.mu
}

type gcpKey struct {
	private   crypto.Signer
	state     kmspb.CryptoKeyVersion_CryptoKeyVersionState
	algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm
}

// StartGCP starts the server on a free port.
func StartGCP() (*GCP, error) {
	g := &GCP{keys: map[string]*gcpKey{}}
	return g, g.start(func(l net.Listener) func() {
		s := grpc.NewServer()
		kmspb.RegisterKeyManagementServiceServer(s, g)
		go func() { _ = s.Serve(l) }()
		return s.Stop
	})
}

// NewKey makes an EC_SIGN_P256_SHA256 key with one enabled version and returns the
// name of the version.
func (g *GCP) NewKey() string {
	return g.add(newP256(), kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256)
}

// NewLogKey makes an EC_SIGN_ED25519 key with one enabled version and returns the
// name of the version.
func (g *GCP) NewLogKey() string {
	return g.add(newEd25519(), kmspb.CryptoKeyVersion_EC_SIGN_ED25519)
}

func (g *GCP) add(private crypto.Signer, algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := fmt.Sprintf("projects/test/locations/europe-west6/keyRings/fairpact/cryptoKeys/key-%d/cryptoKeyVersions/1", len(g.keys)+1)
	g.keys[name] = &gcpKey{private, kmspb.CryptoKeyVersion_ENABLED, algorithm}
	return name
}

// SetState sets the state of a key version.
func (g *GCP) SetState(name string, state kmspb.CryptoKeyVersion_CryptoKeyVersionState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[name].state = state
}

// SetAlgorithm sets the algorithm that the server reports for a key version. The key itself
// does not change.
func (g *GCP) SetAlgorithm(name string, algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[name].algorithm = algorithm
}

// URI returns the URI of a key version on this server, for a key set.
func (g *GCP) URI(name string) string {
	return "gcpkms://" + name + "?endpoint=" + url.QueryEscape(g.Addr()) + "&plaintext=true"
}

func (g *GCP) version(method, permission, name string) (gcpKey, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[method]++
	key, ok := g.keys[name]
	switch {
	case g.denied[method]:
		return gcpKey{}, denied(permission, name)
	case !ok:
		return gcpKey{}, status.Errorf(codes.NotFound, "CryptoKeyVersion %s not found.", name)
	case key.state != kmspb.CryptoKeyVersion_ENABLED:
		return gcpKey{}, status.Errorf(codes.FailedPrecondition, "%s is not enabled, current state is: %s.", name, key.state)
	}
	return *key, nil
}

func denied(permission, name string) error {
	return status.Errorf(codes.PermissionDenied, "Permission 'cloudkms.cryptoKeyVersions.%s' denied on resource '%s' (or it may not exist).", permission, name)
}

// GetPublicKey implements kmspb.KeyManagementServiceServer.
func (g *GCP) GetPublicKey(_ context.Context, r *kmspb.GetPublicKeyRequest) (*kmspb.PublicKey, error) {
	key, err := g.version("GetPublicKey", "viewPublicKey", r.Name)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.private.Public())
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return &kmspb.PublicKey{
		Pem: string(text), PemCrc32C: checksum(text), Name: r.Name,
		Algorithm: key.algorithm, ProtectionLevel: kmspb.ProtectionLevel_HSM, PublicKeyFormat: kmspb.PublicKey_PEM,
	}, nil
}

// AsymmetricSign implements kmspb.KeyManagementServiceServer. It applies the fault, if one
// is set.
func (g *GCP) AsymmetricSign(_ context.Context, r *kmspb.AsymmetricSignRequest) (*kmspb.AsymmetricSignResponse, error) {
	key, err := g.version("AsymmetricSign", "useToSign", r.Name)
	if err != nil {
		return nil, err
	}
	data := r.GetDigest().GetSha256()
	_, signsData := key.private.(ed25519.PrivateKey)
	switch {
	case signsData && (len(data) != 0 || r.DataCrc32C.GetValue() != checksum(r.Data).Value):
		return nil, status.Error(codes.InvalidArgument, "The checksum in field data_crc32c did not match the data in field data.")
	case !signsData && (len(data) != 32 || r.DigestCrc32C.GetValue() != checksum(data).Value):
		return nil, status.Error(codes.InvalidArgument, "The checksum in field digest_crc32c did not match the data in field digest.")
	}
	fault, changed := g.take()
	switch fault {
	case Hang:
		// Wait until the test changes the fault, not until the context ends. The context has
		// the caller's deadline. An answer at that deadline could reach the caller before the
		// caller gives up, and then the call would not time out.
		<-changed
		return nil, gcpRefusals[Overloaded]
	case CutConnection:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stop()
		return nil, g.listen()
	case Denied:
		return nil, denied("useToSign", r.Name)
	}
	if signsData {
		data = r.Data
	}
	signature := signed(key.private, data, fault)
	answer := &kmspb.AsymmetricSignResponse{
		Signature: signature, SignatureCrc32C: checksum(signature), VerifiedDigestCrc32C: !signsData, VerifiedDataCrc32C: signsData,
		Name: r.Name, ProtectionLevel: kmspb.ProtectionLevel_HSM,
	}
	switch fault {
	case CorruptedCRC:
		answer.SignatureCrc32C.Value ^= 1
	case MissingCRC:
		answer.SignatureCrc32C = nil
	case UnverifiedDigest:
		answer.VerifiedDigestCrc32C, answer.VerifiedDataCrc32C = false, false
	case OtherKeyName:
		answer.Name = strings.TrimSuffix(r.Name, "1") + "2"
	}
	return answer, gcpRefusals[fault]
}

var gcpRefusals = map[Fault]error{
	Throttled:   status.Error(codes.ResourceExhausted, "Quota exceeded for quota metric 'Cryptographic requests' and limit 'Cryptographic requests per minute' of service 'cloudkms.googleapis.com'."),
	ServerError: status.Error(codes.Internal, "Internal error encountered."),
	Overloaded:  status.Error(codes.Unavailable, "The service is currently unavailable."),
}

func checksum(data []byte) *wrapperspb.Int64Value {
	return wrapperspb.Int64(int64(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))))
}
