package gcpkms

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// explain wraps an error of Google Cloud KMS with its meaning and what to do about it. It
// marks transient errors.
func explain(name, action string, err error) error {
	s, _ := status.FromError(err)
	wrap := func(what string) error {
		return fmt.Errorf("cannot %s %s in Google Cloud KMS: %s: %w", action, name, what, err)
	}
	switch s.Code() {
	case codes.Unavailable:
		return provider.Transient(wrap("the API is out of reach; if this lasts, check that the process can connect to cloudkms.googleapis.com:443 (or the endpoint of the URI), DNS and proxies included"))
	case codes.DeadlineExceeded:
		// The server's deadline may end shortly before the caller's.
		return provider.Transient(fmt.Errorf("%w: %w", context.DeadlineExceeded, wrap("the API did not answer in time; if this lasts, check that the process can connect to cloudkms.googleapis.com:443 (or the endpoint of the URI): a network policy drops packets silently")))
	case codes.ResourceExhausted:
		return provider.Transient(wrap("the quota of the project is used up; if this lasts, raise the quota of cryptographic requests"))
	case codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss, codes.Canceled:
		return provider.Transient(wrap("the API failed"))
	case codes.Unauthenticated:
		// The token could not be fetched or has expired. On a node that has just started,
		// the metadata server is not available for a moment.
		return provider.Transient(wrap("the API refused the credentials; if this lasts, check the Workload Identity binding, or GOOGLE_APPLICATION_CREDENTIALS"))
	case codes.PermissionDenied:
		key, _, _ := strings.Cut(name, "/cryptoKeyVersions/")
		return wrap("permission denied (or no such key): grant roles/cloudkms.signerVerifier on the key " + key + " to the service account of this process, and check that the Cloud KMS API is enabled in its project")
	case codes.NotFound:
		return wrap("no such key version: compare project, location and key ring with gcloud kms keys versions list")
	case codes.FailedPrecondition:
		return wrap(notUsable(s.Message()))
	case codes.InvalidArgument:
		if strings.HasPrefix(s.Message(), "digest") || strings.Contains(s.Message(), "crc32c") {
			return provider.Transient(wrap("the request was damaged on its way"))
		}
		return wrap("refused: es256 needs a key of purpose asymmetric-signing and algorithm ec-sign-p256-sha256")
	}
	return wrap("refused")
}

func notUsable(message string) string {
	switch {
	case strings.Contains(message, "DESTROY_SCHEDULED"):
		return "the key version is scheduled to be destroyed: run gcloud kms keys versions restore and then gcloud kms keys versions enable, at once, or name an enabled version"
	case strings.Contains(message, "DESTROYED"):
		return "the key version is destroyed and never comes back: name an enabled version, and publish its key first (runbooks/stolen-key.md, a key is lost)"
	case strings.Contains(message, "PENDING"):
		return "the key version is still being made: start again when gcloud kms keys versions list shows it as ENABLED"
	case strings.Contains(message, "not enabled"):
		return "the key version is not enabled: run gcloud kms keys versions enable, or name an enabled version"
	}
	return "the key version cannot be used: check its state, and that it is of purpose asymmetric-signing and algorithm ec-sign-p256-sha256 (gcloud kms keys versions describe)"
}
