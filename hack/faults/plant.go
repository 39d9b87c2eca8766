package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	plantLength = 25 * time.Second
	plantSettle = 15 * time.Second // how long a campaign waits for the deals to end; plantOne ignores deals that end later
	plantRounds = 4

	sealPlantLength = 110 * time.Second // of campaigns for seal-*.patch, so that seals are opened during the faults
)

// plantAll applies each patch, which plants a bug, to a separate copy of HEAD. It runs up to
// plantRounds campaigns on each copy, until one finds a violation. The error names the patches
// whose bugs no campaign found.
func plantAll(ctx context.Context, root, patches, out string, seed uint64) error {
	all, err := filepath.Glob(filepath.Join(patches, "*.patch"))
	if err != nil || len(all) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no *.patch file: set -plant to a directory of patches", patches))
	}
	var missed []string
	for _, patch := range all {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		caught, err := plantOne(ctx, root, patch, filepath.Join(out, name), seed)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !caught {
			missed = append(missed, name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("no campaign found these planted bugs: %s", strings.Join(missed, ", "))
	}
	say("campaigns found all %d planted bugs", len(all))
	return nil
}

func plantOne(ctx context.Context, root, patch, out string, seed uint64) (caught bool, err error) {
	bin, tree := filepath.Join(out, "bin"), filepath.Join(out, "tree")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return false, err
	}
	if patch, err = filepath.Abs(patch); err != nil {
		return false, err
	}
	remove := func() error {
		return command(context.WithoutCancel(ctx), root, "git", "worktree", "remove", "--force", tree)
	}
	if _, err := os.Stat(tree); err == nil { // left by a run that was killed
		if err := remove(); err != nil {
			return false, err
		}
	}
	if err := command(ctx, root, "git", "worktree", "add", "--detach", tree, "HEAD"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := command(ctx, tree, "git", "apply", "--3way", patch); err != nil {
		return false, err
	}
	if err := command(ctx, tree, "go", "build", "-buildvcs=false", "-o", bin+"/", "./services/..."); err != nil {
		return false, err
	}
	length := plantLength
	if strings.HasPrefix(filepath.Base(patch), "seal-") {
		length = sealPlantLength
	}
	for round := range uint64(plantRounds) {
		events, err := runCampaign(ctx, seed+round, length, plantSettle, bin, out)
		if err != nil {
			return false, err
		}
		found := slices.DeleteFunc(check(events), func(v Violation) bool { return v.Rule == everyDealEnds })
		rules := map[string]int{}
		for _, v := range found {
			rules[v.Rule]++
		}
		say("%s, seed %d: %d violations, by rule:%s", filepath.Base(patch), seed+round, len(found), counted(rules))
		if len(found) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
