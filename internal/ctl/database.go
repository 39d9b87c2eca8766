package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

type databases struct {
	DatabaseURL string `env:"DATABASE_URL" required:"" help:"Postgres URL of the deployment."`
	logDatabase
}

type logDatabase struct {
	LogDatabaseURL string `env:"FAIRPACT_LOG_DATABASE_URL" placeholder:"URL" help:"Postgres URL of the log, if the log has a separate database. Give the DATABASE_URL of log-server."`
}

func (d databases) log() string { return cmp.Or(d.LogDatabaseURL, d.DatabaseURL) }

type migrateCommand struct{ databases }

func (m migrateCommand) Run(ctx context.Context, t *terminal) error {
	if err := store.Migrate(ctx, m.DatabaseURL); err != nil {
		return err
	}
	if err := translog.Migrate(ctx, m.log()); err != nil {
		return err
	}
	return t.show(map[string]bool{"migrated": true}, "the schema is up to date")
}

type logFsckCommand struct {
	databases
	Keys string   `placeholder:"FILE" help:"File with the key set, as GET /v1/pubkeys returned it. Without this file, the signatures of tree heads are not checked."`
	VKey []string `name:"vkey" sep:"none" placeholder:"KEY" help:"Verifier key of the log; repeatable. Without this flag, the signatures of checkpoints are not checked."`
}

func (c logFsckCommand) Run(ctx context.Context, t *terminal) error {
	var o translog.FsckOptions
	if c.Keys != "" {
		document, err := t.tree(c.Keys)
		if err != nil {
			return err
		}
		trusted, err := keys.ParsePublished(document)
		if err != nil {
			return err
		}
		o.Heads = func(h translog.TreeHead) error {
			_, problem := verification.VerifyTreeHead(map[string]any{"tree_size": h.TreeSize, "root_hash": h.RootHash, "signature": h.Signature}, trusted)
			if problem != "" {
				return errors.New(problem)
			}
			return nil
		}
	}
	for _, vkey := range c.VKey {
		key, err := checkpoint.ParseKey(vkey)
		if err != nil {
			return err
		}
		o.Checkpoints = append(o.Checkpoints, key)
	}
	pool, err := database.Open(ctx, c.log(), 1)
	if err != nil {
		return err
	}
	defer database.Close(pool)
	report, err := translog.Fsck(ctx, pool, o)
	if errors.Is(err, translog.ErrInconsistent) { // a leaf is missing: the rest cannot be checked
		report.Findings = append(report.Findings, translog.Finding{Row: "leaves", Problem: err.Error()})
	} else if err != nil {
		return err
	}
	if t.json {
		if err := t.value(report); err != nil {
			return err
		}
	} else {
		for _, f := range report.Findings {
			t.line("FAIL %s: %s", f.Row, f.Problem)
		}
		var unchecked []string
		if o.Heads == nil {
			unchecked = append(unchecked, "the signatures of tree heads (needs --keys)")
		}
		if o.Checkpoints == nil {
			unchecked = append(unchecked, "the signatures of checkpoints (needs --vkey)")
		}
		if len(unchecked) > 0 {
			t.line("not checked: %s", strings.Join(unchecked, ", "))
		}
		t.line("%d leaves, %d heads, %d checkpoints, %d findings", report.Size, report.Heads, report.Checkpoints, len(report.Findings))
	}
	if len(report.Findings) > 0 {
		return errForged
	}
	return nil
}

type logGuardCommand struct {
	databases
	From *string `placeholder:"IDENTITY" help:"With --to: the fork guard under which the log is signed now. Its log-servers refuse to sign from then on."`
	To   *string `placeholder:"IDENTITY" help:"With --from: the fork guard under which the log is signed from now on, as the log line of its log-server names it. An empty identity means no guard."`
}

func (c logGuardCommand) Run(ctx context.Context, t *terminal) error {
	if (c.From == nil) != (c.To == nil) {
		return errors.New("only one of --from and --to is given: give both or neither")
	}
	pool, err := database.Open(ctx, c.log(), 1)
	if err != nil {
		return err
	}
	defer database.Close(pool)
	if c.From != nil {
		if err := translog.MoveGuard(ctx, pool, *c.From, *c.To); errors.Is(err, translog.ErrRefused) {
			return refusal{err}
		} else if err != nil {
			return err
		}
	}
	guard, err := translog.GuardOf(ctx, pool)
	if err != nil {
		return err
	}
	return t.show(map[string]string{"guard": guard}, "%s", cmp.Or(guard, "the log has no fork guard"))
}

type certificateCommands struct {
	Adopt  certificateAdoptCommand  `cmd:"" help:"Restore a deal's certificate in the database from a party's copy, if the log has this certificate."`
	Return certificateReturnCommand `cmd:"" help:"Restore the leaves that the log lost when its database was restored, from the parties' copies of their certificates."`
}

type certificateAdoptCommand struct {
	Certificate string `arg:"" help:"Bundle or certificate file, exactly as the party received it; '-' reads standard input."`
	Keys        string `placeholder:"FILE" help:"File with the key set, as GET /v1/pubkeys returned it."`
	TreeHead    string `placeholder:"FILE" help:"File with the answer of GET /v1/log/tree-head?tree_size=N, where N is the tree_size in the certificate's log_proof."`
	BaseURL     string `env:"FAIRPACT_URL" placeholder:"URL" help:"URL of the deployment. The command fetches from there what --keys and --tree-head do not give."`
	databases
	SecretFile string `env:"FAIRPACT_SERVER_SECRET_FILE" required:"" type:"path" help:"File with the server secrets of the deployment."`
}

