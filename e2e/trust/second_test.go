package trust

import (
	"path/filepath"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// After a change of the deals' tables, or after a restore, the service can end a deal a second
// time. The log refuses a second certificate. With `fairpactctl certificate adopt`, the operator
// restores the first certificate from a party's copy.
func TestOneCertificateADeal(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c, v := e2e.NewClient(t, stack.BaseURL()), &e2e.RowEditor{W: e2e.OpenDB(t, stack)}
	played := func() *e2e.CreatedDeal {
		d := c.Create(e2e.SplitBody(3600e9, 7200e9))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		return d
	}
	t.Run("the deal's phase is set back", func(t *testing.T) {
		d := played()
		secondCertificate(t, stack, d, func() { v.RewriteAsMissedReveal(t, d) })
	})
	t.Run("the escrow's tables are restored without the log's", func(t *testing.T) {
		d := c.Create(e2e.SplitBody(3600e9, 7200e9))
		ann, bob := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
		d.Commit(0, ann)
		d.Commit(1, bob)
		d.Reveal(0, ann)
		var keep, restore []string
		for _, table := range []string{"deals", "parties", "commitments", "reveals", "certificates"} {
			keep = append(keep, `CREATE TABLE backup_`+table+` AS TABLE `+table)
			restore = append(restore, `DELETE FROM `+table, `INSERT INTO `+table+` TABLE backup_`+table)
		}
		v.Exec(t, keep, false)
		d.Reveal(1, bob)
		secondCertificate(t, stack, d, func() {
			v.Exec(t, restore, false)
			for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
				if err := stack.Restart(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			d.Reveal(1, bob)
		})
	})
}

// secondCertificate makes a deal end a second time. The log must keep only the first certificate.
// After `fairpactctl certificate adopt`, the service must serve the first certificate again.
func secondCertificate(t *testing.T, stack *localstack.Stack, d *e2e.CreatedDeal, again func()) {
	t.Helper()
	w := e2e.OpenDB(t, stack)
	first := d.Certified(e2e.DefaultTimeout)
	view := d.View()
	leaves := w.Number(`SELECT count(*) FROM translog.leaves`)
	refusals := func() float64 {
		return e2e.Sum(e2e.Scrape(t, stack, localstack.LogServer)["fairpact_log_second_certificates_total"])
	}
	before := refusals()
	again()
	e2e.Eventually(t, "the second certificate is refused or logged", e2e.DefaultTimeout, func() bool {
		return refusals() > before || w.Number(`SELECT count(*) FROM translog.leaves`) > leaves
	})
	if n := w.Number(`SELECT count(*) FROM translog.leaves`); n != leaves {
		t.Fatalf("the log accepted a second certificate of the deal: %d leaves, want %d", n, leaves)
	}
	here := d.C.In(t)
	here.Refused(503, "LOG_INCONSISTENT", "GET", d.Path("/certificate"), d.Tokens[0], nil)
	if n := w.Number(`SELECT count(*) FROM certificates WHERE deal_id = $1 AND signature IS NULL`, d.ID); n != 1 {
		t.Errorf("%d unsigned certificates of the deal are stored, want 1", n)
	}

	adopt := []string{"certificate", "adopt", "--base-url", stack.BaseURL(), "--database-url", stack.DatabaseURL(), "--secret-file", filepath.Join(stack.Dir(), "server-secret")}
	forged := e2e.Decoded(t, first)
	forged["outcome"] = "VOID"
	if said, err := stack.Fairpactctl(t.Context(), append(adopt, e2e.File(t, e2e.Encoded(t, forged)))...); err == nil {
		t.Errorf("certificate adopt accepted a forged certificate: %s", said)
	}
	for range 2 {
		if said, err := stack.Fairpactctl(t.Context(), append(adopt, e2e.File(t, first))...); err != nil {
			t.Fatalf("fairpactctl certificate adopt: %v\n%s", err, said)
		}
	}
	healed := e2e.Decoded(t, d.Certified(0))
	for name, value := range e2e.Decoded(t, first) {
		if name != "log_proof" && string(e2e.Encoded(t, healed[name])) != string(e2e.Encoded(t, value)) {
			t.Errorf("after certificate adopt %s is %v, want %v", name, healed[name], value)
		}
	}
	if now := d.View(); now.State != view.State || *now.CertificateID != *view.CertificateID {
		t.Errorf("after certificate adopt the deal is %+v, want %+v", now, view)
	}
	if r := here.Verify(*view.CertificateID); !r.Valid {
		t.Errorf("the adopted certificate is reported %+v, want valid", r)
	}
}
