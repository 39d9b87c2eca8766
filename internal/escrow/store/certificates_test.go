package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

func (f *fixture) pending(t *testing.T) *store.Ending {
	t.Helper()
	return f.end(t, f.create(t, nil), deal.Void)
}

func (f *fixture) holds(t *testing.T, e *store.Ending, signature *string, leaf *int64) {
	t.Helper()
	byID, err := f.Certificate(t.Context(), *e.CertID)
	check(t, err)
	byDeal, err := f.replica.CertificateOf(t.Context(), e.DealID)
	check(t, err)
	for _, c := range []*store.Certificate{byID, byDeal} {
		if c.CertID != *e.CertID || c.DealID != e.DealID || string(c.Payload) != string(e.Payload) || string(c.MAC) != string(e.MAC) ||
			shown(c.Signature) != shown(signature) || shown(c.LeafIndex) != shown(leaf) {
			t.Errorf("certificate %s: signature %s, leaf %s; want %s, %s", c.CertID, shown(c.Signature), shown(c.LeafIndex), shown(signature), shown(leaf))
		}
	}
}

func shown[T any](p *T) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}

func shownAll[T any](all []*T) (texts []string) {
	for _, p := range all {
		texts = append(texts, shown(p))
	}
	return texts
}

// SetSignature replaces a signature only if the caller passes the stored one as the old signature,
// and never after the leaf index is stored.
func TestTheFirstSignatureStands(t *testing.T) {
	f := newFixture(t)
	e := f.pending(t)
	f.holds(t, e, nil, nil)
	set := func(signature string, old *string, want string, leaf *int64) {
		t.Helper()
		check(t, f.SetSignature(t.Context(), *e.CertID, signature, old))
		f.holds(t, e, &want, leaf)
	}
	set("first", nil, "first", nil)
	set("second", nil, "first", nil)
	set("second", ptr("other"), "first", nil)
	set("second", ptr("first"), "second", nil)
	did(t, "publish", true)(f.Publish(t.Context(), store.Publication{CertID: *e.CertID, Signature: "second", LeafIndex: 7}))
	set("third", ptr("second"), "second", ptr(int64(7)))
}

// The first publication may replace the stored signature, because callers get a signature only
// after publication.
func TestTheFirstPublicationStands(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	unsigned, signed := f.pending(t), f.pending(t)
	check(t, f.SetSignature(ctx, *signed.CertID, "kept in an outage", nil))
	for leaf, e := range []*store.Ending{unsigned, signed} {
		did(t, "the first", true)(f.Publish(ctx, store.Publication{CertID: *e.CertID, Signature: "a", LeafIndex: int64(leaf)}))
		did(t, "the second", false)(f.replica.Publish(ctx, store.Publication{CertID: *e.CertID, Signature: "b", LeafIndex: int64(leaf + 10)}))
		f.holds(t, e, ptr("a"), ptr(int64(leaf)))
	}
	did(t, "an unknown certificate", false)(f.Publish(ctx, store.Publication{CertID: "c_none", Signature: "a", LeafIndex: 99}))

	t.Run("in one group", func(t *testing.T) {
		one, other := f.pending(t), f.pending(t)
		done, errs := f.PublishTogether(
			store.Publication{CertID: *one.CertID, Signature: "a", LeafIndex: 20}, store.Publication{CertID: *other.CertID, Signature: "b", LeafIndex: 21},
			store.Publication{CertID: *unsigned.CertID, Signature: "c", LeafIndex: 22})
		checkAll(t, errs)
		if !done[0] || !done[1] || done[2] {
			t.Errorf("published: got %v, want true for the first two", done)
		}
		f.holds(t, one, ptr("a"), ptr(int64(20)))
		f.holds(t, other, ptr("b"), ptr(int64(21)))
		f.holds(t, unsigned, ptr("a"), ptr(int64(0)))
	})
	t.Run("a leaf that another certificate has fails its own call only", func(t *testing.T) {
		one, other := f.pending(t), f.pending(t)
		done, errs := f.PublishTogether(store.Publication{CertID: *one.CertID, Signature: "a", LeafIndex: 0}, store.Publication{CertID: *other.CertID, Signature: "b", LeafIndex: 31})
		if errs[0] == nil || errs[1] != nil || !done[1] {
			t.Errorf("got %v, %v; want an error for the first and true for the second", done, errs)
		}
	})
}

// A large payload is read by a statement of its own, and its digest without the payload.
func TestLargeCertificates(t *testing.T) {
	f := newFixture(t)
	payload := bytes.Repeat([]byte{'x'}, store.SmallRead+1)
	small, large := f.pending(t), f.pending(t)
	f.exec(t, "UPDATE certificates SET payload = $2 WHERE cert_id = $1", *large.CertID, payload)
	large.Payload = payload
	f.holds(t, small, nil, nil)
	f.holds(t, large, nil, nil)
	for what, of := range map[string]*store.Ending{"small": small, "large": large} {
		t.Run(what, func(t *testing.T) {
			row, err := f.CertificateRow(t.Context(), *of.CertID)
			check(t, err)
			digested, err := f.Digested(t.Context(), row)
			check(t, err)
			if row.Size != len(of.Payload) || digested.Entry() != sha256.Sum256(of.Payload) {
				t.Errorf("got %d bytes with the digest %x, want those of the payload of %d bytes", row.Size, digested.Entry(), len(of.Payload))
			}
			if (row.Payload == nil || digested.Payload == nil) != (of == large) {
				t.Errorf("got payloads of %d and %d bytes, want none only of a large one", len(row.Payload), len(digested.Payload))
			}
		})
	}
	if _, err := f.CertificateRow(t.Context(), "c_none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown certificate: got error %v, want ErrNotFound", err)
	}
	if _, err := f.Digested(t.Context(), &store.Certificate{CertID: "c_none"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a row that is gone: got error %v, want ErrNotFound", err)
	}
}
