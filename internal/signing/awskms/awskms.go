// Package awskms signs with a key in AWS KMS. It needs kms:GetPublicKey and
// kms:Sign on that key and nothing else.
package awskms

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

	"github.com/fairpact/fairpact/internal/signing/transient"
)

// Provider is a key in AWS KMS.
type Provider struct {
	client    *kms.Client
	transport *http.Transport
	named     address
	arn       string // of the key, as the service returned it
}

// Open prepares the calls for the key that an awskms URI names; rest is what
// follows its scheme and colon. Credentials are those of the default chain (in
// EKS: IRSA or Pod Identity).
func Open(ctx context.Context, rest string) (*Provider, error) {
	a, err := parse(strings.TrimPrefix(rest, "//"))
	if err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(newHTTP())}
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
	a.region = settings.Region
	p := &Provider{transport: newTransport(settings), named: a}
	settings.Credentials = marked{settings.Credentials}
	p.client = kms.NewFromConfig(settings, func(o *kms.Options) {
		// The Signer retries. STS, which issues the credentials, keeps the retries of
		// the SDK.
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.HTTPClient = &http.Client{
			Transport:     p.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		o.Logger = logging.Nop{} // what matters is in the errors
		if a.endpoint != "" {
			o.BaseEndpoint = &a.endpoint
		}
	})
	return p, nil
}

// maxCalls is how many calls a Signer makes at once.
const maxCalls = 32

// newTransport returns the SDK's transport (with its proxies and AWS_CA_BUNDLE),
// with timeouts that leave room for a second try within a Signer's deadline, and
// an idle connection for each call that may run at once.
func newTransport(settings aws.Config) *http.Transport {
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
	transport.MaxIdleConnsPerHost = maxCalls
	transport.IdleConnTimeout = 90 * time.Second
	return transport
}

// marked marks the errors of getting credentials as such.
type marked struct{ aws.CredentialsProvider }

func (m marked) Retrieve(ctx context.Context) (aws.Credentials, error) {
	credentials, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, noCredentials{err}
	}
	return credentials, nil
}

type noCredentials struct{ error }

func (n noCredentials) Unwrap() error { return n.error }

// Key reads the public key, and refuses a key that cannot sign by ECDSA_SHA_256.
func (p *Provider) Key(ctx context.Context) (*ecdsa.PublicKey, string, error) {
	parsed, custody, err := p.read(ctx, "es256", types.KeySpecEccNistP256, types.SigningAlgorithmSpecEcdsaSha256)
	if err != nil {
		return nil, "", err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return nil, "", errors.New("AWS KMS: the public key is not an elliptic curve one: es256 needs P-256")
	}
	return key, custody, nil
}

// read reads the public key, and refuses a key of another spec or algorithm than its
// purpose needs.
func (p *Provider) read(ctx context.Context, purpose string, spec types.KeySpec, algorithm types.SigningAlgorithmSpec) (public any, custody string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	named := p.named.key
	answer, err := p.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &named})
	if err != nil {
		return nil, "", explain(named+" in "+p.named.region, "kms:GetPublicKey", err)
	}
	make := fmt.Sprintf("make one with aws kms create-key --key-spec %s --key-usage SIGN_VERIFY", spec)
	arn := aws.ToString(answer.KeyId)
	switch {
	case arn != named && (p.named.isARN || !keyARN.MatchString(arn) || !strings.HasSuffix(arn, ":key/"+named)):
		return nil, "", transient.Error(fmt.Errorf("AWS KMS returned the public key of %q and not of %q", arn, named))
	case answer.KeyUsage != types.KeyUsageTypeSignVerify:
		return nil, "", fmt.Errorf("AWS KMS: the key %s is for %s and not for SIGN_VERIFY; %s", named, answer.KeyUsage, make)
	case answer.KeySpec != spec:
		return nil, "", fmt.Errorf("AWS KMS: the key %s is of spec %s and %s needs %s; %s", named, answer.KeySpec, purpose, spec, make)
	case !slices.Contains(answer.SigningAlgorithms, algorithm):
		return nil, "", fmt.Errorf("AWS KMS: the key %s does not sign by %s (only %v); %s", named, algorithm, answer.SigningAlgorithms, make)
	}
	parsed, err := x509.ParsePKIXPublicKey(answer.PublicKey)
	if err != nil {
		return nil, "", transient.Error(fmt.Errorf("AWS KMS: the public key of %s does not parse: %w", named, err))
	}
	p.arn = arn
	return parsed, "AWS KMS, key …" + arn[strings.LastIndex(arn, "/"):] + " in " + strings.Split(arn, ":")[3], nil
}

// Sign sends the digest, not the message.
func (p *Provider) Sign(ctx context.Context, digest [32]byte) ([]byte, error) {
	return p.sign(ctx, digest[:], types.MessageTypeDigest, types.SigningAlgorithmSpecEcdsaSha256)
}

// sign checks that this very key signed. AWS sends no checksums: any other damage
// shows when the signature is verified.
func (p *Provider) sign(ctx context.Context, message []byte, kind types.MessageType, algorithm types.SigningAlgorithmSpec) ([]byte, error) {
	answer, err := p.client.Sign(ctx, &kms.SignInput{KeyId: &p.arn, Message: message, MessageType: kind, SigningAlgorithm: algorithm})
	switch {
	case err != nil:
		return nil, explain(p.arn, "kms:Sign", err)
	case aws.ToString(answer.KeyId) != p.arn:
		return nil, transient.Error(fmt.Errorf("AWS KMS signed with %q and not with %q", aws.ToString(answer.KeyId), p.arn))
	case answer.SigningAlgorithm != algorithm:
		return nil, transient.Error(fmt.Errorf("AWS KMS signed by %q and not by %s", answer.SigningAlgorithm, algorithm))
	}
	return answer.Signature, nil
}

// Close closes the idle connections.
func (p *Provider) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}
