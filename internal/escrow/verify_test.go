package escrow_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// certified returns a deal whose certificate is leaf 3 of the log.
func certified(t *testing.T, h *fixture) (g *game, certID string) {
	t.Helper()
	for range 3 {
		of(h.log.Append(t.Context(), certificate.Entry([]byte(show(h.log.size()))), "es256:00", translog.Tag{})).ok(t)
	}
	g = h.split(t, nil).revealed(t).attended(t)
	return g, g.certID(t)
}

func (h *fixture) verify(t *testing.T, certID string) answer[escrow.Verification] {
	t.Helper()
	return of(h.replica().Verify(t.Context(), certID))
}

const (
	signature = 1 << iota
	inputRoot
	inclusion
)

func checkReport(t *testing.T, name string, r escrow.Verification, failing int) {
	t.Helper()
	want := escrow.Checks{Signature: failing&signature == 0, InputRoot: failing&inputRoot == 0, Inclusion: failing&inclusion == 0}
	if r.Checks != want || r.Valid != (failing == 0) || r.Note == "" {
		t.Errorf("%s: got the report %+v, want the checks %+v, valid: %v and a note", name, r, want, failing == 0)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	_, id := certified(t, h)
	report := h.verify(t, id).ok(t)
	checkReport(t, "as issued", report, 0)
	if report.CertID != id || report.Outcome != "COMPUTED" {
		t.Errorf("the report is %+v, want cert_id %s and outcome COMPUTED", report, id)
	}
	dev := h.replicaOn(h.store, escrow.Options{Development: func(label string) bool { return label == h.signer.PublicKey() }})
	if by := of(dev.Verify(t.Context(), id)).ok(t); strings.Contains(report.Note, "development key") || !strings.Contains(by.Note, "development key") {
		t.Errorf("note with a development key: %q, without: %q; want only the first to name a development key", by.Note, report.Note)
	}
	for _, unknown := range []string{"", "c_none", "c_" + strings.Repeat("A", 22)} {
		h.verify(t, unknown).refused(t, problem.CertNotFound)
	}
}

// VerifySubmitted reports StoredSame for a certificate with a wrong log_proof, because the
// signature does not cover log_proof. The certificate is invalid all the same, and the note names
// log_proof.
func TestSubmittedCertificateWithAnotherProof(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g, _ := certified(t, h)
	issued := g.certificate(t, h.replica()).ok(t)
	for _, row := range []struct {
		name   string
		change func(*certificate.LogProof)
		notes  []string // texts that SubmittedReport.Note must contain; empty: the document is valid
	}{
		{"as issued", func(*certificate.LogProof) {}, nil},
		{"another leaf_index", func(p *certificate.LogProof) { p.LeafIndex-- }, []string{"the document's log_proof is altered or damaged"}},
		{"a tree_size that the log does not have", func(p *certificate.LogProof) { p.TreeSize = 999 }, []string{"the document's log_proof is altered or damaged", "the log has no tree of size 999"}},
	} {
		c := issued
		row.change(&c.LogProof)
		document := of(canon.ParseObject(of(canon.Marshal(c)).ok(t))).ok(t)
		got := of(h.replica().VerifySubmitted(t.Context(), document, "")).ok(t)
		if got.Stored != escrow.StoredSame || got.Valid != (len(row.notes) == 0) || strings.Contains(got.Note, "log_proof") == got.Valid {
			t.Errorf("%s: got %+v, want stored same, and the log_proof named if it is invalid", row.name, got)
		}
		for _, text := range row.notes {
			if !strings.Contains(got.Note, text) {
				t.Errorf("%s: the note is %q, want %q in it", row.name, got.Note, text)
			}
		}
	}
}

// If the log contradicts a certificate, Verify reports the certificate as invalid. If the log is
// out of reach, refuses the request or signs with an unknown key, Verify returns an error with
// status 503, never valid:false.
func TestVerifyAndTheLog(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g, id := certified(t, h)
	otherSigner := newPen(t)
	answers := func(err error) func(*translog.Inclusion) error {
		return func(*translog.Inclusion) error { return err }
	}
	for _, row := range []struct {
		name string
		read func(*translog.Inclusion) error
		code problem.Code // code of Verify's error, whose status is 503; empty: no error, and valid is false
	}{
		{"out of reach", answers(translog.ErrUnavailable), problem.LogUnavailable},
		{"timed out", answers(context.DeadlineExceeded), problem.LogUnavailable},
		{"refused", answers(translog.ErrRefused), problem.LogUnavailable},
		{"an error of another kind", answers(errors.New("odd")), problem.LogUnavailable},
		{"a head by another key", func(in *translog.Inclusion) (err error) {
			in.TreeHead.Signature, err = otherSigner.Signer.Sign(t.Context(), in.Digest())
			return err
		}, problem.LogUnavailable},
		{"inconsistent", answers(translog.ErrInconsistent), ""},
		{"no such leaf", answers(translog.ErrNotFound), ""},
		{"a path that does not lead to the head", func(in *translog.Inclusion) error {
			in.Path[0] = strings.Repeat("0", 64)
			return nil
		}, ""},
		{"a path that is too short", func(in *translog.Inclusion) error {
			in.Path = in.Path[1:]
			return nil
		}, ""},
		{"the proof of another leaf", func(in *translog.Inclusion) error {
			in.LeafIndex--
			in.Path = h.log.path(in.LeafIndex)
			return nil
		}, ""},
	} {
		h.log.fail(nil, row.read)
		if row.code != "" {
			if p := h.verify(t, id).refused(t, row.code); p.Status() != 503 || p.RetryAfter <= 0 {
				t.Errorf("%s: got status %d, retry after %d s; want 503 and a positive time", row.name, p.Status(), p.RetryAfter)
			}
			g.certificate(t, h.replica()).refused(t, row.code)
			continue
		}
		checkReport(t, row.name, h.verify(t, id).ok(t), inclusion)
		g.certificate(t, h.replica()).refused(t, problem.LogInconsistent)
	}
}

// A tree head signed by a retired key proves nothing if the head is larger than the log was when
// the key retired (the key's tree_size).
func TestAHeadOfAClosedKeyProvesNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g, id := certified(t, h) // the certificate is leaf 3, and the log has 4 leaves
	current := newPen(t)
	h.keys = keySetOf(t, current.PublicKey(), h.signer.PublicKey(), 4)
	checkReport(t, "a head of its time", h.verify(t, id).ok(t), 0)
	g.certificate(t, h.replica()).ok(t)
	of(h.log.Append(t.Context(), certificate.Entry([]byte("one more")), "es256:00", translog.Tag{})).ok(t)
	checkReport(t, "a later head", h.verify(t, id).ok(t), inclusion)
	g.certificate(t, h.replica()).refused(t, problem.LogInconsistent)
	h.log.signer = current.Signer
	checkReport(t, "a later head by the current key", h.verify(t, id).ok(t), 0)
	g.certificate(t, h.replica()).ok(t)
}

