package signing

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// startAWS serves KMS and gives this process the credentials to call it; so such
// tests are not parallel, but their subtests may be.
func startAWS(t *testing.T) *kmstest.AWS {
	t.Helper()
	a, err := kmstest.StartAWS()
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

func TestAWSConforms(t *testing.T) {
	a := startAWS(t)
	key := a.NewKey()
	conformance(t, func(t *testing.T) *Signer { return mustOpenPatiently(t, a.URI(key)) })
	remoteConformance(t, remoteCase{
		start: func() (remote, error) { return kmstest.StartAWS() },
		sign:  "Sign", publicKey: "GetPublicKey",
		lacks: []kmstest.Fault{kmstest.CorruptedCRC, kmstest.MissingCRC, kmstest.UnverifiedDigest},
	})
}

// What only HTTP has: each passes, and is ErrUnavailable where it lasts.
func TestAWSFaultsOfItsOwn(t *testing.T) {
	a := startAWS(t)
	signer, err := open(t.Context(), a.URI(a.NewKey()), patient)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []kmstest.Fault{kmstest.OtherAlgorithm, kmstest.TruncatedBody, kmstest.KeyUnavailable, kmstest.Redirected} {
		if err := a.FailTimes(fault, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := signer.Sign(t.Context(), [32]byte{1}); err != nil {
			t.Errorf("%s once: %v", fault, err)
		}
		if err := a.SetFault(fault); err != nil {
			t.Fatal(err)
		}
		if signature, err := signer.Sign(t.Context(), [32]byte{1}); signature != "" || outcome(err) != "unavailable" {
			t.Errorf("%s for good: %q, %v", fault, signature, err)
		}
	}
}

func TestAWSKeyForms(t *testing.T) {
	a := startAWS(t)
	for _, multiRegion := range []bool{false, true} {
		arn := a.NewKeyOf("ECC_NIST_P256", "SIGN_VERIFY", multiRegion)
		id := arn[strings.LastIndex(arn, "/")+1:]
		byID, byARN := mustOpen(t, a.URI(id)), mustOpen(t, a.URI(arn))
		if byID.PublicKey() != byARN.PublicKey() {
			t.Errorf("%s is another key by its id", arn)
		}
		if want := "AWS KMS, key …/" + id + " in eu-central-1"; byID.Custody() != want || byARN.Custody() != want {
			t.Errorf("%q, %q; want %q", byID.Custody(), byARN.Custody(), want)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_KMS", a.URL()) // the SDK's own way to name an endpoint
	mustOpen(t, "awskms:///"+a.NewKey())
}

// A key that cannot sign stops the start, and the message names the mend.
func TestAWSStartRefused(t *testing.T) {
	a := startAWS(t)
	in := func(state string) string {
		arn := a.NewKey()
		a.SetState(arn, state)
		return a.URI(arn)
	}
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + unused.Addr().String()
	unused.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	good := a.NewKey()
	elsewhere := strings.Replace(good, "eu-central-1", "eu-west-1", 1)
	at := func(endpoint string) string { return "awskms:///" + good + "?endpoint=" + endpoint }

	for name, c := range map[string]struct {
		uri  string
		want []string
	}{
		"P-384":              {a.URI(a.NewKeyOf("ECC_NIST_P384", "SIGN_VERIFY", false)), []string{"ECC_NIST_P384", "--key-spec ECC_NIST_P256"}},
		"secp256k1":          {a.URI(a.NewKeyOf("ECC_SECG_P256K1", "SIGN_VERIFY", false)), []string{"ECC_SECG_P256K1", "--key-spec ECC_NIST_P256"}},
		"key agreement":      {a.URI(a.NewKeyOf("ECC_NIST_P256", "KEY_AGREEMENT", false)), []string{"KEY_AGREEMENT", "SIGN_VERIFY"}},
		"symmetric":          {a.URI(a.NewKeyOf("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", false)), []string{"not for signing", "SIGN_VERIFY"}},
		"disabled":           {in("Disabled"), []string{"aws kms enable-key"}},
		"pending deletion":   {in("PendingDeletion"), []string{"aws kms cancel-key-deletion"}},
		"no such key":        {a.URI("00000000-1111-2222-3333-444444444444"), []string{"no such key", "one region", "00000000-1111-2222-3333-444444444444"}},
		"another account's":  {a.URI(strings.Replace(good, "111122223333", "999999999999", 1)), []string{"no such key", "account"}},
		"out of reach":       {at(nobody), []string{"out of reach", "endpoint"}},
		"not KMS at all":     {at(other.URL), []string{"is not of AWS KMS"}},
		"the wrong region":   {"awskms:///" + elsewhere + "?endpoint=" + a.URL(), []string{"AWS KMS", "request's own signature"}},
		"regions disagree":   {"awskms:///" + good + "?region=us-east-1", []string{"region=us-east-1", "eu-central-1", "leave region out"}},
		"no region":          {"awskms:///00000000-1111-2222-3333-444444444444", []string{"no region", "?region="}},
		"alias":              {"awskms:///alias/fairpact?region=eu-central-1", []string{"alias", "describe-key"}},
		"alias by ARN":       {"awskms:///arn:aws:kms:eu-central-1:111122223333:alias/fairpact", []string{"alias", "describe-key"}},
		"two slashes":        {"awskms://" + good, []string{"three slashes"}},
		"no key":             {"awskms:///", []string{"three slashes"}},
		"half an ARN":        {"awskms:///arn:aws:kms:eu-central-1:key/x", []string{"arn:aws:kms:REGION:ACCOUNT:key/ID"}},
		"an unknown option":  {a.URI(good) + "&plaintext=true", []string{`"plaintext"`}},
		"endpoint of a host": {at("kms.internal:443"), []string{"endpoint=https://HOST"}},
	} {
		t.Run(name, func(t *testing.T) { refusesToOpen(t, c.uri, c.want...) })
	}
	for _, operation := range []string{"Sign", "GetPublicKey"} {
		t.Run("may not "+operation, func(t *testing.T) {
			a.Deny(operation, true)
			defer a.Deny(operation, false)
			refusesToOpen(t, a.URI(good), "allow kms:"+operation, good)
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		refusesToOpen(t, a.URI(good), "no credentials", "IRSA", "Pod Identity")
	})
}

func refusesToOpen(t *testing.T, uri string, want ...string) {
	t.Helper()
	_, err := open(t.Context(), uri, quick)
	if err == nil {
		t.Fatal("opened")
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nwants %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "of-no-account") {
		t.Errorf("the secret key shows: %v", err)
	}
}
