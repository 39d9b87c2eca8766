package escrow

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

// checked holds facts of a certificate's payload, and the key that signed the payload.
type checked struct {
	certID, dealID string
	outcome        string
	rootWellFormed bool
	key            keys.Key
}

// verdict returns what check found for a certificate, if this process remembers it.
func (s *Service) verdict(entry [32]byte, signature string) (checked, bool) {
	return s.verified.Get(verdictKey(entry, signature))
}

func verdictKey(entry [32]byte, signature string) hash {
	return sha256.Sum256(append(append([]byte("cert\x00"), entry[:]...), signature...))
}

// check verifies the signature of a stored certificate, and caches what it found. If only the
// signature is invalid, it returns the payload's facts with an error.
func (s *Service) check(c *store.Certificate, entry [32]byte) (checked, error) {
	if known, ok := s.verdict(entry, *c.Signature); ok {
		return known, nil
	}
	payload, err := certificate.Parse(c.Payload)
	if err != nil {
		return checked{}, err
	}
	facts := checked{certID: payload.CertID, dealID: payload.DealID, outcome: payload.Outcome, rootWellFormed: payload.InputRootWellFormed()}
	if facts.key, err = s.keys.SignerOf(c.Payload, *c.Signature); err != nil {
		return facts, fmt.Errorf("signature of the certificate: %w", err)
	}
	s.verified.Add(verdictKey(entry, *c.Signature), facts, 256)
	return facts, nil
}

// inspected is the report on a stored certificate, with its proof against the newest tree head. The
// other checks of package verification follow from this service's own signature.
type inspected struct {
	checked
	verification.Report
	proof certificate.LogProof
	head  certificate.TreeHead
	cause error // why the first failed check failed: LOG_INCONSISTENT
}

func (i *inspected) add(check string, err error) {
	i.Add(verification.Check{Name: check, OK: err == nil})
	if i.cause == nil && err != nil {
		i.cause = err
		if !problem.Is(err, problem.LogInconsistent) {
			i.cause = problem.New(problem.LogInconsistent, "the stored certificate does not verify; tell the operator of this deployment").WithCause(err)
		}
	}
}

// inspect checks a stored certificate that has a leaf and a payload, or whose verdict the caller passes as `known`. It
// returns LOG_UNAVAILABLE instead of a report if the log is out of reach, because a report would
// call a valid certificate invalid.
func (s *Service) inspect(ctx context.Context, c *store.Certificate, known *checked) (inspected, error) {
	i := inspected{Report: verification.Report{Valid: true, Checks: make([]verification.Check, 0, 5)}}
	// Verify the proof before the certificate. During a key rotation this process may lack the key
	// that signed both. The caller must then get LOG_UNAVAILABLE, because the certificate is not
	// known to be invalid.
	entry, err := c.Entry(), error(nil)
	if i.proof, i.head, err = s.prove(ctx, entry, *c.LeafIndex); err != nil && !problem.Is(err, problem.LogInconsistent) {
		return i, err
	}
	i.add(verification.TreeHeadSignature, err)
	i.add(verification.MerkleInclusion, err)
	if c.Signature == nil {
		i.add(verification.Signature, fmt.Errorf("certificate %s has a leaf but no signature", c.CertID))
		return i, nil
	}
	if known != nil {
		i.checked, err = *known, nil
	} else {
		if len(c.Payload) >= budget.MaxSmall {
			if err := budget.From(ctx).Long(ctx); err != nil {
				return i, err
			}
		}
		i.checked, err = s.check(c, entry)
	}
	if err == nil && i.certID != c.CertID {
		err = fmt.Errorf("the row of certificate %s contains certificate %s", c.CertID, i.certID)
	}
	i.add(verification.Signature, err)
	var misshapen error
	if !i.rootWellFormed || i.certID != c.CertID || i.outcome != certificate.Computed && i.outcome != certificate.Void {
		misshapen = fmt.Errorf("the payload of certificate %s is damaged", c.CertID)
	}
	i.add(verification.InputRootForm, misshapen)
	// A certificate that a key signed after its retirement may be the work of a thief of the key.
	if err == nil && !i.key.MaySignLeaf(*c.LeafIndex) {
		i.add(verification.KeyInForce, fmt.Errorf("leaf %d is signed by the key %s, which retired at tree size %d", *c.LeafIndex, i.key.Label, *i.key.TreeSize))
	}
	return i, nil
}

// prove verifies an inclusion proof of an entry and the signature of its tree head. Its errors are
// those of logTrouble.
func (s *Service) prove(ctx context.Context, entry [32]byte, leaf int64) (certificate.LogProof, certificate.TreeHead, error) {
	in, err := s.log.Inclusion(ctx, entry, leaf)
	if err == nil {
		err = s.checkHead(in.TreeHead)
	}
	proof := certificate.LogProof{TreeSize: in.TreeSize, LeafIndex: leaf, InclusionPath: append([]string{}, in.Path...)}
	if err == nil {
		if wrong := certificate.VerifyInclusion(entry, proof, in.RootHash); wrong != nil {
			err = fmt.Errorf("%w: %w", translog.ErrInconsistent, wrong)
		}
	}
	if err != nil {
		return certificate.LogProof{}, certificate.TreeHead{}, logTrouble(err)
	}
	return proof, in.TreeHead, nil
}

// checkHead verifies the signature of a tree head, and caches the result. An unknown key is not
// ErrInconsistent: during a key rotation, log-server may sign with a key that this process lacks.
func (s *Service) checkHead(head certificate.TreeHead) error {
	key, err := s.keys.SignerOf(head.Message(), head.Signature) // which remembers it
	if err != nil {
		return fmt.Errorf("tree head of size %d: %w", head.TreeSize, err)
	}
	if !key.MaySignLeaf(head.TreeSize - 1) {
		return fmt.Errorf("%w: the tree head of size %d is signed by the key %s, which retired at tree size %d: every verifier refuses this head", translog.ErrInconsistent, head.TreeSize, key.Label, *key.TreeSize)
	}
	return nil
}

// logTrouble returns LOG_INCONSISTENT if the log contradicts itself or the certificate,
// and LOG_UNAVAILABLE for any other error.
func logTrouble(err error) error {
	if errors.Is(err, translog.ErrInconsistent) || errors.Is(err, translog.ErrNotFound) {
		return problem.New(problem.LogInconsistent, "the transparency log does not prove this certificate; tell the operator of this deployment").WithCause(err)
	}
	return problem.New(problem.LogUnavailable, "the transparency log is out of reach and nothing was lost; call again in a few seconds").WithRetryAfter(2).WithCause(err)
}
