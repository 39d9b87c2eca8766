package awskms_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

func mustOpen(t *testing.T, uri string) *signing.Signer {
	t.Helper()
	signer, err := signing.Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func TestKeyForms(t *testing.T) {
	a := kmstest.NewAWS(t)
	for _, multiRegion := range []bool{false, true} {
		arn := a.NewKeyOf("ECC_NIST_P256", "SIGN_VERIFY", multiRegion)
		id := arn[strings.LastIndex(arn, "/")+1:]
		byID, byARN := mustOpen(t, a.URI(id)), mustOpen(t, a.URI(arn))
		if byID.PublicKey() != byARN.PublicKey() {
			t.Errorf("the id of %s opens another key", arn)
		}
		if want := "AWS KMS, key …/" + id + " in eu-central-1"; byID.Custody() != want || byARN.Custody() != want {
			t.Errorf("%q, %q; want %q", byID.Custody(), byARN.Custody(), want)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_KMS", a.URL()) // how the SDK names an endpoint
	mustOpen(t, "awskms:///"+a.NewKey())
}

// Each error says what to do.
func TestStartRefused(t *testing.T) {
	a := kmstest.NewAWS(t)
	in := func(state string) string {
		arn := a.NewKey()
		a.SetState(arn, state)
		return a.URI(arn)
	}
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + unused.Addr().String()
	unused.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	good := a.NewKey()
	elsewhere := strings.Replace(good, "eu-central-1", "eu-west-1", 1)
	at := func(endpoint string) string { return "awskms:///" + good + "?endpoint=" + endpoint }

	// These errors are common to AWS services, or do not come from AWS.
	unmodelled := map[string]bool{"the wrong region": true, "not KMS at all": true}
	for name, c := range map[string]struct {
		uri  string
		want []string
	}{
		"P-384":              {a.URI(a.NewKeyOf("ECC_NIST_P384", "SIGN_VERIFY", false)), []string{"ECC_NIST_P384", "--key-spec ECC_NIST_P256"}},
		"key agreement":      {a.URI(a.NewKeyOf("ECC_NIST_P256", "KEY_AGREEMENT", false)), []string{"KEY_AGREEMENT", "SIGN_VERIFY"}},
		"symmetric":          {a.URI(a.NewKeyOf("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", false)), []string{"not for signing", "SIGN_VERIFY"}},
		"no key material":    {in("PendingImport"), []string{"the key's state forbids its use", "PendingImport"}},
		"disabled":           {in("Disabled"), []string{"aws kms enable-key"}},
		"pending deletion":   {in("PendingDeletion"), []string{"aws kms cancel-key-deletion"}},
		"no such key":        {a.URI("00000000-1111-2222-3333-444444444444"), []string{"no such key", "one region", "00000000-1111-2222-3333-444444444444"}},
		"another account's":  {a.URI(strings.Replace(good, "111122223333", "999999999999", 1)), []string{"no such key", "account"}},
		"out of reach":       {at(closed), []string{"out of reach", "endpoint"}},
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
		t.Run(name, func(t *testing.T) {
			err := refuses(t, t.Context(), c.uri, c.want...)
			// If the SDK does not know the error's name, kmstest sends an error that
			// Amazon never sends.
			_, unknown := errors.AsType[*smithy.GenericAPIError](err)
			if _, sent := errors.AsType[smithy.APIError](err); sent && unknown && !unmodelled[name] {
				t.Errorf("not in the service's model: %v", err)
			}
		})
	}
	for _, operation := range []string{"Sign", "GetPublicKey"} {
		t.Run("may not "+operation, func(t *testing.T) {
			a.Deny(operation, true)
			defer a.Deny(operation, false)
			refuses(t, t.Context(), a.URI(good), "allow kms:"+operation, good)
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		refuses(t, t.Context(), a.URI(good), "no credentials", "IRSA", "Pod Identity")
	})
}

// An endpoint accepts connections and never answers, as behind a network policy that
// lets only the handshake through.
func TestSilentEndpoint(t *testing.T) {
	a := kmstest.NewAWS(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel completes handshakes
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	key := a.NewKey()
	refuses(t, ctx, "awskms:///"+key+"?endpoint=http://"+l.Addr().String(), key, "no answer in time", "kms.REGION.amazonaws.com:443", "VPC endpoint")
}

func refuses(t *testing.T, ctx context.Context, uri string, want ...string) error {
	t.Helper()
	_, err := signing.Open(ctx, uri)
	if err == nil {
		t.Fatal("opened")
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nwants %q", err, part)
		}
	}
	for _, secret := range []string{"of-no-account", "hunter2", "%hu"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q is shown by %v", secret, err)
		}
	}
	return err
}

// An operator may put a credential into a key's URI. The error says what is wrong
// and does not copy the credential into the log.
func TestCredentialsInURIsAreNotShown(t *testing.T) {
	t.Parallel()
	const aws = "awskms:///arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	for uri, says := range map[string]string{
		aws + "?token=hunter2":                                  `"token"`,
		aws + "?region=hunter2":                                 `"region"`,
		aws + "?endpoint=https://u:hunter2@127.0.0.1:1":         "'@'",
		aws + "?endpoint=https%3A%2F%2Fu%3Ahunter2%40127.0.0.1": `"endpoint"`,
		aws + "?token=x%hu":                                     "does not parse",
		strings.Replace(aws, "///", "//AKIA:hunter2@/", 1):      "'@'",
		"awskms:///alias/hunter2@x":                             "'@'",
		aws + "?endpoint=http://x/hunter2":                      `"endpoint"`,
	} {
		refuses(t, t.Context(), uri, says)
	}
}
