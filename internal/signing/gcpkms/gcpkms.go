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
	"regexp"
	"strings"
	"time"

	kms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

type address struct {
	name      string
	endpoint  string // host:port; empty for Google's own endpoint
	plaintext bool   // true: no TLS and no credentials, for an emulator
}

const keyShape = `^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+`

var (
	versionName = regexp.MustCompile(keyShape + `/cryptoKeyVersions/[1-9][0-9]*$`)
	keyName     = regexp.MustCompile(keyShape + `/?$`)
)

func parse(rest string) (address, error) {
	name, options, err := provider.ParseURI("gcpkms", rest, "Workload Identity or GOOGLE_APPLICATION_CREDENTIALS",
		"endpoint=HOST:PORT and plaintext=true (only for an emulator)",
		map[string]func(string) bool{
			"endpoint":  func(value string) bool { return value != "" && !strings.ContainsAny(value, "/@") },
			"plaintext": func(value string) bool { return value == "true" || value == "false" },
		})
	a := address{name, options["endpoint"], options["plaintext"] == "true"}
	switch {
	case err != nil:
		return a, err
	case keyName.MatchString(name):
		return a, fmt.Errorf("the gcpkms URI names the key %q without a version, but each version has its own key pair: add /cryptoKeyVersions/N with a version number N that `gcloud kms keys versions list` shows", name)
	case !versionName.MatchString(name):
		return a, fmt.Errorf("the gcpkms URI names %q, which is not a key version: write gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N, where N is the number of the version", name)
	case a.plaintext && a.endpoint == "":
		return a, errors.New("the gcpkms URI has plaintext=true without endpoint=HOST:PORT, but Google's own endpoint requires TLS: add the endpoint of the emulator, or leave plaintext out")
	}
	return a, nil
}

type key struct {
	kind   provider.Kind
	client *kms.KeyManagementClient
	name   string // projects/…/cryptoKeyVersions/N
}

// Open returns a Provider for the key version that a gcpkms URI names. `rest` is the URI without
// "gcpkms:". Open uses the Application Default Credentials (in GKE: Workload Identity).
func Open(ctx context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	a, err := parse(rest)
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

// Key checks the answer's checksum, and refuses a key version whose algorithm does not fit k.kind.
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

// Sign checks that the data and the signature passed undamaged, and that this key version signed
// (https://cloud.google.com/kms/docs/data-integrity-guidelines). Damage on the way is transient.
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

// custody is public (SPEC 2.8, key_custody), so it omits project, location and key ring.
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

// explain adds the likely cause and the remedy to an error of Google Cloud KMS.
func explain(name, action string, err error) error {
	s, _ := status.FromError(err)
	wrap := func(what string) error {
		return fmt.Errorf("cannot %s %s in Google Cloud KMS: %s: %w", action, name, what, err)
	}
	switch s.Code() {
	case codes.Unavailable:
		return provider.Transient(wrap("the API is out of reach; if this lasts, check DNS and proxies, and check that the process can connect to the endpoint in the URI (default: cloudkms.googleapis.com:443)"))
	case codes.DeadlineExceeded:
		// The server may report the deadline shortly before the caller's context ends.
		return provider.Transient(fmt.Errorf("%w: %w", context.DeadlineExceeded, wrap("the API did not answer in time (a network policy may drop packets silently); if this lasts, check that the process can connect to the endpoint in the URI (default: cloudkms.googleapis.com:443)")))
	case codes.ResourceExhausted:
		return provider.Transient(wrap("the quota of the project is used up; if this lasts, raise the quota of cryptographic requests"))
	case codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss, codes.Canceled:
		return provider.Transient(wrap("the API failed"))
	case codes.Unauthenticated:
		// Shortly after a node has started, its metadata server is not available yet.
		return provider.Transient(wrap("the credentials could not be fetched, or the API refused them; if this lasts, check the Workload Identity binding or GOOGLE_APPLICATION_CREDENTIALS"))
	case codes.PermissionDenied:
		key, _, _ := strings.Cut(name, "/cryptoKeyVersions/")
		return wrap("permission denied (or no such key): grant roles/cloudkms.signerVerifier on the key " + key + " to the service account of this process, and check that the Cloud KMS API is enabled in the project of the key")
	case codes.NotFound:
		return wrap("no such key version: compare the URI with the output of `gcloud kms keys versions list`")
	case codes.FailedPrecondition:
		return wrap(notUsable(s.Message()))
	case codes.InvalidArgument:
		if strings.HasPrefix(s.Message(), "digest") || strings.Contains(s.Message(), "crc32c") {
			return provider.Transient(wrap("the request was damaged on its way"))
		}
		return wrap("refused: use a key of purpose asymmetric-signing and algorithm ec-sign-p256-sha256 (for a log key: ec-sign-ed25519)")
	}
	return wrap("refused")
}

func notUsable(message string) string {
	switch {
	case strings.Contains(message, "DESTROY_SCHEDULED"):
		return "the key version is scheduled to be destroyed: run `gcloud kms keys versions restore` immediately, and then `gcloud kms keys versions enable`; or name an enabled version"
	case strings.Contains(message, "DESTROYED"):
		return "the key version is destroyed and never comes back: publish the public key of an enabled version first, and then name that version in the URI (runbooks/stolen-key.md, section \"A key is lost\")"
	case strings.Contains(message, "PENDING"):
		return "the key version is still being made: try again when `gcloud kms keys versions list` shows the version as ENABLED"
	case strings.Contains(message, "not enabled"):
		return "the key version is not enabled: run `gcloud kms keys versions enable`, or name an enabled version"
	}
	return "the key version cannot be used: check with `gcloud kms keys versions describe` that the version is ENABLED, and that its algorithm is EC_SIGN_P256_SHA256 (for a log key: EC_SIGN_ED25519)"
}
