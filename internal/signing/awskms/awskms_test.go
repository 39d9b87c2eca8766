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
			t.Errorf("%s is another key by its id", arn)
		}
		if want := "AWS KMS, key …/" + id + " in eu-central-1"; byID.Custody() != want || byARN.Custody() != want {
			t.Errorf("%q, %q; want %q", byID.Custody(), byARN.Custody(), want)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_KMS", a.URL()) // the SDK's own way to name an endpoint
	mustOpen(t, "awskms:///"+a.NewKey())
}

// A key that cannot sign stops the start, and the message says what to do.
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
	nobody := "http://" + unused.Addr().String()
	unused.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	good := a.NewKey()
	elsewhere := strings.Replace(good, "eu-central-1", "eu-west-1", 1)
	at := func(endpoint string) string { return "awskms:///" + good + "?endpoint=" + endpoint }

	// Not of KMS's own model, but common to AWS services, or no answer of AWS.
	unmodelled := map[string]bool{"the wrong region": true, "not KMS at all": true}
	for name, c := range map[string]struct {
		uri  string
		want []string
	}{
		"P-384":              {a.URI(a.NewKeyOf("ECC_NIST_P384", "SIGN_VERIFY", false)), []string{"ECC_NIST_P384", "--key-spec ECC_NIST_P256"}},
		"secp256k1":          {a.URI(a.NewKeyOf("ECC_SECG_P256K1", "SIGN_VERIFY", false)), []string{"ECC_SECG_P256K1", "--key-spec ECC_NIST_P256"}},
		"key agreement":      {a.URI(a.NewKeyOf("ECC_NIST_P256", "KEY_AGREEMENT", false)), []string{"KEY_AGREEMENT", "SIGN_VERIFY"}},
		"symmetric":          {a.URI(a.NewKeyOf("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", false)), []string{"not for signing", "SIGN_VERIFY"}},
		"no key material":    {in("PendingImport"), []string{"the key's state forbids its use", "PendingImport"}},
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
		t.Run(name, func(t *testing.T) {
			err := refuses(t, t.Context(), c.uri, c.want...)
			// An error of the service's model that the SDK does not know by its name is
			// one that Amazon never sends.
			_, unknown := errors.AsType[*smithy.GenericAPIError](err)
			if _, sent := errors.AsType[smithy.APIError](err); sent && unknown && !unmodelled[name] {
				t.Errorf("not of the service's model: %v", err)
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

// A silent endpoint takes connections and never answers, as behind a network
// policy that lets the handshake through.
func TestSilentEndpoint(t *testing.T) {
	a := kmstest.NewAWS(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects; nobody accepts
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
	if strings.Contains(err.Error(), "of-no-account") {
		t.Errorf("the secret key shows: %v", err)
	}
	return err
}

// Who puts a credential into a key's URI is told that it does not belong there,
// and does not find it in the log.
func TestURIsWithACredentialAreNotShown(t *testing.T) {
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
		"awskms:///AKIA:hunter2@111122223333":                   "'@'",
		aws + "?endpoint=http://x/hunter2":                      `"endpoint"`,
	} {
		_, err := signing.Open(t.Context(), uri)
		switch {
		case err == nil:
			t.Errorf("%s: opened", uri)
		case strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "%hu"):
			t.Errorf("%s: shown by %q", uri, err)
		case !strings.Contains(err.Error(), says):
			t.Errorf("%s: %q, want a word on %s", uri, err, says)
		}
	}
}
