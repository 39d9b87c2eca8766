package awskms

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// explain wraps an error of AWS KMS with the likely cause and, where there is one, the remedy.
// If a retry may succeed, explain marks the error with provider.Transient. The error codes:
// https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html
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
