package gcpkms

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// explain wraps an error of Google Cloud KMS with the likely cause and, where there is one, the
// remedy. If a retry may succeed, explain marks the error with provider.Transient.
func explain(name, action string, err error) error {
	s, _ := status.FromError(err)
	wrap := func(what string) error {
		return fmt.Errorf("cannot %s %s in Google Cloud KMS: %s: %w", action, name, what, err)
	}
	switch s.Code() {
	case codes.Unavailable:
		return provider.Transient(wrap("the API is out of reach; if this lasts, check DNS and proxies, and check that the process can connect to the endpoint in the URI (default: cloudkms.googleapis.com:443)"))
	case codes.DeadlineExceeded:
		// The server may report the deadline shortly before the caller's context ends. The
		// error then wraps context.DeadlineExceeded, as if the context had ended.
		return provider.Transient(fmt.Errorf("%w: %w", context.DeadlineExceeded, wrap("the API did not answer in time (a network policy may drop packets silently); if this lasts, check that the process can connect to the endpoint in the URI (default: cloudkms.googleapis.com:443)")))
	case codes.ResourceExhausted:
		return provider.Transient(wrap("the quota of the project is used up; if this lasts, raise the quota of cryptographic requests"))
	case codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss, codes.Canceled:
		return provider.Transient(wrap("the API failed"))
	case codes.Unauthenticated:
		// The token could not be fetched or has expired. Shortly after a node has started, its
		// metadata server is not available yet, so a retry may succeed.
		return provider.Transient(wrap("the credentials could not be fetched, or the API refused them; if this lasts, check the Workload Identity binding or GOOGLE_APPLICATION_CREDENTIALS"))
	case codes.PermissionDenied:
		key, _, _ := strings.Cut(name, "/cryptoKeyVersions/")
		return wrap("permission denied (or no such key): grant roles/cloudkms.signerVerifier on the key " + key + " to the service account of this process, and check that the Cloud KMS API is enabled in the project of the key")
	case codes.NotFound:
		return wrap("no such key version: compare the URI with the output of `gcloud kms keys versions list`")
	case codes.FailedPrecondition:
		return wrap(notUsable(s.Message()))
	case codes.InvalidArgument:
		if strings.HasPrefix(s.Message(), "digest") || strings.Contains(s.Message(), "crc32c") {
			return provider.Transient(wrap("the request was damaged on its way"))
		}
		return wrap("refused: use a key of purpose asymmetric-signing and algorithm ec-sign-p256-sha256 (for a log key: ec-sign-ed25519)")
	}
	return wrap("refused")
}

func notUsable(message string) string {
	switch {
	case strings.Contains(message, "DESTROY_SCHEDULED"):
		return "the key version is scheduled to be destroyed: run `gcloud kms keys versions restore` immediately, and then `gcloud kms keys versions enable`; or name an enabled version"
	case strings.Contains(message, "DESTROYED"):
		return "the key version is destroyed and never comes back: publish the public key of an enabled version first, and then name that version in the URI (runbooks/stolen-key.md, section \"A key is lost\")"
	case strings.Contains(message, "PENDING"):
		return "the key version is still being made: try again when `gcloud kms keys versions list` shows the version as ENABLED"
	case strings.Contains(message, "not enabled"):
		return "the key version is not enabled: run `gcloud kms keys versions enable`, or name an enabled version"
	}
	return "the key version cannot be used: check with `gcloud kms keys versions describe` that the version is ENABLED, and that its algorithm is EC_SIGN_P256_SHA256 (for a log key: EC_SIGN_ED25519)"
}