func (a certificateAdoptCommand) Run(ctx context.Context, t *terminal) error {
	secret, err := sealing.Load(a.SecretFile)
	if err != nil {
		return err
	}
	copied, report, err := verifyCommand{File: a.Certificate, Keys: a.Keys, TreeHead: a.TreeHead, BaseURL: a.BaseURL}.copied(ctx, t)
	if err != nil {
		return err
	}
	if notALeaf(report) != nil {
		return t.report(report, report, validity(report))
	}
	cert, payload, leaf := leafOf(copied)
	log, err := database.Open(ctx, a.log(), 1)
	if err != nil {
		return err
	}
	defer database.Close(log)
	found, err := translog.Has(ctx, log, leaf)
	if err != nil {
		return err
	}
	if !found {
		return refusal{fmt.Errorf("the log in this database has a different certificate of deal %s, or a different entry at leaf %d: ask another party for its copy of the certificate", cert.DealID, leaf.Index)}
	}
	s, err := store.Open(ctx, a.DatabaseURL, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := escrow.Adopt(ctx, s, secret, payload, cert.Signature, leaf.Index); err != nil {
		return err
	}
	return t.show(adopted{cert.DealID, cert.CertID, leaf.Index}, "deal %s has certificate %s, which is at leaf %d of the log", cert.DealID, cert.CertID, leaf.Index)
}

type adopted struct {
	DealID    string `json:"deal_id"`
	CertID    string `json:"cert_id"`
	LeafIndex int64  `json:"leaf_index"`
}

func (v verifyCommand) copied(ctx context.Context, t *terminal) (e verification.Evidence, r verification.Report, err error) {
	cert, _, err := t.certificate(v.File)
	if err == nil {
		e, err = v.evidence(ctx, t, cert)
	}
	if err != nil {
		return e, r, unreadable(err)
	}
	return e, verification.Verify(e), nil
}

// leafOf returns a verified certificate, the bytes that its signature covers, and its leaf.
func leafOf(e verification.Evidence) (c certificate.Certificate, payload []byte, leaf translog.TaggedLeaf) {
	payload = verification.Signed(e.Certificate.(map[string]any))
	_ = json.Unmarshal(canon.Encode(e.Certificate), &c) // cannot fail, because the shape is verified
	return c, payload, translog.TaggedLeaf{Index: c.LogProof.LeafIndex, Entry: certificate.Entry(payload), Tag: certificate.Tag(c.DealID)}
}

type certificateReturnCommand struct {
	Certificates []string `arg:"" help:"Bundle or certificate files, exactly as the parties received them, one for each missing leaf. More certificates do no harm."`
	Keys         string   `required:"" placeholder:"FILE" help:"File with the key set, as GET /v1/pubkeys returned it."`
	TreeHead     string   `required:"" placeholder:"FILE" help:"File with the newest tree head that anybody received from GET /v1/log/tree-head."`
	databases
}

func (a certificateReturnCommand) Run(ctx context.Context, t *terminal) error {
	var leaves []translog.TaggedLeaf
	var head translog.TreeHead
	for _, path := range a.Certificates {
		copied, report, err := verifyCommand{File: path, Keys: a.Keys, TreeHead: a.TreeHead}.copied(ctx, t)
		if err != nil {
			return err
		}
		if err := notALeaf(report); err != nil {
			return refusal{fmt.Errorf("%s: %w", path, err)}
		}
		if err := json.Unmarshal(canon.Encode(copied.TreeHead), &head); err != nil {
			return err
		}
		c, _, leaf := leafOf(copied)
		leaves = append(leaves, leaf)
		_, bundle, err := t.certificate(path)
		if err != nil {
			return err
		}
		if index, entry, found := verification.ClosingLeaf(bundle); found {
			leaves = append(leaves, translog.TaggedLeaf{Index: index, Entry: entry, Tag: timelock.ClosingTag(c.DealID)})
		}
	}
	log, err := database.Open(ctx, a.log(), 1)
	if err != nil {
		return err
	}
	defer database.Close(log)
	returned, err := translog.Return(ctx, log, leaves, head)
	switch {
	case errors.Is(err, translog.ErrRefused):
		return refusal{err}
	case err != nil:
		return err
	}
	return t.show(map[string]int64{"returned": int64(returned), "tree_size": head.TreeSize},
		"%d leaves restored: the log now has the %d leaves and the root of the tree head", returned, head.TreeSize)
}

// notALeaf returns an error if a check of a certificate failed. It ignores the checks of the
// inclusion proof, because the log may have lost the proof's tree head. The caller MUST
// compare the certificate with the log's leaf instead.
func notALeaf(report verification.Report) error {
	for _, check := range report.Checks {
		if !check.OK && !slices.Contains([]string{verification.TreeSize, verification.MerkleInclusion}, check.Name) {
			return fmt.Errorf("%s: %s", check.Name, check.Detail)
		}
	}
	return nil
}
