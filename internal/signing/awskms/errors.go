package awskms

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fairpact/fairpact/internal/signing/provider"
)

// explain wraps an error of AWS KMS with its meaning and what to do about it. It marks
// transient errors.
// https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html
func explain(key, action string, err error) error {
	wrap := func(what string) error {
		return fmt.Errorf("AWS KMS: %s of the key %s: %s: %w", action, key, what, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return provider.Transient(wrap("no answer in time; if this lasts, check that the process can connect to kms.REGION.amazonaws.com:443 (or the endpoint of the URI; in a private network a VPC endpoint)"))
	}
	if _, is := errors.AsType[noCredentials](err); is {
		// A pod may start a moment before its identity is available.
		return provider.Transient(wrap("no credentials were found; if this lasts: in EKS give the pod's service account a role, by IRSA (eks.amazonaws.com/role-arn) or Pod Identity, and check that it can reach STS; elsewhere set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"))
	}
	if refusal, is := errors.AsType[smithy.APIError](err); is {
		switch refusal.ErrorCode() {
		case "ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException":
			return provider.Transient(wrap("the request quota of the account in this region is used up (all its ECC keys share one); if this lasts, ask for a higher one in Service Quotas"))
		case "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException",
			"InternalFailure", "InternalError", "InternalServerError", "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException":
			return provider.Transient(wrap("the service failed"))
		case "ExpiredTokenException", "ExpiredToken", "RequestExpired":
			return provider.Transient(wrap("the credentials have expired; if this lasts, check what renews them (IRSA, Pod Identity), and the clock of this machine"))
		case "AccessDeniedException", "AccessDenied", "NotAuthorized":
			return wrap("access denied: allow " + action + " on this key to the role of this process, in its IAM policy or in the key policy (kms:Sign and kms:GetPublicKey are all that is needed)")
		case "DisabledException":
			return wrap("the key is disabled: run aws kms enable-key, or name another key")
		case "KMSInvalidStateException":
			return wrap("the key's state forbids its use; if it is pending deletion, run aws kms cancel-key-deletion and then aws kms enable-key at once")
		case "NotFoundException":
			return wrap("no such key: compare with aws kms list-keys; a key lives in one region and one account (name one of another account by its ARN)")
		case "InvalidKeyUsageException", "UnsupportedOperationException":
			return wrap("the key is not for signing: es256 needs one made with aws kms create-key --key-spec ECC_NIST_P256 --key-usage SIGN_VERIFY")
		case "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationToken", "MissingAuthenticationTokenException":
			return wrap("AWS does not know these credentials: check which ones the process finds (environment, profile, role), and that they belong to the same partition as the key")
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
		return provider.Transient(wrap("the endpoint is out of reach or broke the connection; if this lasts, check that the process can connect to kms.REGION.amazonaws.com:443 (or the endpoint of the URI; in a private network a VPC endpoint), DNS and proxies included"))
	}
	// The answer is not a complete answer of KMS: it may be a proxy's page, half an answer
	// or a redirect.
	refusal, named := errors.AsType[smithy.APIError](err)
	_, answered := errors.AsType[*smithyhttp.ResponseError](err)
	if answered && (!named || refusal.ErrorCode() == "UnknownError") {
		return provider.Transient(wrap("the answer was damaged on its way, or is not of AWS KMS: check which server is at the endpoint"))
	}
	return wrap("refused")
}
