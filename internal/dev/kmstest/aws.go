package kmstest

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	awsTestRegion  = "eu-central-1"
	awsTestAccount = "111122223333"
)

// AWS is a server on the loopback that serves Sign and GetPublicKey of AWS KMS over HTTP
// (the JSON 1.1 protocol, version 2014-11-01). The server checks the form and the region
// of a request's SigV4 header. It does not verify the SigV4 signature, so any well-formed
// credentials work.
type AWS struct {
	server
	keys map[string]*awsKey // by id; guarded by server.mu
}

type awsKey struct {
	arn, spec, usage, state string
	private                 crypto.Signer
}

// StartAWS starts the fake AWS KMS on a free port.
func StartAWS() (*AWS, error) {
	a := &AWS{keys: map[string]*awsKey{}}
	return a, a.start(func(l net.Listener) func() {
		s := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = s.Serve(l) }()
		return func() { _ = s.Close() }
	})
}

// NewAWS starts the server for a test and sets credentials in the environment, so
// the test must not be parallel.
func NewAWS(t testing.TB) *AWS {
	t.Helper()
	a, err := StartAWS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KMS", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	for _, setting := range a.Env() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	return a
}

// URL returns the endpoint, which stays the same when the server comes back after the fault Down.
func (a *AWS) URL() string { return "http://" + a.Addr() }

// Env returns the environment variables with credentials for a process that calls the server.
func (a *AWS) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY=of-no-account", "AWS_EC2_METADATA_DISABLED=true"}
}

// NewKey makes an enabled ECC_NIST_P256 key for signing and returns its ARN.
func (a *AWS) NewKey() string { return a.NewKeyOf("ECC_NIST_P256", "SIGN_VERIFY", false) }

// NewLogKey makes an enabled ECC_NIST_EDWARDS25519 key for signing and returns its ARN.
func (a *AWS) NewLogKey() string { return a.NewKeyOf(specEd25519, "SIGN_VERIFY", false) }

const specEd25519 = "ECC_NIST_EDWARDS25519"

func (k awsKey) signs() (algorithm, messageType string) {
	if k.spec == specEd25519 {
		return "ED25519_SHA_512", "RAW"
	}
	return "ECDSA_SHA_256", "DIGEST"
}

// NewKeyOf makes an enabled key and returns the key's ARN. The server reports the given
// spec and usage for the key. The private key is on P-256 unless the spec is Ed25519.
func (a *AWS) NewKeyOf(spec, usage string, multiRegion bool) string {
	var random [16]byte
	_, _ = rand.Read(random[:])
	text := hex.EncodeToString(random[:])
	id := fmt.Sprintf("%s-%s-%s-%s-%s", text[:8], text[8:12], text[12:16], text[16:20], text[20:])
	if multiRegion {
		id = "mrk-" + text
	}
	arn := "arn:aws:kms:" + awsTestRegion + ":" + awsTestAccount + ":key/" + id
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[id] = &awsKey{arn, spec, usage, "Enabled", newP256()}
	if spec == specEd25519 {
		a.keys[id].private = newEd25519()
	}
	return arn
}

// SetState sets the state of a key: Enabled, Disabled, PendingDeletion and so on.
func (a *AWS) SetState(arn, state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[idOf(arn)].state = state
}

