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
)

// Certificate is a stored certificate. It is pending while LeafIndex is nil.
type Certificate struct {
	CertID    string
	DealID    string
	Payload   []byte // the signing bytes
	MAC       []byte // over CertID and Payload, under the server secret
	Signature *string
	LeafIndex *int64
}

// Certificate reads one by its id, pending or not, or ErrNotFound.
func (s *Store) Certificate(ctx context.Context, certID string) (*Certificate, error) {
	return s.certificate(ctx, certificateBy{cert: certID})
}

// CertificateOf reads the certificate of a deal, pending or not, or ErrNotFound.
func (s *Store) CertificateOf(ctx context.Context, dealID string) (*Certificate, error) {
	return s.certificate(ctx, certificateBy{deal: dealID})
}

// certificateBy names a certificate by one of the two; the other is empty.
type certificateBy struct{ cert, deal string }

// certificateSize is more than a certificate of a few parties has, in bytes. One
// of 10,000 parties has 50 times as much: a group of them stays bounded.
const certificateSize = 32 << 10

func (s *Store) certificate(ctx context.Context, by certificateBy) (*Certificate, error) {
	c, err := s.certificates.do(ctx, by)
	if err == nil && c == nil {
		return nil, ErrNotFound
	}
	return c, err
}

func (s *Store) newCertificates() *coalescer[certificateBy, *Certificate] {
	c := &coalescer[certificateBy, *Certificate]{size: func(certificateBy) int { return certificateSize }}
	c.run = func(ctx context.Context, calls []certificateBy, _ bool) ([]*Certificate, error) {
		unique, at := distinct(calls)
		certs, deals := make([]string, len(unique)), make([]string, len(unique))
		for i, q := range unique {
			certs[i], deals[i] = q.cert, q.deal
		}
		rows, err := s.pool.Query(ctx, certificatesSQL, certs, deals)
		if err != nil {
			return nil, err
		}
		found := make([]*Certificate, len(unique))
		err = each(func(row pgx.CollectableRow) error {
			var n int
			var c Certificate
			err := row.Scan(&n, &c.CertID, &c.DealID, &c.Payload, &c.MAC, &c.Signature, &c.LeafIndex)
			found[n-1] = &c
			return err
		})(rows)
		answers := make([]*Certificate, len(calls))
		for i, n := range at {
			answers[i] = found[n]
		}
		return answers, err
	}
	return c.start(s.budget)
}

// SetSignature keeps a signature for a certificate that the log did not take
// yet, in the place of old (nil: none), so that an outage of the log costs no
// second signature. Where somebody else was faster it does nothing.
func (s *Store) SetSignature(ctx context.Context, certID, signature string, old *string) error {
	_, err := s.pool.Exec(ctx, setSignatureSQL, certID, signature, old)
	return outage(err)
}

// Publication is a certificate's signature and the index of its leaf.
type Publication struct {
	CertID    string
	Signature string
	LeafIndex int64
}

// Publish stores signature and leaf. It is false where somebody else has
// published the certificate: what they stored stands.
func (s *Store) Publish(ctx context.Context, p Publication) (bool, error) {
	return s.publications.do(ctx, p)
}

func (s *Store) newPublications() *coalescer[Publication, bool] {
	c := &coalescer[Publication, bool]{row: func(p Publication) string { return p.CertID }}
	c.run = func(ctx context.Context, all []Publication, _ bool) ([]bool, error) {
		// In the order of their ids, or two groups of two processes deadlock.
		sorted := slices.SortedFunc(slices.Values(all), func(a, b Publication) int { return strings.Compare(a.CertID, b.CertID) })
		certs, signatures, leaves := make([]string, len(all)), make([]string, len(all)), make([]int64, len(all))
		for i, p := range sorted {
			certs[i], signatures[i], leaves[i] = p.CertID, p.Signature, p.LeafIndex
		}
		rows, err := s.pool.Query(ctx, publishSQL, certs, signatures, leaves)
		if err != nil {
			return nil, err
		}
		published, err := pgx.CollectRows(rows, pgx.RowTo[string])
		done := make([]bool, len(all))
		for i, p := range all {
			done[i] = slices.Contains(published, p.CertID)
		}
		return done, err
	}
	return c.start(s.budget)
}