// A process that remembers the verdict on a certificate still notices that its row has changed.
func TestAChangedPayloadIsNoticed(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for name, parties := range map[string]int{"small": 2, "large": 500} {
		t.Run(name, func(t *testing.T) {
			g := h.many(t, parties).later(t, 4000).attended(t)
			id, svc := g.certID(t), h.replica()
			if large := of(g.store.CertificateRow(t.Context(), id)).ok(t).Payload == nil; large != (name == "large") {
				t.Fatalf("the payload is large: %v", large)
			}
			for range 2 { // the second time, the verdict is known
				checkReport(t, "as issued", of(svc.Verify(t.Context(), id)).ok(t), 0)
			}
			const change = "UPDATE certificates SET payload = convert_to(replace(convert_from(payload, 'UTF8'), $2, $3), 'UTF8') WHERE deal_id = $1"
			g.exec(t, change, g.id, "party 1", "party X")
			checkReport(t, "with another label", of(svc.Verify(t.Context(), id)).ok(t), signature|inclusion)
			g.exec(t, change, g.id, "party X", "party 1")
			checkReport(t, "as issued again", of(svc.Verify(t.Context(), id)).ok(t), 0)
		})
	}
}

func TestAPlantedPayloadIsNeverSigned(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := pending(t, h)
	signed := h.signer.signatures()
	g.exec(t, "UPDATE certificates SET payload = convert_to(replace(convert_from(payload, 'UTF8'), 'adjusted_winner', 'proportional'), 'UTF8') WHERE deal_id = $1", g.id)
	if _, err := h.replica().ProcessDeal(t.Context(), g.id); err == nil {
		t.Error("ProcessDeal of a deal with a planted certificate: got no error, want one")
	}
	g.certificate(t, h.replica()).refused(t, problem.CertNotReady)
	if n := h.signer.signatures() - signed; n != 0 || h.log.size() != 0 {
		t.Errorf("a planted payload was signed %d times, and the log has %d leaves; want 0 and 0", n, h.log.size())
	}
}
