// Package awskms signs with a key in AWS KMS. It needs only the permissions
// kms:GetPublicKey and kms:Sign on that key.
package awskms

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

type address struct {
	key      string
	isARN    bool
	region   string // from the ARN or the query; empty if neither names a region
	endpoint string // a URL; empty for the SDK's default
}

const idShape = `(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|mrk-[0-9a-f]{32})`

var (
	keyID       = regexp.MustCompile(`^` + idShape + `$`)
	keyARN      = regexp.MustCompile(`^arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/` + idShape + `$`)
	regionShape = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
)

func parse(rest string) (address, error) {
	path, options, err := provider.ParseURI("awskms", rest, "AWS's default chain (IRSA, Pod Identity, the environment)",
		"region=REGION and endpoint=https://HOST (a private endpoint or an emulator)",
		map[string]func(string) bool{"region": regionShape.MatchString, "endpoint": isEndpoint})
	if err != nil {
		return address{}, err
	}
	key, slash := strings.CutPrefix(path, "/")
	a := address{key: key, region: options["region"], endpoint: options["endpoint"]}
	arn := keyARN.FindStringSubmatch(key)
	switch {
	case !slash || key == "":
		return a, fmt.Errorf("the awskms URI has %q after awskms://: write awskms:///KEY with three slashes, where KEY is a key ARN or key id", path)
	case arn != nil && a.region != "" && a.region != arn[1]:
		return a, fmt.Errorf("the awskms URI has region=%s, but the key ARN names the region %s: leave region out of the URI", a.region, arn[1])
	case arn != nil:
		a.isARN, a.region = true, arn[1]
	case keyID.MatchString(key):
	case strings.HasPrefix(key, "alias/") || strings.Contains(key, ":alias/"):
		return a, fmt.Errorf("the awskms URI names the alias %q, which may be moved to another key while the service runs: name the key itself by the ARN that `aws kms describe-key` shows", key)
	default:
		return a, fmt.Errorf("the awskms URI names %q, which is neither a key ARN nor a key id: write an ARN (arn:aws:kms:REGION:ACCOUNT:key/ID) or an id (a UUID, or mrk- and 32 hex digits)", key)
	}
	return a, nil
}

func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
}

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

// Open returns a Provider for the key that an awskms URI names. `rest` is the URI without "awskms:".
// Credentials come from the SDK's default chain (in EKS: IRSA or Pod Identity).
func Open(ctx context.Context, rest string, kind provider.Kind) (provider.Provider, error) {
	a, err := parse(rest)
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
		// Package signing retries. Calls to STS, which issues the credentials, keep the SDK's retries.
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

// newTransport leaves time for a second try within a Signer's deadline.
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

// Key refuses a key whose spec, usage or algorithm does not fit k.kind.
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

// Sign checks that the answer names this key and its algorithm. AWS sends no checksums: package signing
// detects a damaged answer. AWS accepts Ed25519 messages of at most 4,096 bytes.
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

// nodeNets are the networks on which the instance metadata service (IMDS) and the Pod Identity agent of a
// node serve credentials over plain HTTP.
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

// explain adds the likely cause and the remedy to an error of AWS KMS
// (https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html).
func explain(key, action string, err error) error {
	wrap := func(what string) error {
		return fmt.Errorf("AWS KMS: %s on the key %s: %s: %w", action, key, what, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return provider.Transient(wrap("no answer in time; if this lasts, check that the process can connect to the endpoint in the URI (default: kms.REGION.amazonaws.com:443; a private network needs a VPC endpoint)"))
	}
	if _, is := errors.AsType[noCredentials](err); is {
		// A pod may start shortly before its credentials are available, so a retry may succeed.
		return provider.Transient(wrap("no credentials could be obtained; if this lasts: (1) in EKS, give the pod's service account a role by IRSA (annotation eks.amazonaws.com/role-arn) or by Pod Identity, and check that the pod can connect to STS or to the Pod Identity agent; (2) elsewhere, set AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"))
	}
	if refusal, is := errors.AsType[smithy.APIError](err); is {
		switch refusal.ErrorCode() {
		case "ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException":
			return provider.Transient(wrap("the request quota of the account in this region is used up (all ECC keys of the account share it); if this lasts, request a higher quota in Service Quotas"))
		case "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException",
			"InternalFailure", "InternalError", "InternalServerError", "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException":
			return provider.Transient(wrap("the service failed"))
		case "ExpiredTokenException", "ExpiredToken", "RequestExpired":
			return provider.Transient(wrap("the credentials have expired; if this lasts, check that IRSA or Pod Identity renews them, and that the clock of this machine is right"))
		case "AccessDeniedException", "AccessDenied", "NotAuthorized":
			return wrap("access denied: allow " + action + " on this key to the role of this process, in the role's IAM policy or in the key policy (the process needs only kms:Sign and kms:GetPublicKey)")
		case "DisabledException":
			return wrap("the key is disabled: run `aws kms enable-key`, or name another key")
		case "KMSInvalidStateException":
			return wrap("the key's state forbids its use; if the key is pending deletion, run `aws kms cancel-key-deletion` immediately, and then `aws kms enable-key`")
		case "NotFoundException":
			return wrap("no such key (a key exists in one region and one account): compare the URI with the output of `aws kms list-keys`, and name a key of another account by its ARN")
		case "InvalidKeyUsageException", "UnsupportedOperationException":
			return wrap("the key is not for signing: make a key with `aws kms create-key --key-usage SIGN_VERIFY --key-spec ECC_NIST_P256` (for a log key: ECC_NIST_EDWARDS25519)")
		case "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationToken", "MissingAuthenticationTokenException":
			return wrap("AWS does not know these credentials: check which credentials the process uses (environment, profile, role), and that they belong to the same AWS partition as the key")
		case "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "IncompleteSignatureException":
			return wrap("AWS refused the request's own signature: check that the clock of this machine is right to within 5 minutes, and that the secret access key is complete")
		}
	}
	if answer, is := errors.AsType[*smithyhttp.ResponseError](err); is {
		if status := answer.HTTPStatusCode(); status >= 500 || status == 429 || status == 408 {
			return provider.Transient(wrap(fmt.Sprintf("the service failed with HTTP %d", status)))
		}
	}
	if _, is := errors.AsType[*smithyhttp.RequestSendError](err); is {
		return provider.Transient(wrap("the endpoint is out of reach or broke the connection; if this lasts, check DNS and proxies, and check that the process can connect to the endpoint in the URI (default: kms.REGION.amazonaws.com:443; a private network needs a VPC endpoint)"))
	}
	// An HTTP answer without an error code may be a proxy's page, a redirect or a truncated
	// answer. If the code is missing, the SDK returns no APIError, or one with the code UnknownError.
	refusal, named := errors.AsType[smithy.APIError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	if answered && (!named || refusal.ErrorCode() == "UnknownError") {
		return provider.Transient(wrap("the answer is damaged or does not come from AWS KMS: check which server answers at the endpoint"))
	}
	return wrap("refused")
}
