package store

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/deal"
)

// Ending is the end of a deal. Commits and Reveals are the counts in the snapshot from which the
// caller computed the ending.
type Ending struct {
	DealID          string
	Parties         int
	From, To        deal.State
	Commits         int
	Reveals         int
	RevealsClosedAt *int64
	ComputedAt      *int64
	Result          []byte
	VoidFlakers     []int
	CertID          *string // nil: no certificate
	Payload         []byte  // the bytes of the certificate that are signed
	MAC             []byte  // HMAC of CertID and Payload under the server secret
	At              int64   // time of the end in unix seconds
}

// End stores the end of a deal. It returns false and stores nothing if the deal has changed since e was
// computed. One with a large result has a statement of its own, so that no other deal waits for it.
func (s *Store) End(ctx context.Context, e *Ending) (bool, error) {
	if s.endings.size(e) <= SmallWrite {
		done, err := s.endings.do(ctx, e)
		return done.ended, err
	}
	done, err := largeWrite(ctx, s, 0, func(ctx context.Context, endings []*Ending, _ bool) ([]ended, error) {
		return s.endings.run(ctx, endings, true) // waits for the deal's lock
	}, e)
	return done.ended, err
}

type ended struct{ free, ended bool }

func (s *Store) newEndings() *coalescer[*Ending, ended] {
	c := &coalescer[*Ending, ended]{
		row:     func(e *Ending) string { return e.DealID },
		deal:    func(e *Ending) string { return e.DealID },
		size:    func(e *Ending) int { return len(e.Payload) + len(e.Result) },
		skipped: func(e ended) bool { return !e.free },
	}
	c.run = func(ctx context.Context, endings []*Ending, wait bool) ([]ended, error) {
		deals, args := endingColumns(endings)
		batch := &pgx.Batch{}
		switch {
		case wait:
			batch.Queue(sql("lock_wait"), deals)
		case !allRevealed(endings):
			batch.Queue(sql("lock"), deals)
		}
		var done []ended
		batch.Queue(sql("end"), args...).Query(each(func(row pgx.CollectableRow) error {
			var e ended
			err := row.Scan(&e.free, &e.ended)
			done = append(done, e)
			return err
		}))
		err := s.pool.SendBatch(ctx, batch).Close()
		return done, err
	}
	return c.start(s.slots)
}

// allRevealed reports whether every party of every deal has revealed. If so, the deals accept no
// more inserts, and end.sql can run without lock.sql.
func allRevealed(endings []*Ending) bool {
	return !slices.ContainsFunc(endings, func(e *Ending) bool { return e.Reveals < e.Parties })
}

func endingColumns(endings []*Ending) (deals []string, args []any) {
	var from, to []deal.State
	var commits, reveals []int
	var closed, computed []*int64
	var results, payloads, macs [][]byte
	var flakers, certs []*string
	var at []int64
	for _, e := range endings {
		deals, from, to = append(deals, e.DealID), append(from, e.From), append(to, e.To)
		commits, reveals = append(commits, e.Commits), append(reveals, e.Reveals)
		closed, computed = append(closed, e.RevealsClosedAt), append(computed, e.ComputedAt)
		results, payloads, macs = append(results, e.Result), append(payloads, e.Payload), append(macs, e.MAC)
		flakers, certs, at = append(flakers, intArray(e.VoidFlakers)), append(certs, e.CertID), append(at, e.At)
	}
	return deals, []any{deals, from, to, commits, reveals, closed, computed, results, flakers, certs, payloads, macs, at}
}

