// Package gcpkms signs with a key version in Google Cloud KMS.
package gcpkms

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	kms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// Provider is a key version in Google Cloud KMS.
type Provider struct {
	client *kms.KeyManagementClient
	name   string // projects/…/cryptoKeyVersions/N
}

// Open connects to the KMS of the key version that a gcpkms URI names; rest is
// what follows its scheme and colon. It uses the Application Default Credentials
// (in GKE: Workload Identity).
func Open(ctx context.Context, rest string) (*Provider, error) {
	a, err := parse(strings.TrimPrefix(rest, "//"))
	if err != nil {
		return nil, err
	}
	client, err := kms.NewKeyManagementClient(ctx, options(a)...)
	if err != nil {
		return nil, fmt.Errorf("no usable credentials for Google Cloud KMS: in GKE bind the pod's service account by Workload Identity, elsewhere set GOOGLE_APPLICATION_CREDENTIALS or run gcloud auth application-default login: %w", err)
	}
	// The client would retry for 60 s by itself. The Signer retries.
	client.CallOptions.AsymmetricSign = nil
	client.CallOptions.GetPublicKey = nil
	return &Provider{client, a.name}, nil
}

func options(a address) []option.ClientOption {
	list := []option.ClientOption{
		// By itself gRPC waits up to 2 minutes between two attempts to connect.
		// Signing is to go on seconds after the service is back.
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})),
		// Timeout is also the connection's TCP_USER_TIMEOUT: one that has silently
		// died is closed 5 s after a request, not 15 minutes. Pings are as rare as
		// every server allows (more often is too_many_pings), and no call lasts that
		// long. An idle connection is closed before a NAT gateway forgets it.
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 5 * time.Second})),
		option.WithGRPCDialOption(grpc.WithIdleTimeout(5 * time.Minute)),
	}
	if a.endpoint != "" {
		list = append(list, option.WithEndpoint(a.endpoint))
	}
	if a.plaintext {
		list = append(list, option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	return list
}

// Key reads the public key.
func (p *Provider) Key(ctx context.Context) (*ecdsa.PublicKey, string, error) {
	parsed, custody, err := p.read(ctx, "es256", kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256, "ec-sign-p256-sha256")
	if err != nil {
		return nil, "", err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return nil, "", fmt.Errorf("the public key of %s from Google Cloud KMS is a %T and not an elliptic curve one: es256 needs P-256", p.name, parsed)
	}
	return key, custody, nil
}

// read reads the public key, with its checksum, and refuses a key version of
// another algorithm than its purpose needs.
func (p *Provider) read(ctx context.Context, purpose string, needed kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm, option string) (public any, where string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	answer, err := p.client.GetPublicKey(ctx, &kmspb.GetPublicKeyRequest{Name: p.name})
	switch {
	case err != nil:
		return nil, "", explain(p.name, "read the public key of", err)
	case answer.Name != p.name:
		return nil, "", transient.Error(fmt.Errorf("the public key that Google Cloud KMS returned is of %q and not of %q", answer.Name, p.name))
	case answer.PemCrc32C == nil || answer.PemCrc32C.Value != crc32c([]byte(answer.Pem)):
		return nil, "", transient.Error(fmt.Errorf("the public key of %s came from Google Cloud KMS without a right checksum", p.name))
	case answer.Algorithm != needed:
		return nil, "", fmt.Errorf("the key version %s in Google Cloud KMS is of algorithm %s and %s needs %s: make a key with gcloud kms keys create --purpose=asymmetric-signing --default-algorithm=%s", p.name, answer.Algorithm, purpose, needed, option)
	}
	block, _ := pem.Decode([]byte(answer.Pem))
	if block == nil {
		return nil, "", fmt.Errorf("the public key of %s from Google Cloud KMS is not PEM", p.name)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("the public key of %s from Google Cloud KMS: %w", p.name, err)
	}
	return parsed, custody(p.name, answer.ProtectionLevel), nil
}

// Sign asks for a signature of a digest.
func (p *Provider) Sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	return p.sign(ctx, &kmspb.AsymmetricSignRequest{
		Name:         p.name,
		Digest:       &kmspb.Digest{Digest: &kmspb.Digest_Sha256{Sha256: digest[:]}},
		DigestCrc32C: wrapperspb.Int64(crc32c(digest[:])),
	})
}

// sign asks for a signature and checks all that Google lets a client check: the
// digest or data arrived whole, this very version signed, the signature arrived
// whole. Each failure is damage on the way, and may pass.
// https://cloud.google.com/kms/docs/data-integrity-guidelines
func (p *Provider) sign(ctx context.Context, request *kmspb.AsymmetricSignRequest) ([]byte, error) {
	answer, err := p.client.AsymmetricSign(ctx, request)
	switch {
	case err != nil:
		return nil, explain(p.name, "sign with", err)
	case answer.VerifiedDigestCrc32C != (request.DigestCrc32C != nil) || answer.VerifiedDataCrc32C != (request.DataCrc32C != nil):
		return nil, transient.Error(errors.New("the KMS did not verify the checksum of what it signed"))
	case answer.Name != p.name:
		return nil, transient.Error(fmt.Errorf("the KMS signed with %q and not with %q", answer.Name, p.name))
	case answer.SignatureCrc32C == nil:
		return nil, transient.Error(errors.New("the KMS sent its signature without a checksum"))
	case answer.SignatureCrc32C.Value != crc32c(answer.Signature):
		return nil, transient.Error(errors.New("the signature was damaged on its way from the KMS"))
	}
	return answer.Signature, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(data []byte) int64 { return int64(crc32.Checksum(data, castagnoli)) }

// Close closes the connection.
func (p *Provider) Close() error { return p.client.Close() }

// custody leaves out the project, the location and the key ring, as the status
// is public.
func custody(name string, level kmspb.ProtectionLevel) string {
	words := "unknown"
	switch level {
	case kmspb.ProtectionLevel_SOFTWARE:
		words = "software"
	case kmspb.ProtectionLevel_HSM:
		words = "HSM"
	case kmspb.ProtectionLevel_EXTERNAL, kmspb.ProtectionLevel_EXTERNAL_VPC:
		words = "external"
	case kmspb.ProtectionLevel_PROTECTION_LEVEL_UNSPECIFIED:
	default:
		words = level.String()
	}
	return fmt.Sprintf("Google Cloud KMS, %s protection level, key …%s", words, name[strings.Index(name, "/cryptoKeys/"):])
}
