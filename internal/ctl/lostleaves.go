package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

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
		_, _, leaf := leafOf(copied)
		leaves = append(leaves, leaf)
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