// intArray returns numbers as the text of an int[]. An SQL array of arrays cannot hold
// one list for each deal, because its inner arrays must have equal lengths.
func intArray(numbers []int) *string {
	if numbers == nil {
		return nil
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return new("{" + strings.Join(texts, ",") + "}")
}

// Reject stores shapley.v1 reveals with `accept` false, and ends the deal as VOID in the same
// transaction, so that no other call computes a result from them. e.Reveals does not count these
// reveals. All of them come from seals, or none. Reject returns false if the deal has changed since e was computed, or if its
// reveal_deadline has passed. It returns ErrSecretReplaced as Reveal does.
func (s *Store) Reject(ctx context.Context, e *Ending, acts ...Act) (bool, error) {
	scope, body, _, lifetime := acts[0].Replay.columns()
	var parties []int
	var sealed, secrets [][]byte
	for _, a := range acts {
		parties, sealed, secrets = append(parties, a.Party), append(sealed, a.Sealed), append(secrets, a.Secret, a.Replay.secret())
	}
	return s.decide(ctx, e.DealID, sql("reject"), e.DealID, parties, sealed, e.At, scope, body, lifetime,
		e.Commits, e.Reveals, e.RevealsClosedAt, e.VoidFlakers, e.CertID, e.Payload, e.MAC, secrets, acts[0].BySeal)
}

// Cancel ends a deal as CANCELLED. Cancel returns false if a party other than the initiator has
// committed, if the commit deadline has passed, or if the deal has ended.
func (s *Store) Cancel(ctx context.Context, dealID string, r *Replay) (bool, error) {
	scope, body, response, lifetime := r.columns()
	return s.decide(ctx, dealID, sql("cancel"), dealID, scope, body, response, lifetime)
}

// Adopt overwrites the end and the certificate of a deal with the given values. The caller takes
// these values from a party's copy of a certificate that is in the log but not in the database.
// Adopt returns false if the deal does not exist.
func (s *Store) Adopt(ctx context.Context, e *Ending, commitsClosedAt *int64, p Publication) (bool, error) {
	return s.decide(ctx, e.DealID, sql("adopt"), e.DealID, e.CertID, e.Payload, e.MAC, p.Signature, p.LeafIndex,
		e.To, commitsClosedAt, e.RevealsClosedAt, e.ComputedAt, e.Result, e.VoidFlakers)
}

// decide locks a deal and runs a statement that returns one boolean. If the statement returns
// null, decide returns ErrSecretReplaced.
func (s *Store) decide(ctx context.Context, dealID, statement string, args ...any) (bool, error) {
	var done *bool
	err := s.locked(ctx, []string{dealID}, true, statement, args, func(row pgx.CollectableRow) error { return row.Scan(&done) })
	if err == nil && done == nil {
		err = ErrSecretReplaced
	}
	return done != nil && *done, translate(err)
}

// Certificate is a stored certificate. It is pending while LeafIndex is nil.
type Certificate struct {
	CertID    string
	DealID    string
	Payload   []byte // the bytes that are signed; nil: see CertificateRow
	MAC       []byte // HMAC of CertID and Payload under the server secret
	Signature *string
	LeafIndex *int64
	Size      int // bytes of the stored payload

	digest [sha256.Size]byte // of the stored payload, if Digested set it
}

// Entry returns the SHA-256 of the payload: what is signed, and the entry in the log.
func (c *Certificate) Entry() [sha256.Size]byte {
	if c.Payload == nil {
		return c.digest
	}
	return sha256.Sum256(c.Payload)
}

// Certificate returns the certificate with this id, pending or published, or ErrNotFound.
func (s *Store) Certificate(ctx context.Context, certID string) (*Certificate, error) {
	return s.certificate(ctx, certificateBy{cert: certID})
}

// CertificateOf returns the certificate of a deal, pending or published, or ErrNotFound.
func (s *Store) CertificateOf(ctx context.Context, dealID string) (*Certificate, error) {
	return s.certificate(ctx, certificateBy{deal: dealID})
}

// CertificateRow returns the certificate with this id, or ErrNotFound. It leaves out a large payload.
func (s *Store) CertificateRow(ctx context.Context, certID string) (*Certificate, error) {
	c, err := s.certificates.do(ctx, certificateBy{cert: certID})
	if err == nil && c == nil {
		return nil, ErrNotFound
	}
	return c, err
}

// Digested makes Entry known of a CertificateRow, without a read of its payload. It returns ErrNotFound
// if there is no such row any more.
func (s *Store) Digested(ctx context.Context, row *Certificate) (*Certificate, error) {
	if row.Payload != nil {
		return row, nil
	}
	digest, err := large(ctx, s, 0, func(ctx context.Context, ids []string, _ bool) ([][]byte, error) {
		return rows(ctx, s.pool, pgx.RowTo[[]byte], sql("certificate_digest"), ids[0])
	}, row.CertID)
	if err != nil {
		return nil, err
	}
	c := *row // row belongs to other calls too
	copy(c.digest[:], digest)
	return &c, nil
}

// certificateBy has the id of a certificate or of its deal. Only one field is set.
type certificateBy struct{ cert, deal string }

// payloadCopies is how many times as large as its payload a certificate is in memory: the payload, what
// is parsed from it, and the answer.
const payloadCopies = 4

// certificate reads a payload of more than SmallRead bytes with a statement of its own, because only
// the first read tells its length.
func (s *Store) certificate(ctx context.Context, by certificateBy) (*Certificate, error) {
	c, err := s.certificates.do(ctx, by)
	if err == nil && c != nil && c.Payload == nil {
		c, err = large(ctx, s, payloadCopies*c.Size, s.readCertificates(c.Size), by)
	}
	if err == nil && c == nil {
		return nil, ErrNotFound
	}
	return c, err
}

func (s *Store) newCertificates() *coalescer[certificateBy, *Certificate] {
	c := &coalescer[certificateBy, *Certificate]{size: func(certificateBy) int { return SmallRead }, run: s.readCertificates(SmallRead), fill: fillTime}
	return c.start(s.slots)
}

// readCertificates returns a read of certificates that leaves out payloads of more than `most` bytes.
func (s *Store) readCertificates(most int) func(context.Context, []certificateBy, bool) ([]*Certificate, error) {
	return reads(s, sql("certificates"), func(unique []certificateBy) []any {
		certs, deals := make([]string, len(unique)), make([]string, len(unique))
		for i, q := range unique {
			certs[i], deals[i] = q.cert, q.deal
		}
		return []any{certs, deals, most}
	}, func(row pgx.CollectableRow, n *int, _ []certificateBy) (c *Certificate, err error) {
		c = &Certificate{}
		return c, row.Scan(n, &c.CertID, &c.DealID, &c.Size, &c.Payload, &c.MAC, &c.Signature, &c.LeafIndex)
	})
}

// SignedFrom calls `each` for every signed certificate that has no leaf yet or whose leaf index is at
// least leafIndex. DealID and MAC are not set.
func (s *Store) SignedFrom(ctx context.Context, leafIndex int64, each func(Certificate)) error {
	found, _ := s.pool.Query(ctx, sql("signed_from"), leafIndex) // ForEachRow returns the error
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
	_, err := s.pool.Exec(ctx, sql("set_signature"), certID, signature, old)
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
		found, _ := s.pool.Query(ctx, sql("publish"), certs, signatures, leaves) // CollectRows returns the error
		published, err := pgx.CollectRows(found, pgx.RowTo[string])
		done := make([]bool, len(all))
		for i, p := range all {
			done[i] = slices.Contains(published, p.CertID)
		}
		return done, err
	}
	return c.start(s.slots)
}
