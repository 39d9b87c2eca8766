package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"regexp"
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
)

// gcp is a key version in Google Cloud KMS.
type gcp struct {
	client *kms.KeyManagementClient
	name   string // projects/…/cryptoKeyVersions/N
	key    *ecdsa.PublicKey
	where  string
}

func (p *gcp) publicKey() *ecdsa.PublicKey { return p.key }
func (p *gcp) custody() string             { return p.where }
func (p *gcp) ephemeral() bool             { return false }
func (p *gcp) close() error                { return p.client.Close() }

// sign asks for a signature and checks all that Google gives to check: the
// digest arrived whole, this very version signed, the signature arrived whole.
// Each that fails is damage on the way, and worth a second try.
// https://cloud.google.com/kms/docs/data-integrity-guidelines
func (p *gcp) sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	answer, err := p.client.AsymmetricSign(ctx, &kmspb.AsymmetricSignRequest{
		Name:         p.name,
		Digest:       &kmspb.Digest{Digest: &kmspb.Digest_Sha256{Sha256: digest[:]}},
		DigestCrc32C: wrapperspb.Int64(crc32c(digest[:])),
	})
	switch {
	case err != nil:
		return nil, explainGCP(p.name, "sign with", err)
	case !answer.VerifiedDigestCrc32C:
		return nil, transient{errors.New("the KMS did not verify the checksum of the digest")}
	case answer.Name != p.name:
		return nil, transient{fmt.Errorf("the KMS signed with %q and not with %q", answer.Name, p.name)}
	case answer.SignatureCrc32C == nil:
		return nil, transient{errors.New("the KMS sent its signature without a checksum")}
	case answer.SignatureCrc32C.Value != crc32c(answer.Signature):
		return nil, transient{errors.New("the signature was damaged on its way from the KMS")}
	}
	return answer.Signature, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(data []byte) int64 { return int64(crc32.Checksum(data, castagnoli)) }

// gcpAddress is what a gcpkms URI holds.
type gcpAddress struct {
	name      string
	endpoint  string // host:port, empty for Google's own
	plaintext bool   // no TLS and no credentials: an emulator
}

var (
	gcpVersion = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/cryptoKeyVersions/[1-9][0-9]*$`)
	gcpKey     = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+/?$`)
)

// parseGCP reads what follows gcpkms:// in a URI. Its errors show nothing that
// may be a credential: no value of an option, and no text with an '@'.
func parseGCP(text string) (gcpAddress, error) {
	if strings.Contains(text, "@") {
		return gcpAddress{}, errors.New("the gcpkms URI holds an '@' (its text is not shown, it may hold a password): it names a key version and takes no credentials; those are the pod's by Workload Identity, or in GOOGLE_APPLICATION_CREDENTIALS")
	}
	name, query, _ := strings.Cut(text, "?")
	a := gcpAddress{name: name}
	switch {
	case gcpVersion.MatchString(name):
	case gcpKey.MatchString(name):
		return a, fmt.Errorf("the gcpkms URI names a key and not one version of it: add /cryptoKeyVersions/N, for a certificate must name the key that signed it (gcloud kms keys versions list shows them): %q", name)
	default:
		return a, fmt.Errorf("the gcpkms URI is to be gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N with a number N, and holds %q", name)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, errors.New("the query of the gcpkms URI does not parse: it is ?endpoint=HOST:PORT&plaintext=true or a part of that")
	}
	for option, all := range values {
		switch {
		case len(all) == 1 && option == "endpoint" && all[0] != "" && !strings.ContainsAny(all[0], "/@"):
			a.endpoint = all[0]
		case len(all) == 1 && option == "plaintext" && (all[0] == "true" || all[0] == "false"):
			a.plaintext = all[0] == "true"
		default:
			return a, fmt.Errorf("the gcpkms URI takes ?endpoint=HOST:PORT and &plaintext=true (an emulator), each once, and has a %q that is not so", option)
		}
	}
	if a.plaintext && a.endpoint == "" {
		return a, errors.New("plaintext=true in the gcpkms URI needs endpoint=HOST:PORT: Google's own endpoint speaks TLS alone")
	}
	return a, nil
}

// openGCP connects with the Application Default Credentials (in GKE: Workload
// Identity) and reads the public key, once.
func openGCP(ctx context.Context, text string) (provider, error) {
	a, err := parseGCP(text)
	if err != nil {
		return nil, err
	}
	client, err := kms.NewKeyManagementClient(ctx, gcpOptions(a)...)
	if err != nil {
		return nil, fmt.Errorf("no usable credentials for Google Cloud KMS: in GKE bind the pod's service account by Workload Identity, elsewhere set GOOGLE_APPLICATION_CREDENTIALS or run gcloud auth application-default login: %w", err)
	}
	// The client would try for 60 s by itself, with pauses that nobody sees. How
	// long and how often is the Signer's to say.
	client.CallOptions.AsymmetricSign = nil
	client.CallOptions.GetPublicKey = nil
	p := &gcp{client: client, name: a.name}
	if err := readKey(ctx, p.readKeyOnce); err != nil {
		_ = client.Close()
		return nil, err
	}
	return p, nil
}

func gcpOptions(a gcpAddress) []option.ClientOption {
	options := []option.ClientOption{
		// gRPC by itself waits up to 2 minutes between two attempts to connect,
		// and 15 on a connection that has silently died. Signing is to go on
		// seconds after the service is back.
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})),
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true,
		})),
	}
	if a.endpoint != "" {
		options = append(options, option.WithEndpoint(a.endpoint))
	}
	if a.plaintext {
		options = append(options, option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	return options
}

func (p *gcp) readKeyOnce(ctx context.Context) error {
	answer, err := p.client.GetPublicKey(ctx, &kmspb.GetPublicKeyRequest{Name: p.name})
	switch {
	case err != nil:
		return explainGCP(p.name, "read the public key of", err)
	case answer.Name != p.name:
		return transient{fmt.Errorf("the public key that Google Cloud KMS gave is of %q and not of %q", answer.Name, p.name)}
	case answer.PemCrc32C == nil || answer.PemCrc32C.Value != crc32c([]byte(answer.Pem)):
		return transient{fmt.Errorf("the public key of %s came from Google Cloud KMS without a right checksum", p.name)}
	case answer.Algorithm != kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256:
		return fmt.Errorf("the key version %s in Google Cloud KMS is of algorithm %s and es256 needs EC_SIGN_P256_SHA256: make a key with gcloud kms keys create --purpose=asymmetric-signing --default-algorithm=ec-sign-p256-sha256", p.name, answer.Algorithm)
	}
	block, _ := pem.Decode([]byte(answer.Pem))
	if block == nil {
		return fmt.Errorf("the public key of %s from Google Cloud KMS is not PEM", p.name)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("the public key of %s from Google Cloud KMS: %w", p.name, err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("the public key of %s from Google Cloud KMS is a %T and not an elliptic curve one: es256 needs P-256", p.name, parsed)
	}
	p.key = key
	p.where = gcpCustody(p.name, answer.ProtectionLevel)
	return nil
}

// gcpCustody leaves the project, the location and the key ring out: the status
// is public, and they are nobody's business.
func gcpCustody(name string, level kmspb.ProtectionLevel) string {
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
