package ctl

import (
	"context"
	"errors"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

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
