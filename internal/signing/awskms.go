package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go/logging"
)

// awsKMS is a key in AWS KMS. It needs kms:GetPublicKey and kms:Sign on that key
// and nothing else.
type awsKMS struct {
	client *kms.Client
	idle   *http.Transport
	arn    string // of the key, as the service gave it
	key    *ecdsa.PublicKey
	where  string
}

func (p *awsKMS) publicKey() *ecdsa.PublicKey { return p.key }
func (p *awsKMS) custody() string             { return p.where }
func (p *awsKMS) ephemeral() bool             { return false }
func (p *awsKMS) close() error                { p.idle.CloseIdleConnections(); return nil }

// sign sends the digest, not the message, and checks that this very key signed.
// AWS sends no checksums: what else may go wrong on the way shows when Signer
// verifies the signature.
func (p *awsKMS) sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	answer, err := p.client.Sign(ctx, &kms.SignInput{
		KeyId:            &p.arn,
		Message:          digest[:],
		MessageType:      types.MessageTypeDigest,
		SigningAlgorithm: types.SigningAlgorithmSpecEcdsaSha256,
	})
	switch {
	case err != nil:
		return nil, explainAWS(p.arn, "kms:Sign", err)
	case aws.ToString(answer.KeyId) != p.arn:
		return nil, transient{fmt.Errorf("AWS KMS signed with %q and not with %q", aws.ToString(answer.KeyId), p.arn)}
	case answer.SigningAlgorithm != types.SigningAlgorithmSpecEcdsaSha256:
		return nil, transient{fmt.Errorf("AWS KMS signed by %q and not by ECDSA_SHA_256", answer.SigningAlgorithm)}
	}
	return answer.Signature, nil
}

// openAWS takes credentials from the default chain (in EKS: IRSA or Pod
// Identity) and reads the public key, once.
func openAWS(ctx context.Context, text string) (provider, error) {
	a, err := parseAWS(text)
	if err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(awsHTTP())}
	if a.region != "" {
		options = append(options, config.WithRegion(a.region))
	}
	settings, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("AWS KMS: the AWS settings of this process (environment, profile) do not load: %w", err)
	}
	if settings.Region == "" {
		return nil, fmt.Errorf("AWS KMS: no region for the key %s: name the key by its ARN, or add ?region=REGION to the awskms URI", a.key)
	}
	p := &awsKMS{idle: awsTransport(settings)}
	settings.Credentials = awsCredentials{settings.Credentials}
	p.client = kms.NewFromConfig(settings, func(o *kms.Options) {
		// How long and how often is the Signer's to say. Only KMS is asked once:
		// STS, which gives the credentials, keeps the retries of the SDK.
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.HTTPClient = &http.Client{
			Transport:     p.idle,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		o.Logger = logging.Nop{} // what matters is in the errors
		if a.endpoint != "" {
			o.BaseEndpoint = &a.endpoint
		}
	})
	once := func(ctx context.Context) error { return p.readKeyOnce(ctx, a, settings.Region) }
	if err := readKey(ctx, once); err != nil {
		_ = p.close()
		return nil, err
	}
	return p, nil
}

// awsTransport is the SDK's (proxies and AWS_CA_BUNDLE heeded), with times that
// leave room for a second try within a Signer's deadline, and a kept connection
// for each call that may run at once.
func awsTransport(settings aws.Config) *http.Transport {
	client, ok := settings.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	client = client.WithDialerOptions() // a copy of its own
	dialer := client.GetDialer()
	dialer.Timeout = time.Second
	transport := client.GetTransport()
	transport.DialContext = dialer.DialContext
	transport.TLSHandshakeTimeout = time.Second
	transport.MaxIdleConnsPerHost = DefaultConcurrency
	transport.IdleConnTimeout = 90 * time.Second
	return transport
}

// awsCredentials marks the errors of getting credentials as such.
type awsCredentials struct{ aws.CredentialsProvider }

func (c awsCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	credentials, err := c.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, noCredentials{err}
	}
	return credentials, nil
}

type noCredentials struct{ error }

func (n noCredentials) Unwrap() error { return n.error }

func (p *awsKMS) readKeyOnce(ctx context.Context, a awsAddress, region string) error {
	answer, err := p.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &a.key})
	if err != nil {
		return explainAWS(a.key+" in "+region, "kms:GetPublicKey", err)
	}
	const make = "make one with aws kms create-key --key-spec ECC_NIST_P256 --key-usage SIGN_VERIFY"
	arn := aws.ToString(answer.KeyId)
	switch {
	case arn != a.key && (a.arn || !awsARN.MatchString(arn) || !strings.HasSuffix(arn, ":key/"+a.key)):
		return transient{fmt.Errorf("AWS KMS gave the public key of %q and not of %q", arn, a.key)}
	case answer.KeyUsage != types.KeyUsageTypeSignVerify:
		return fmt.Errorf("AWS KMS: the key %s is for %s and not for SIGN_VERIFY; %s", a.key, answer.KeyUsage, make)
	case answer.KeySpec != types.KeySpecEccNistP256:
		return fmt.Errorf("AWS KMS: the key %s is of spec %s and es256 needs ECC_NIST_P256; %s", a.key, answer.KeySpec, make)
	case !slices.Contains(answer.SigningAlgorithms, types.SigningAlgorithmSpecEcdsaSha256):
		return fmt.Errorf("AWS KMS: the key %s does not sign by ECDSA_SHA_256 (only %v); %s", a.key, answer.SigningAlgorithms, make)
	}
	parsed, err := x509.ParsePKIXPublicKey(answer.PublicKey)
	if err != nil {
		return transient{fmt.Errorf("AWS KMS: the public key of %s does not parse: %w", a.key, err)}
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return errors.New("AWS KMS: the public key is not an elliptic curve one: es256 needs P-256")
	}
	p.key, p.arn = key, arn
	p.where = "AWS KMS, key …" + arn[strings.LastIndex(arn, "/"):] + " in " + strings.Split(arn, ":")[3]
	return nil
}
