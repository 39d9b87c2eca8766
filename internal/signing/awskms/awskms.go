// Package awskms signs with a key in AWS KMS. It needs only the permissions
// kms:GetPublicKey and kms:Sign on that key.
package awskms

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go/logging"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

type key struct {
	kind      provider.Kind
	client    *kms.Client
	transport *http.Transport
	named     address
	arn       string // the key's ARN, as AWS returned it
}

func (k *key) spec() types.KeySpec {
	if k.kind == provider.Ed25519 {
		return types.KeySpecEccNistEdwards25519
	}
	return types.KeySpecEccNistP256
}

func (k *key) algorithm() types.SigningAlgorithmSpec {
	if k.kind == provider.Ed25519 {
		return types.SigningAlgorithmSpecEd25519Sha512
	}
	return types.SigningAlgorithmSpecEcdsaSha256
}

// Open returns a Provider for the key that an awskms URI names. `rest` is the URI without
// "awskms:". Open does not call AWS KMS. Credentials come from the SDK's default chain (in
// EKS: IRSA or Pod Identity).
func Open(ctx context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
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
		return nil, fmt.Errorf("AWS KMS: cannot load the AWS settings of this process (environment, profile): %w", err)
	}
	if settings.Region == "" {
		return nil, fmt.Errorf("AWS KMS: no region for the key %s: name the key by its ARN, or add ?region=REGION to the awskms URI", a.key)
	}
	a.region = settings.Region
	k := &key{kind: kind, transport: newTransport(settings), named: a}
	settings.Credentials = marked{settings.Credentials}
	k.client = kms.NewFromConfig(settings, func(o *kms.Options) {
		// Package signing retries, so the KMS client does not. Calls to STS, which issues
		// the credentials, keep the SDK's retries.
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.HTTPClient = &http.Client{
			Transport:     k.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		o.Logger = logging.Nop{} // the returned errors contain what the SDK would log
		if a.endpoint != "" {
			o.BaseEndpoint = &a.endpoint
		}
	})
	return k, nil
}

// maxCalls is the maximum number of concurrent calls of a signing.Signer.
const maxCalls = 32

// newTransport returns a copy of the SDK's transport, which supports proxies and AWS_CA_BUNDLE.
// Its timeouts leave time for a second try within a Signer's deadline.
func newTransport(settings aws.Config) *http.Transport {
	client, ok := settings.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	client = client.WithDialerOptions() // makes a copy
	dialer := client.GetDialer()
	dialer.Timeout = time.Second
	transport := client.GetTransport()
	transport.DialContext = dialer.DialContext
	transport.TLSHandshakeTimeout = time.Second
	transport.MaxIdleConnsPerHost = maxCalls
	transport.IdleConnTimeout = 90 * time.Second
	return transport
}

// marked marks the errors of a credentials provider for explain.
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

// Key implements provider.Provider. It refuses a key whose spec, usage or
// algorithm does not fit k.kind.
func (k *key) Key(ctx context.Context) (crypto.PublicKey, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	named, purpose := k.named.key, "es256"
	if k.kind == provider.Ed25519 {
		purpose = "a log key"
	}
	answer, err := k.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &named})
	if err != nil {
		return nil, "", explain(named+" in "+k.named.region, "kms:GetPublicKey", err)
	}
	remedy := fmt.Sprintf("make a new key with `aws kms create-key --key-spec %s --key-usage SIGN_VERIFY`", k.spec())
	arn := aws.ToString(answer.KeyId)
	switch {
	case arn != named && (k.named.isARN || !keyARN.MatchString(arn) || !strings.HasSuffix(arn, ":key/"+named)):
		return nil, "", provider.Transient(fmt.Errorf("AWS KMS returned the public key of %q instead of %q", arn, named))
	case answer.KeyUsage != types.KeyUsageTypeSignVerify:
		return nil, "", fmt.Errorf("AWS KMS: the key %s is for %s, not for SIGN_VERIFY; %s", named, answer.KeyUsage, remedy)
	case answer.KeySpec != k.spec():
		return nil, "", fmt.Errorf("AWS KMS: the key %s is of spec %s, but %s needs %s; %s", named, answer.KeySpec, purpose, k.spec(), remedy)
	case !slices.Contains(answer.SigningAlgorithms, k.algorithm()):
		return nil, "", fmt.Errorf("AWS KMS: the key %s does not sign with %s (only %v); %s", named, k.algorithm(), answer.SigningAlgorithms, remedy)
	}
	public, err := x509.ParsePKIXPublicKey(answer.PublicKey)
	if err != nil {
		return nil, "", provider.Transient(fmt.Errorf("AWS KMS: the public key of %s does not parse: %w", named, err))
	}
	k.arn = arn
	return public, "AWS KMS, key …" + arn[strings.LastIndex(arn, "/"):] + " in " + strings.Split(arn, ":")[3], nil
}

// Sign implements provider.Provider. It checks that the answer names this key and the key's
// algorithm. AWS sends no checksums. Package signing verifies the signature, and so detects a
// damaged answer. AWS accepts Ed25519 messages of at most 4,096 bytes.
func (k *key) Sign(ctx context.Context, data []byte) ([]byte, error) {
	form := types.MessageTypeDigest
	if k.kind == provider.Ed25519 {
		form = types.MessageTypeRaw
	}
	answer, err := k.client.Sign(ctx, &kms.SignInput{KeyId: &k.arn, Message: data, MessageType: form, SigningAlgorithm: k.algorithm()})
	switch {
	case err != nil:
		return nil, explain(k.arn, "kms:Sign", err)
	case aws.ToString(answer.KeyId) != k.arn:
		return nil, provider.Transient(fmt.Errorf("AWS KMS signed with the key %q instead of %q", aws.ToString(answer.KeyId), k.arn))
	case answer.SigningAlgorithm != k.algorithm():
		return nil, provider.Transient(fmt.Errorf("AWS KMS signed with the algorithm %q instead of %s", answer.SigningAlgorithm, k.algorithm()))
	}
	return answer.Signature, nil
}

func (k *key) Close() error {
	k.transport.CloseIdleConnections()
	return nil
}

// nodeNets are the networks on which a node serves credentials over plain HTTP. The instance
// metadata service (IMDS) serves the credentials of the node. The Pod Identity agent serves the
// credentials of the node's pods.
var nodeNets = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fd00:ec2::/32"),
}

// newHTTP returns the SDK's HTTP client. Requests to nodeNets bypass the proxy, because a proxy
// could read their unencrypted tokens and credentials.
func newHTTP() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.Proxy = nodeDirectly(t.Proxy) })
}

func nodeDirectly(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		ip, err := netip.ParseAddr(r.URL.Hostname())
		if err == nil && slices.ContainsFunc(nodeNets, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) }) {
			return nil, nil
		}
		return proxy(r)
	}
}
