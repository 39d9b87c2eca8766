package kmstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"math/big"
	"strings"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// AsymmetricSign signs a digest of the key's length and answers in DER with
// checksums, unless a fault is set.
func (g *GCP) AsymmetricSign(ctx context.Context, r *kmspb.AsymmetricSignRequest) (*kmspb.AsymmetricSignResponse, error) {
	key, err := g.version("AsymmetricSign", r.Name)
	if err != nil {
		return nil, err
	}
	digest, err := gcpDigest(key, r)
	if err != nil {
		return nil, err
	}
	fault, changed := g.take()
	if err := g.refuse(ctx, fault, changed, r.Name); err != nil {
		return nil, err
	}
	signature, err := sign(key.private, g.spare, digest, fault)
	if err != nil {
		return nil, err
	}
	answer := &kmspb.AsymmetricSignResponse{
		Signature: signature, SignatureCrc32C: wrapperspb.Int64(checksum(signature)),
		VerifiedDigestCrc32C: r.DigestCrc32C != nil, Name: r.Name, ProtectionLevel: key.level,
	}
	switch fault {
	case CorruptedCRC:
		answer.SignatureCrc32C.Value ^= 1
	case MissingCRC:
		answer.SignatureCrc32C = nil
	case UnverifiedDigest:
		answer.VerifiedDigestCrc32C = false
	case OtherKeyName:
		answer.Name = strings.TrimSuffix(r.Name, "1") + "2"
	}
	return answer, nil
}

// gcpDigest is the digest of a request, where it is of the algorithm's kind and
// length and its checksum is right.
func gcpDigest(key *gcpKey, r *kmspb.AsymmetricSignRequest) ([]byte, error) {
	digest, length := r.GetDigest().GetSha256(), 32
	if key.private.Curve == elliptic.P384() {
		digest, length = r.GetDigest().GetSha384(), 48
	}
	switch {
	case len(r.Data) > 0:
		return nil, status.Error(codes.InvalidArgument, "this server signs digests alone")
	case len(digest) == 0:
		return nil, status.Errorf(codes.InvalidArgument, "digest: the one for algorithm %s is required", key.algorithm)
	case len(digest) != length:
		return nil, status.Errorf(codes.InvalidArgument, "digest: %d bytes, expected %d for %s", len(digest), length, key.algorithm)
	case r.DigestCrc32C != nil && r.DigestCrc32C.Value != checksum(digest):
		return nil, status.Error(codes.InvalidArgument, "The checksum in field digest_crc32c did not match the data in field digest.")
	}
	return digest, nil
}

// refuse is the faults that give no answer.
func (g *GCP) refuse(ctx context.Context, fault Fault, changed <-chan struct{}, name string) error {
	switch fault {
	case Throttled:
		return status.Error(codes.ResourceExhausted, "Quota exceeded for quota metric 'Cryptographic requests' and limit 'Cryptographic requests per minute' of service 'cloudkms.googleapis.com'.")
	case ServerError:
		return status.Error(codes.Internal, "Internal error encountered.")
	case Overloaded:
		return status.Error(codes.Unavailable, "The service is currently unavailable.")
	case Denied:
		return status.Errorf(codes.PermissionDenied, "Permission 'cloudkms.cryptoKeyVersions.useToSign' denied on resource '%s' (or it may not exist).", name)
	case Hang:
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-changed:
			return status.Error(codes.Unavailable, "The service is currently unavailable.")
		}
	case CutConnection:
		g.mu.Lock()
		conns := g.conns
		g.mu.Unlock()
		_ = conns.cut()
		return status.Error(codes.Unavailable, "nobody hears this")
	}
	return nil
}

// sign signs as the fault wants it, in DER.
func sign(key, spare *ecdsa.PrivateKey, digest []byte, fault Fault) ([]byte, error) {
	switch fault {
	case GarbageDER:
		return []byte("0\x06\x02\x01\x01\x02\x02\x00"), nil
	case OtherKey:
		key = spare
	case OtherDigest:
		other := append([]byte(nil), digest...)
		other[0] ^= 1
		digest = other
	}
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest)
	if err != nil || fault != HighS {
		return signature, err
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &sig); err != nil {
		return nil, err
	}
	n := key.Params().N
	if sig.S.Cmp(new(big.Int).Rsh(n, 1)) <= 0 {
		sig.S.Sub(n, sig.S)
	}
	return asn1.Marshal(sig)
}
