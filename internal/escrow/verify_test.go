package escrow_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// certified is a deal with its certificate in the log, among others.
func certified(t *testing.T, h *house) (g *game, certID string) {
	t.Helper()
	for range 3 {
		if _, err := h.log.Append(t.Context(), certificate.Entry([]byte(show(h.log.size()))), "es256:00"); err != nil {
			t.Fatal(err)
		}
	}
	g = h.split(t, nil).revealed(t).attended(t)
	return g, g.text(t, "SELECT cert_id FROM certificates WHERE deal_id = $1", g.id)
}

func (h *house) verify(t *testing.T, certID string) answer {
	t.Helper()
	return first(h.replica().Verify(t.Context(), certID))
}

// verdict holds a report against the checks that should fail.
func verdict(t *testing.T, what string, body map[string]any, failing ...string) {
	t.Helper()
	checks := body["checks"].(map[string]any)
	if len(checks) != 3 || body["valid"] != (len(failing) == 0) || body["note"] == "" {
		t.Errorf("%s: %v", what, body)
	}
	for name, passed := range checks {
		want := true
		for _, f := range failing {
			want = want && f != name
		}
		if passed != want {
			t.Errorf("%s: %s is %v", what, name, passed)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, id := certified(t, h)
	body := is(t, 200, h.verify(t, id))
	verdict(t, "as issued", body)
	if body["cert_id"] != id || body["outcome"] != "COMPUTED" {
		t.Errorf("the report is %v", body)
	}
	refused(t, problem.CertNotFound, h.verify(t, "c_none"))
	refused(t, problem.CertNotFound, h.verify(t, ""))
}

// A log that contradicts the certificate is a verdict; one that is out of reach,
// refuses to answer or is set up with other keys is a 503 and never valid:false.
func TestVerifyAndTheLog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g, id := certified(t, h)
	stranger := newPen(t)
	answers := func(err error) func(*translog.Inclusion) error {
		return func(*translog.Inclusion) error { return err }
	}
	for _, row := range []struct {
		what string
		read func(*translog.Inclusion) error
		code problem.Code // of a 503; empty: a verdict
	}{
		{"out of reach", answers(translog.ErrUnavailable), problem.LogUnavailable},
		{"timed out", answers(context.DeadlineExceeded), problem.LogUnavailable},
		{"refused", answers(translog.ErrRefused), problem.LogUnavailable},
		{"an error of another kind", answers(errors.New("odd")), problem.LogUnavailable},
		{"a head by another key", func(in *translog.Inclusion) (err error) {
			in.TreeHead.Signature, err = stranger.Signer.Sign(t.Context(), in.Digest())
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
		{"another leaf", func(in *translog.Inclusion) error {
			in.LeafIndex--
			return nil
		}, ""},
	} {
		h.log.fail(nil, row.read)
		if row.code != "" {
			if p := refused(t, row.code, h.verify(t, id)); p.Status() != 503 || p.RetryAfter <= 0 {
				t.Errorf("%s: status %d, retry after %v", row.what, p.Status(), p.RetryAfter)
			}
			refused(t, row.code, g.certificate(t, h.replica()))
			continue
		}
		verdict(t, row.what, is(t, 200, h.verify(t, id)), "merkle_inclusion")
		refused(t, problem.LogInconsistent, g.certificate(t, h.replica()))
	}
}

// A head of more leaves than its key was closed at proves nothing, here as for
// every verifier.
func TestAHeadOfAClosedKeyProvesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g, id := certified(t, h) // leaf 3 of 4
	current := newPen(t)
	h.keys = keySetOf(t, current.PublicKey(), h.pen.PublicKey(), 4)
	verdict(t, "a head of its time", is(t, 200, h.verify(t, id)))
	is(t, 200, g.certificate(t, h.replica()))
	if _, err := h.log.Append(t.Context(), certificate.Entry([]byte("one more")), "es256:00"); err != nil {
		t.Fatal(err)
	}
	verdict(t, "a later head", is(t, 200, h.verify(t, id)), "merkle_inclusion")
	refused(t, problem.LogInconsistent, g.certificate(t, h.replica()))
	h.log.pen = current.Signer
	verdict(t, "a later head by the current key", is(t, 200, h.verify(t, id)))
	is(t, 200, g.certificate(t, h.replica()))
}

// A row that somebody changed is found out, and not handed out as a certificate.
func TestVerifyAndTheRow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	stranger := newPen(t)
	for _, row := range []struct {
		what    string
		change  string
		arg     any
		failing []string
	}{
		{"another signature", "signature = $2", foreign(t, stranger), []string{"signature"}},
		{"no signature at all", "signature = $2", "es256:", []string{"signature"}},
		{"another result", "payload = convert_to(replace(convert_from(payload, 'UTF8'), $2, 'proportional'), 'UTF8')", "adjusted_winner", []string{"signature", "merkle_inclusion"}},
		{"no root", "payload = convert_to(replace(convert_from(payload, 'UTF8'), $2, ''), 'UTF8')", "sha256:", []string{"signature", "merkle_inclusion", "input_root_wellformed"}},
		{"no payload", "payload = convert_to($2, 'UTF8')", "{}", []string{"signature", "merkle_inclusion", "input_root_wellformed"}},
		{"no JSON", "payload = convert_to($2, 'UTF8')", "x", []string{"signature", "merkle_inclusion", "input_root_wellformed"}},
		{"another leaf", "leaf_index = leaf_index + $2", -1, []string{"merkle_inclusion"}},
	} {
		g, id := certified(t, h)
		g.exec(t, "UPDATE certificates SET "+row.change+" WHERE cert_id = $1", id, row.arg)
		verdict(t, row.what, is(t, 200, h.verify(t, id)), row.failing...)
		refused(t, problem.LogInconsistent, g.certificate(t, h.replica()))
	}
	// One deal's certificate under another one's id.
	g, id := certified(t, h)
	_, other := certified(t, h)
	g.exec(t, `UPDATE certificates c SET payload = o.payload, signature = o.signature FROM certificates o WHERE c.cert_id = $1 AND o.cert_id = $2`, id, other)
	verdict(t, "another deal's payload", is(t, 200, h.verify(t, id)), "signature", "input_root_wellformed", "merkle_inclusion")
	refused(t, problem.LogInconsistent, g.certificate(t, h.replica()))
}

// A payload that this service did not write is never signed.
func TestAPlantedPayloadIsNeverSigned(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := lastPending(t, h)
	signed := h.pen.signed
	g.exec(t, "UPDATE certificates SET payload = convert_to(replace(convert_from(payload, 'UTF8'), 'adjusted_winner', 'proportional'), 'UTF8') WHERE deal_id = $1", g.id)
	if _, err := h.replica().Attend(t.Context(), g.id); err == nil {
		t.Error("the worker finishes a planted certificate")
	}
	refused(t, problem.CertNotReady, g.certificate(t, h.replica()))
	if h.pen.signed != signed || h.log.size() != 0 {
		t.Errorf("a planted payload was signed %d times, and the log has %d leaves", h.pen.signed-signed, h.log.size())
	}
}

func TestVerifyWithTheDatabaseGone(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	h := newHouseOn(t, server.AdminURL())
	_, id := certified(t, h)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if p := refused(t, problem.Unavailable, h.verify(t, id)); p.Status() != 503 {
		t.Errorf("status %d", p.Status())
	}
}