func idOf(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

// URI returns the URI of a key on this server, for a key set. `key` is the key's
// ARN or id.
func (a *AWS) URI(key string) string {
	return "awskms:///" + key + "?region=" + awsTestRegion + "&endpoint=" + url.QueryEscape(a.URL())
}

type awsRefusal struct {
	status        int
	kind, message string
}

var awsRefusals = map[Fault]awsRefusal{
	Throttled:      {400, "ThrottlingException", "You have exceeded the rate at which you may call KMS. Reduce the frequency of your calls."},
	ServerError:    {500, "KMSInternalException", "Internal failure"},
	Overloaded:     {503, "ServiceUnavailableException", "Service is unable to handle request."},
	KeyUnavailable: {500, "KeyUnavailableException", "The key is currently not available."},
	Denied:         {400, "AccessDeniedException", "User: arn:aws:sts::" + awsTestAccount + ":assumed-role/fairpact/test is not authorized to perform this action, because no identity-based policy allows it"},
	Redirected:     {status: http.StatusTemporaryRedirect},
}

var sigV4 = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=[A-Za-z0-9]{16,128}/[0-9]{8}/([a-z0-9-]+)/kms/aws4_request, ?SignedHeaders=[a-z0-9;-]+, ?Signature=[0-9a-f]{64}$`)

// ServeHTTP implements http.Handler.
func (a *AWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	answer, refusal := a.operate(w, r)
	if refusal.status != 0 {
		answer = map[string]any{"__type": refusal.kind, "message": refusal.message}
		w.Header().Set("x-amzn-ErrorType", refusal.kind)
		w.Header().Set("Location", "/elsewhere") // clients ignore it unless the status is a redirect
		w.WriteHeader(refusal.status)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
}

func (a *AWS) operate(w http.ResponseWriter, r *http.Request) (map[string]any, awsRefusal) {
	operation := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "TrentService.")
	var q struct {
		KeyID            string `json:"KeyId"`
		Message          []byte
		MessageType      string
		SigningAlgorithm string
	}
	authorization := sigV4.FindStringSubmatch(r.Header.Get("Authorization"))
	err := json.NewDecoder(r.Body).Decode(&q)
	key, refusal := a.find(operation, q.KeyID)
	algorithm, messageType := key.signs()
	switch {
	case err != nil:
		return nil, awsRefusal{400, "SerializationException", ""}
	case authorization == nil:
		return nil, awsRefusal{400, "MissingAuthenticationTokenException", "Missing Authentication Token"}
	case authorization[1] != awsTestRegion:
		return nil, awsRefusal{400, "InvalidSignatureException", "Credential should be scoped to a valid region."}
	case refusal.status != 0:
		return nil, refusal
	case operation != "Sign" && key.usage == "ENCRYPT_DECRYPT":
		return nil, awsRefusal{400, "UnsupportedOperationException", "GetPublicKey is not supported for symmetric keys"}
	case operation != "Sign":
		der, err := x509.MarshalPKIXPublicKey(key.private.Public())
		if err != nil {
			panic(err)
		}
		return map[string]any{"KeyId": key.arn, "PublicKey": der, "KeySpec": key.spec, "KeyUsage": key.usage, "SigningAlgorithms": []string{algorithm}}, refusal
	case q.SigningAlgorithm != algorithm || q.MessageType != messageType || messageType == "DIGEST" && len(q.Message) != 32 || key.usage != "SIGN_VERIFY":
		return nil, awsRefusal{400, "ValidationException", "Digest is invalid length for algorithm " + q.SigningAlgorithm + "."}
	}
	fault, changed := a.take()
	answer := map[string]any{"KeyId": key.arn, "Signature": signed(key.private, q.Message, fault), "SigningAlgorithm": algorithm}
	switch fault {
	case Hang:
		select {
		case <-r.Context().Done():
		case <-changed:
		}
		panic(http.ErrAbortHandler)
	case CutConnection:
		panic(http.ErrAbortHandler)
	case TruncatedBody:
		_, _ = w.Write([]byte(`{"KeyId":`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case OtherKeyName:
		answer["KeyId"] = "arn:aws:kms:" + awsTestRegion + ":" + awsTestAccount + ":key/00000000-0000-0000-0000-000000000000"
	case OtherAlgorithm:
		answer["SigningAlgorithm"] = "ECDSA_SHA_512"
	}
	return answer, awsRefusals[fault]
}

func (a *AWS) find(operation, id string) (awsKey, awsRefusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[operation]++
	key, ok := a.keys[idOf(id)]
	switch {
	case !ok || strings.HasPrefix(id, "arn:") && id != key.arn:
		return awsKey{}, awsRefusal{400, "NotFoundException", "Key '" + id + "' does not exist"}
	case a.denied[operation]:
		return awsKey{}, awsRefusals[Denied]
	case key.state == "Disabled":
		return awsKey{}, awsRefusal{400, "DisabledException", key.arn + " is disabled."}
	case key.state != "Enabled":
		return awsKey{}, awsRefusal{400, "KMSInvalidStateException", key.arn + " is in state " + key.state + "."}
	}
	return *key, awsRefusal{}
}
