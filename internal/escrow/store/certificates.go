package store

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	certificatesSQL = query("certificates")
	setSignatureSQL = query("set_signature")
	publishSQL      = query("publish")
	signedFromSQL   = query("signed_from")
)

// Certificate is a stored certificate. It is pending while LeafIndex is nil.
type Certificate struct {
	CertID    string
	DealID    string
	Payload   []byte // the bytes that are signed
	MAC       []byte // HMAC of CertID and Payload under the server secret
	Signature *string
	LeafIndex *int64
}

// Certificate returns the certificate with this id, pending or published, or ErrNotFound.
func (s *Store) Certificate(ctx context.Context, certID string) (*Certificate, error) {
	return s.certificate(ctx, certificateBy{cert: certID})
}

// CertificateOf returns the certificate of a deal, pending or published, or ErrNotFound.
func (s *Store) CertificateOf(ctx context.Context, dealID string) (*Certificate, error) {
	return s.certificate(ctx, certificateBy{deal: dealID})
}

// certificateBy has the id of a certificate or of its deal. Only one field is set.
type certificateBy struct{ cert, deal string }

// certificateSize is the assumed size of a certificate in bytes, which bounds how many one statement
// reads. With 10,000 parties a certificate is about 50 times as large.
const certificateSize = 32 << 10

func (s *Store) certificate(ctx context.Context, by certificateBy) (*Certificate, error) {
	c, err := s.certificates.do(ctx, by)
	if err == nil && c == nil {
		return nil, ErrNotFound
	}
	return c, err
}

func (s *Store) newCertificates() *coalescer[certificateBy, *Certificate] {
	c := &coalescer[certificateBy, *Certificate]{size: func(certificateBy) int { return certificateSize }, waitsForPrevious: true}
	c.run = reads(s, certificatesSQL, func(unique []certificateBy) []any {
		certs, deals := make([]string, len(unique)), make([]string, len(unique))
		for i, q := range unique {
			certs[i], deals[i] = q.cert, q.deal
		}
		return []any{certs, deals}
	}, func(row pgx.CollectableRow, n *int, _ []certificateBy) (c *Certificate, err error) {
		c = &Certificate{}
		return c, row.Scan(n, &c.CertID, &c.DealID, &c.Payload, &c.MAC, &c.Signature, &c.LeafIndex)
	})
	return c.start(s.budget)
}

// SignedFrom calls `each` for every signed certificate that has no leaf yet or whose leaf index is at
// least leafIndex. DealID and MAC are not set.
func (s *Store) SignedFrom(ctx context.Context, leafIndex int64, each func(Certificate)) error {
	found, _ := s.pool.Query(ctx, signedFromSQL, leafIndex) // ForEachRow returns the error
	var c Certificate
	_, err := pgx.ForEachRow(found, []any{&c.CertID, &c.Payload, &c.Signature, &c.LeafIndex}, func() error {
		each(c)
		return nil
	})
	return translate(err)
}

// SetSignature stores the signature of a certificate in place of `old`, or of none. It changes nothing
// if the stored signature differs from `old`, or if the certificate has a leaf.
func (s *Store) SetSignature(ctx context.Context, certID, signature string, old *string) error {
	_, err := s.pool.Exec(ctx, setSignatureSQL, certID, signature, old)
	return translate(err)
}

// Publication is a certificate's signature and the index of its leaf.
type Publication struct {
	CertID    string
	Signature string
	LeafIndex int64
}

// Publish stores a certificate's signature and leaf index. It returns false and changes nothing if
// the certificate does not exist or is published already.
func (s *Store) Publish(ctx context.Context, p Publication) (bool, error) {
	return s.publications.do(ctx, p)
}

func (s *Store) newPublications() *coalescer[Publication, bool] {
	c := &coalescer[Publication, bool]{row: func(p Publication) string { return p.CertID }}
	c.run = func(ctx context.Context, all []Publication, _ bool) ([]bool, error) {
		// Sort by id: two processes that update the same certificates in different orders could deadlock.
		sorted := slices.SortedFunc(slices.Values(all), func(a, b Publication) int { return strings.Compare(a.CertID, b.CertID) })
		certs, signatures, leaves := make([]string, len(all)), make([]string, len(all)), make([]int64, len(all))
		for i, p := range sorted {
			certs[i], signatures[i], leaves[i] = p.CertID, p.Signature, p.LeafIndex
		}
		found, _ := s.pool.Query(ctx, publishSQL, certs, signatures, leaves) // CollectRows returns the error
		published, err := pgx.CollectRows(found, pgx.RowTo[string])
		done := make([]bool, len(all))
		for i, p := range all {
			done[i] = slices.Contains(published, p.CertID)
		}
		return done, err
	}
	return c.start(s.budget)
}
