package ctl

import (
	"context"
	"errors"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

type logFsckCommand struct {
	databases
	Keys string   `placeholder:"FILE" help:"File with the key set, as GET /v1/pubkeys returned it. Without this file, the signatures of tree heads are not checked."`
	VKey []string `name:"vkey" sep:"none" placeholder:"KEY" help:"Verifier key of the log; repeatable. Without this flag, the signatures of checkpoints are not checked."`
}

func (logFsckCommand) Help() string {
	return `Computes the tree from the leaves, and compares every stored node, published head and checkpoint with that tree, in one snapshot. Also checks the tags, which say to which deal each leaf belongs: each tag must name an existing leaf, and no leaf may have two tags. Not checked: whether every leaf has a tag, the cosignatures of witnesses, and which checkpoint counts as witnessed. The command only reads. The log can stay in use.

Exit code: 0 the tables agree; 2 the verdict is not known, because something is unreadable or unreachable; 3 the tables do not agree, and the output names each wrong row.

Examples:

    DATABASE_URL=postgres://fairpact@db/fairpact fairpactctl log fsck --keys keys.json --vkey fairpact.example+1a2b3c4d+AQ…`
}

func (c logFsckCommand) Run(ctx context.Context, t *terminal) error {
	var o translog.FsckOptions
	if c.Keys != "" {
		document, err := t.tree(c.Keys)
		if err != nil {
			return err
		}
		named, err := keysOfStatus(document)
		if err != nil {
			return err
		}
		keys := trusted(named)
		o.Heads = func(h translog.TreeHead) error {
			_, problem := verification.VerifyTreeHead(map[string]any{"tree_size": h.TreeSize, "root_hash": h.RootHash, "signature": h.Signature}, keys)
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
