package kmstest

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

// The messages of AWS KMS, by the member names of its service model.
type (
	awsRequest struct {
		KeyID            string   `json:"KeyId"`
		Message          []byte   `json:"Message"`
		MessageType      string   `json:"MessageType"`
		SigningAlgorithm string   `json:"SigningAlgorithm"`
		GrantTokens      []string `json:"GrantTokens"`
		DryRun           bool     `json:"DryRun"`
	}
	awsSignature struct {
		KeyID            string `json:"KeyId"`
		Signature        []byte `json:"Signature"`
		SigningAlgorithm string `json:"SigningAlgorithm"`
	}
	awsPublicKey struct {
		KeyID                 string   `json:"KeyId"`
		PublicKey             []byte   `json:"PublicKey"`
		CustomerMasterKeySpec string   `json:"CustomerMasterKeySpec"`
		KeySpec               string   `json:"KeySpec"`
		KeyUsage              string   `json:"KeyUsage"`
		SigningAlgorithms     []string `json:"SigningAlgorithms,omitempty"`
		KeyAgreement          []string `json:"KeyAgreementAlgorithms,omitempty"`
	}
	awsMetadata struct {
		AWSAccountID          string   `json:"AWSAccountId"`
		KeyID                 string   `json:"KeyId"`
		Arn                   string   `json:"Arn"`
		CreationDate          float64  `json:"CreationDate"` // Unix seconds
		Enabled               bool     `json:"Enabled"`
		Description           string   `json:"Description"`
		KeyUsage              string   `json:"KeyUsage"`
		KeyState              string   `json:"KeyState"`
		Origin                string   `json:"Origin"`
		KeyManager            string   `json:"KeyManager"`
		CustomerMasterKeySpec string   `json:"CustomerMasterKeySpec"`
		KeySpec               string   `json:"KeySpec"`
		SigningAlgorithms     []string `json:"SigningAlgorithms,omitempty"`
		KeyAgreement          []string `json:"KeyAgreementAlgorithms,omitempty"`
		MultiRegion           bool     `json:"MultiRegion"`
	}
)

// secp256k1 is the public key 1·G in SPKI, for Go has no such curve.
const secp256k1 = "3056301006072a8648ce3d020106052b8104000a03420004" +
	"79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"

var signingAlgorithms = map[string]string{"ECC_NIST_P256": "ECDSA_SHA_256", "ECC_NIST_P384": "ECDSA_SHA_384", "ECC_SECG_P256K1": "ECDSA_SHA_256"}

func (k *awsKey) algorithms() (signing, agreement []string) {
	switch {
	case k.usage == "SIGN_VERIFY":
		return []string{signingAlgorithms[k.spec]}, nil
	case k.usage == "KEY_AGREEMENT":
		return nil, []string{"ECDH"}
	}
	return nil, nil
}

// operate runs the operation that a request names. The fault is one that the
// HTTP side has to bring about.
func (a *AWS) operate(r *http.Request, body []byte) (any, Fault, error) {
	operation, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "TrentService.")
	if !ok || operation != "Sign" && operation != "GetPublicKey" && operation != "DescribeKey" {
		return nil, None, refused("UnknownOperationException", "")
	}
	a.mu.Lock()
	a.calls[operation]++
	a.mu.Unlock()
	var q awsRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, None, refused("SerializationException", "")
	}
	key, err := a.find(operation, q.KeyID)
	if err != nil {
		return nil, None, err
	}
	signing, agreement := key.algorithms()
	switch operation {
	case "DescribeKey":
		return map[string]awsMetadata{"KeyMetadata": {
			AWSAccountID: awsTestAccount, KeyID: key.id, Arn: key.arn, CreationDate: float64(key.made.UnixMilli()) / 1000,
			Enabled: key.state == "Enabled", KeyUsage: key.usage, KeyState: key.state, Origin: "AWS_KMS", KeyManager: "CUSTOMER",
			CustomerMasterKeySpec: key.spec, KeySpec: key.spec, SigningAlgorithms: signing, KeyAgreement: agreement, MultiRegion: key.multiRegion,
		}}, None, nil
	case "GetPublicKey":
		der, err := key.public()
		return awsPublicKey{key.arn, der, key.spec, key.spec, key.usage, signing, agreement}, None, err
	}
	return a.sign(r, key, q)
}

func (k *awsKey) public() ([]byte, error) {
	switch {
	case k.private != nil:
		return x509.MarshalPKIXPublicKey(&k.private.PublicKey)
	case k.spec == "ECC_SECG_P256K1":
		return hex.DecodeString(secp256k1)
	}
	return nil, refused("UnsupportedOperationException", "GetPublicKey is not supported for symmetric keys")
}

var awsKeyShape = regexp.MustCompile(`^(arn:aws:kms:[a-z0-9-]+:[0-9]{12}:key/)?([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|mrk-[0-9a-f]{32})$`)

