package signing

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"github.com/aws/smithy-go"

	"github.com/fairpact/fairpact/internal/dev/kmstest"
)

func refuses(t *testing.T, uri string, want ...string) error {
	t.Helper()
	ctx := t.Context()
	if strings.HasSuffix(t.Name(), "/silent") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	_, err := Open(ctx, uri)
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
			t.Errorf("the credential %q is shown by the error: %v", secret, err)
		}
	}
	return err
}

func endpoints(t *testing.T) (closed, silent string) {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections although nothing calls Accept, so clients get no answer
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	unused := listen()
	_ = unused.Close()
	return unused.Addr().String(), listen().Addr().String()
}

func startGCP(t *testing.T) *kmstest.GCP {
	t.Helper()
	g, err := kmstest.StartGCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func TestGoogleCloudKMSRefusedAtStart(t *testing.T) {
	g := startGCP(t)
	if got, want := mustOpen(t, g.URI(g.NewKey())).Custody(), "Google Cloud KMS, HSM protection level, key …/cryptoKeys/key-1/cryptoKeyVersions/1"; got != want {
		t.Errorf("custody %q, want %q", got, want)
	}
	in := func(state kmspb.CryptoKeyVersion_CryptoKeyVersionState) string {
		name := g.NewKey()
		g.SetState(name, state)
		return g.URI(name)
	}
	of := func(algorithm kmspb.CryptoKeyVersion_CryptoKeyVersionAlgorithm) string {
		name := g.NewKey()
		g.SetAlgorithm(name, algorithm)
		return g.URI(name)
	}
	closed, silent := endpoints(t)
	const name = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
	const version = name + "/cryptoKeyVersions/1"
	at := func(endpoint string) string { return "gcpkms://" + version + "?plaintext=true&endpoint=" + endpoint }
	for what, c := range map[string]struct {
		uri  string
		want []string
	}{
		"RSA":                 {of(kmspb.CryptoKeyVersion_RSA_SIGN_PKCS1_2048_SHA256), []string{"is of algorithm RSA_SIGN_PKCS1_2048_SHA256", "EC_SIGN_P256_SHA256", "gcloud kms keys create", "ec-sign-p256-sha256"}},
		"disabled":            {in(kmspb.CryptoKeyVersion_DISABLED), []string{"not enabled", "gcloud kms keys versions enable"}},
		"to be destroyed":     {in(kmspb.CryptoKeyVersion_DESTROY_SCHEDULED), []string{"scheduled to be destroyed", "gcloud kms keys versions restore", "gcloud kms keys versions enable"}},
		"destroyed":           {in(kmspb.CryptoKeyVersion_DESTROYED), []string{"never comes back", "publish the public key of an enabled version first"}},
		"still being made":    {in(kmspb.CryptoKeyVersion_PENDING_GENERATION), []string{"still being made", "gcloud kms keys versions list"}},
		"no such version":     {g.URI(name + "/cryptoKeyVersions/7"), []string{"no such key version"}},
		"no version":          {"gcpkms://" + name, []string{"add /cryptoKeyVersions/N"}},
		"a version that is 0": {"gcpkms://" + name + "/cryptoKeyVersions/0", []string{"gcpkms://projects/P"}},
		"a version in words":  {"gcpkms://" + name + "/cryptoKeyVersions/latest", []string{"gcpkms://projects/P"}},
		"an unknown option":   {"gcpkms://" + version + "?tls=no", []string{"tls"}},
		"plaintext to Google": {"gcpkms://" + version + "?plaintext=true", []string{"endpoint=HOST:PORT"}},
		"out of reach":        {at(closed), []string{"out of reach"}},
		"silent":              {at(silent), []string{version, "cloudkms.googleapis.com:443", "if this lasts"}},
	} {
		t.Run(what, func(t *testing.T) { refuses(t, c.uri, c.want...) })
	}
	key := g.NewKey()
	for _, method := range []string{"GetPublicKey", "AsymmetricSign"} {
		t.Run("may not "+method, func(t *testing.T) {
			g.Deny(method, true)
			defer g.Deny(method, false)
			refuses(t, g.URI(key), "permission denied", "grant roles/cloudkms.signerVerifier on the key "+strings.TrimSuffix(key, "/cryptoKeyVersions/1")+" ", "Cloud KMS API is enabled")
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", t.TempDir()+"/none.json")
		refuses(t, "gcpkms://"+version, "Workload Identity")
	})
}

func TestAWSKeyForms(t *testing.T) {
	a := kmstest.NewAWS(t)
	for _, multiRegion := range []bool{false, true} {
		arn := a.NewKeyOf("ECC_NIST_P256", "SIGN_VERIFY", multiRegion)
		id := arn[strings.LastIndex(arn, "/")+1:]
		byID, byARN := mustOpen(t, a.URI(id)), mustOpen(t, a.URI(arn))
		if byID.PublicKey() != byARN.PublicKey() {
			t.Errorf("the id of %s opens another key, want the same", arn)
		}
		if want := "AWS KMS, key …/" + id + " in eu-central-1"; byID.Custody() != want || byARN.Custody() != want {
			t.Errorf("custody by id %q and by ARN %q, want %q", byID.Custody(), byARN.Custody(), want)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_KMS", a.URL()) // the SDK reads the endpoint from this variable
	mustOpen(t, "awskms:///"+a.NewKey())
}

func TestAWSKMSRefusedAtStart(t *testing.T) {
	a := kmstest.NewAWS(t)
	in := func(state string) string {
		arn := a.NewKey()
		a.SetState(arn, state)
		return a.URI(arn)
	}
	closed, silent := endpoints(t)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	good := a.NewKey()
	elsewhere := strings.Replace(good, "eu-central-1", "eu-west-1", 1)
	at := func(endpoint string) string { return "awskms:///" + good + "?endpoint=" + endpoint }

	// The SDK's model of KMS lacks the errors of these two cases. The first error is common to
	// all AWS services, and the second error does not come from AWS.
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
		"out of reach":       {at("http://" + closed), []string{"out of reach", "endpoint"}},
		"not KMS at all":     {at(other.URL), []string{"does not come from AWS KMS"}},
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
		"silent":             {at("http://" + silent), []string{good, "no answer in time", "kms.REGION.amazonaws.com:443", "VPC endpoint"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := refuses(t, c.uri, c.want...)
			// The SDK returns a GenericAPIError for an error name that its model of KMS lacks. KMS
			// itself sends no such name, so the fake KMS (package kmstest) is wrong.
			_, unknown := errors.AsType[*smithy.GenericAPIError](err)
			if _, sent := errors.AsType[smithy.APIError](err); sent && unknown && !unmodelled[name] {
				t.Errorf("the error's name is not in the service's model: %v", err)
			}
		})
	}
	for _, operation := range []string{"Sign", "GetPublicKey"} {
		t.Run("may not "+operation, func(t *testing.T) {
			a.Deny(operation, true)
			defer a.Deny(operation, false)
			refuses(t, a.URI(good), "allow kms:"+operation, good)
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		refuses(t, a.URI(good), "no credentials", "IRSA", "Pod Identity")
	})
}

// An operator may put a credential into a key's URI by mistake, and errors are logged.
func TestCredentialsInURIsAreNotShown(t *testing.T) {
	t.Parallel()
	const gcp = "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
	const aws = "awskms:///arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	for uri, says := range map[string]string{
		gcp + "?token=hunter2":                                     `"token"`,
		gcp + "?plaintext=hunter2":                                 `"plaintext"`,
		gcp + "?endpoint=u:hunter2@127.0.0.1:1":                    "'@'",
		gcp + "?plaintext=true&endpoint=u%3Ahunter2%40127.0.0.1:1": `"endpoint"`,
		gcp + "?endpoint=127.0.0.1:1&endpoint=hunter2":             `"endpoint"`,
		gcp + "?token=x%hu":                                        "does not parse",
		strings.Replace(gcp, "//", "//user:hunter2@", 1):           "'@'",
		aws + "?token=hunter2":                                     `"token"`,
		aws + "?region=hunter2":                                    `"region"`,
		aws + "?endpoint=https://u:hunter2@127.0.0.1:1":            "'@'",
		aws + "?endpoint=https%3A%2F%2Fu%3Ahunter2%40127.0.0.1":    `"endpoint"`,
		aws + "?token=x%hu":                                        "does not parse",
		strings.Replace(aws, "///", "//AKIA:hunter2@/", 1):         "'@'",
		"awskms:///alias/hunter2@x":                                "'@'",
		aws + "?endpoint=http://x/hunter2":                         `"endpoint"`,
	} {
		refuses(t, uri, says)
	}
}
