package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var (
	certificateSQL  = query("certificate")
	setSignatureSQL = query("set_signature")
	setLeafSQL      = query("set_leaf")
	dueSQL          = query("due")
	completeSQL     = query("complete")
)

// Certificate is a stored certificate. It is pending while LeafIndex is nil.
type Certificate struct {
	CertID    string
	Payload   []byte // the signing bytes
	MAC       []byte // over CertID and Payload, under the server secret
	Signature *string
	LeafIndex *int64
}

// Certificate reads one, pending or not, or ErrNotFound.
func (s *Store) Certificate(ctx context.Context, certID string) (*Certificate, error) {
	var c Certificate
	err := s.pool.QueryRow(ctx, certificateSQL, certID).Scan(&c.CertID, &c.Payload, &c.MAC, &c.Signature, &c.LeafIndex)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return &c, outage(err)
}

// SetSignature stores a signature in the place of old (nil: none) while the
// certificate has no leaf. ECDSA signs differently each time, so the first one
// stored wins: read the certificate again.
func (s *Store) SetSignature(ctx context.Context, certID, signature string, old *string) error {
	_, err := s.pool.Exec(ctx, setSignatureSQL, certID, signature, old)
	return outage(err)
}

// SetLeaf publishes the certificate: its entry is the leaf at index. It is false
// where somebody else has published it.
func (s *Store) SetLeaf(ctx context.Context, certID string, index int64) (bool, error) {
	changed, err := s.pool.Exec(ctx, setLeafSQL, certID, index)
	return changed.RowsAffected() > 0, outage(err)
}

// Due is a deal that wants attention In milliseconds from now; 0 or less: at once.
type Due struct {
	DealID string
	In     int64
}

// Due lists the deals whose deadline is at most horizon seconds away and those
// whose certificate is pending; at most limit of each kind. Complete deals of
// random.v1 whose round came out or whose last reveal came less than drawDelay
// seconds ago are left to their parties.
func (s *Store) Due(ctx context.Context, horizon int64, limit int, drawDelay int64) ([]Due, error) {
	rows, err := s.pool.Query(ctx, dueSQL, horizon, limit, drawDelay)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Due])
	return all, outage(err)
}

// Complete lists deals in which nobody is missing and that were not advanced.
// It looks at every active deal: call it more rarely than Due.
func (s *Store) Complete(ctx context.Context, limit int) ([]string, error) {
	rows, err := s.pool.Query(ctx, completeSQL, limit)
	if err != nil {
		return nil, outage(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return all, outage(err)
}