// find gives a copy of a key that may be used.
func (a *AWS) find(operation, id string) (*awsKey, error) {
	if id == "" {
		return nil, refused("ValidationException", "1 validation error detected: Value null at 'keyId' failed to satisfy constraint: Member must not be null")
	}
	if !awsKeyShape.MatchString(id) {
		return nil, refused("NotFoundException", "Invalid keyId '%s'", id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key, ok := a.keys[id[strings.LastIndex(id, "/")+1:]]
	switch {
	case ok && strings.HasPrefix(id, "arn:") && id != key.arn, !ok:
		return nil, refused("NotFoundException", "Key '%s' does not exist", id)
	case a.denied[operation]:
		return nil, refused("AccessDeniedException", "User: arn:aws:sts::%s:assumed-role/fairpact/test is not authorized to perform: kms:%s on resource: %s because no identity-based policy allows the kms:%s action", awsTestAccount, operation, key.arn, operation)
	case operation == "DescribeKey":
	case key.state == "Disabled":
		return nil, refused("DisabledException", "%s is disabled.", key.arn)
	case key.state == "PendingDeletion":
		return nil, refused("KMSInvalidStateException", "%s is pending deletion.", key.arn)
	case key.state != "Enabled":
		return nil, refused("KMSInvalidStateException", "%s is in state %s.", key.arn, key.state)
	}
	copied := *key
	return &copied, nil
}

func (a *AWS) sign(r *http.Request, key *awsKey, q awsRequest) (any, Fault, error) {
	switch {
	case len(q.Message) == 0:
		return nil, None, refused("ValidationException", "1 validation error detected: Value null at 'message' failed to satisfy constraint: Member must not be null")
	case len(q.Message) > 4096:
		return nil, None, refused("ValidationException", "1 validation error detected: Value at 'message' failed to satisfy constraint: Member must have length less than or equal to 4096")
	case q.MessageType != "" && q.MessageType != "RAW" && q.MessageType != "DIGEST" && q.MessageType != "EXTERNAL_MU":
		return nil, None, refused("ValidationException", "1 validation error detected: Value '%s' at 'messageType' failed to satisfy constraint: Member must satisfy enum value set: [RAW, DIGEST, EXTERNAL_MU]", q.MessageType)
	case key.usage != "SIGN_VERIFY":
		return nil, None, refused("InvalidKeyUsageException", "%s key usage is %s which is not valid for Sign.", key.arn, key.usage)
	case q.SigningAlgorithm != signingAlgorithms[key.spec]:
		return nil, None, refused("InvalidKeyUsageException", "Algorithm %s is incompatible with key spec %s.", q.SigningAlgorithm, key.spec)
	}
	digest, length := q.Message, 32
	if key.spec == "ECC_NIST_P384" {
		length = 48
	}
	if q.MessageType != "DIGEST" {
		if sum := sha256.Sum256(q.Message); length == 32 {
			digest = sum[:]
		} else {
			sum := sha512.Sum384(q.Message)
			digest = sum[:]
		}
	}
	switch {
	case len(digest) != length:
		return nil, None, refused("ValidationException", "Digest is invalid length for algorithm %s.", q.SigningAlgorithm)
	case key.private == nil:
		return nil, None, refused("UnsupportedOperationException", "this server has no such curve")
	case q.DryRun:
		return nil, None, refused("DryRunOperationException", "The request would have succeeded, but the DryRun option is set.")
	}
	fault, changed := a.take()
	if err := refuseAWS(r, fault, changed, key.arn); err != nil {
		return nil, None, err
	}
	signature, err := sign(key.private, a.spare, digest, fault)
	answer := awsSignature{key.arn, signature, q.SigningAlgorithm}
	switch fault {
	case OtherKeyName:
		answer.KeyID = "arn:aws:kms:" + awsTestRegion + ":" + awsTestAccount + ":key/00000000-0000-0000-0000-000000000000"
	case OtherAlgorithm:
		answer.SigningAlgorithm = "ECDSA_SHA_512"
	}
	return answer, fault, err
}

// refuseAWS is the faults that give no answer.
func refuseAWS(r *http.Request, fault Fault, changed <-chan struct{}, arn string) error {
	switch fault {
	case Throttled:
		return refused("ThrottlingException", "You have exceeded the rate at which you may call KMS. Reduce the frequency of your calls.")
	case ServerError:
		return refused("KMSInternalException", "Internal failure")
	case Overloaded:
		return refused("ServiceUnavailableException", "Service is unable to handle request.")
	case KeyUnavailable:
		return refused("KeyUnavailableException", "%s is currently not available.", arn)
	case Denied:
		return refused("AccessDeniedException", "User: arn:aws:sts::%s:assumed-role/fairpact/test is not authorized to perform: kms:Sign on resource: %s because no identity-based policy allows the kms:Sign action", awsTestAccount, arn)
	case Hang:
		select {
		case <-r.Context().Done():
			return http.ErrAbortHandler
		case <-changed:
			return refused("ServiceUnavailableException", "Service is unable to handle request.")
		}
	case CutConnection:
		return http.ErrAbortHandler
	}
	return nil
}
