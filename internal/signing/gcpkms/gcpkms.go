// Package gcpkms signs with a key version in Google Cloud KMS.
package gcpkms

import (
	"context"
	"crypto"
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

	"github.com/fairpact/fairpact/internal/signing/provider"
)

type key struct {
	kind   provider.Kind
	client *kms.KeyManagementClient
	name   string // projects/…/cryptoKeyVersions/N
}

// Open returns a Provider for the key version that a gcpkms URI names. `rest` is the URI without
// "gcpkms:". Open uses the Application Default Credentials (in GKE: Workload Identity).
func Open(ctx context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	a, err := parse(strings.TrimPrefix(rest, "//"))
	if err != nil {
		return nil, err
	}
	client, err := kms.NewKeyManagementClient(ctx, options(a)...)
	if err != nil {
		return nil, fmt.Errorf("no usable credentials for Google Cloud KMS: %w; in GKE, bind the pod's service account by Workload Identity; elsewhere, set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`", err)
	}
	// Package signing retries, so the client must not retry. By default the client retries for 60 s.
	client.CallOptions.AsymmetricSign = nil
	client.CallOptions.GetPublicKey = nil
	return &key{kind, client, a.name}, nil
}

func options(a address) []option.ClientOption {
	list := []option.ClientOption{
		// By default gRPC waits up to 2 minutes between two attempts to connect.
		// Signing must resume within seconds after the service is back.
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})),
		// The field Timeout also sets TCP_USER_TIMEOUT, so a silently broken connection closes 5 s
		// after a request, not after 15 minutes. The field Time is more than 5 minutes, because
		// servers by default refuse pings at shorter intervals (too_many_pings).
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 5 * time.Second})),
		// An idle connection closes before a NAT gateway drops it silently.
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

// Key implements provider.Provider. It checks the answer's checksum and refuses a
// key version whose algorithm does not fit k.kind.
func (k *key) Key(ctx context.Context) (crypto.PublicKey, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	purpose, needed, option := "es256", kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256, "ec-sign-p256-sha256"
	if k.kind == provider.Ed25519 {
		purpose, needed, option = "a log key", kmspb.CryptoKeyVersion_EC_SIGN_ED25519, "ec-sign-ed25519"
	}
	answer, err := k.client.GetPublicKey(ctx, &kmspb.GetPublicKeyRequest{Name: k.name})
	switch {
	case err != nil:
		return nil, "", explain(k.name, "read the public key of", err)
	case answer.Name != k.name:
		return nil, "", provider.Transient(fmt.Errorf("the public key that Google Cloud KMS returned is of %q instead of %q", answer.Name, k.name))
	case answer.PemCrc32C == nil || answer.PemCrc32C.Value != crc32c([]byte(answer.Pem)):
		return nil, "", provider.Transient(fmt.Errorf("the public key of %s that Google Cloud KMS returned has a wrong or missing checksum", k.name))
	case answer.Algorithm != needed:
		return nil, "", fmt.Errorf("the key version %s in Google Cloud KMS is of algorithm %s, but %s needs %s: make a new key with `gcloud kms keys create --purpose=asymmetric-signing --default-algorithm=%s`", k.name, answer.Algorithm, purpose, needed, option)
	}
	block, _ := pem.Decode([]byte(answer.Pem))
	if block == nil {
		return nil, "", fmt.Errorf("the public key of %s from Google Cloud KMS is not PEM", k.name)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("the public key of %s from Google Cloud KMS does not parse: %w", k.name, err)
	}
	return public, custody(k.name, answer.ProtectionLevel), nil
}

// Sign implements provider.Provider. It checks that the data reached the KMS undamaged, that this
// key version signed the data, and that the signature came back undamaged. A failed check means
// damage on the way, so the error is transient. Google describes these checks:
// https://cloud.google.com/kms/docs/data-integrity-guidelines
func (k *key) Sign(ctx context.Context, data []byte) ([]byte, error) {
	request := &kmspb.AsymmetricSignRequest{Name: k.name}
	if k.kind == provider.Ed25519 {
		request.Data, request.DataCrc32C = data, wrapperspb.Int64(crc32c(data))
	} else {
		request.Digest = &kmspb.Digest{Digest: &kmspb.Digest_Sha256{Sha256: data}}
		request.DigestCrc32C = wrapperspb.Int64(crc32c(data))
	}
	answer, err := k.client.AsymmetricSign(ctx, request)
	switch {
	case err != nil:
		return nil, explain(k.name, "sign with", err)
	case answer.VerifiedDigestCrc32C != (request.DigestCrc32C != nil) || answer.VerifiedDataCrc32C != (request.DataCrc32C != nil):
		return nil, provider.Transient(errors.New("the KMS did not verify the checksum of the data that it signed"))
	case answer.Name != k.name:
		return nil, provider.Transient(fmt.Errorf("the KMS signed with the key version %q instead of %q", answer.Name, k.name))
	case answer.SignatureCrc32C == nil:
		return nil, provider.Transient(errors.New("the KMS sent its signature without a checksum"))
	case answer.SignatureCrc32C.Value != crc32c(answer.Signature):
		return nil, provider.Transient(errors.New("the signature was damaged on its way from the KMS"))
	}
	return answer.Signature, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(data []byte) int64 { return int64(crc32.Checksum(data, castagnoli)) }

func (k *key) Close() error { return k.client.Close() }

// custody describes where the key is kept. The public status shows this text (SPEC 2.8,
// key_custody), so it omits project, location and key ring.
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
