package ctl

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/signing"
)

type signingKeysCheckCommand struct {
	DatabaseURL string `env:"DATABASE_URL" placeholder:"URL" help:"Postgres URL of the deployment, whose connections name the running processes."`
	logDatabase
	deployment
	File     string `placeholder:"FILE" help:"File with the key set that every process should have."`
	TreeHead string `placeholder:"FILE" help:"File with a tree head that you kept, which the log must extend. 'none': skip this check. Default: an earlier head that the log returns."`
}

func (c signingKeysCheckCommand) Run(ctx context.Context, t *terminal) error {
	client, err := httpclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	var file *keys.Set
	digest := ""
	if c.File != "" {
		if file, err = t.keySet(ctx, c.File); err != nil {
			return err
		}
		digest = file.Digest()
	}
	report := verification.Report{Valid: true}
	in := databases{c.DatabaseURL, c.logDatabase}
	if c.DatabaseURL != "" {
		found, err := in.processes(ctx)
		report.Add(haveKeySet(found, err, digest))
	}
	list, err := c.published(ctx, client, file, &report)
	if err != nil {
		return unreadable(err)
	}
	if list == nil {
		return t.keysReport(report, "the replicas publish different key sets: wait until the rollout is done and check again. If the key sets still differ, find the processes that lack the right key set: run this check with --file and --database-url, which lists them")
	}
	if c.DatabaseURL != "" && file != nil {
		report.Add(checked("closed_keys", in.beyond(ctx, file), "no closed key signed a certificate or a tree head beyond the key's tree size"))
	}
	head, err := newestHead(ctx, client, list)
	report.Add(checked("tree_head", err, "the newest tree head, of size %d, is signed by the %s key %s", head.size, head.by.State, head.by.Label))
	if err == nil {
		report.Add(c.grown(ctx, t, client, head, list))
	}
	return t.keysReport(report, next(file, list, report.Valid))
}

// published fetches /v1/pubkeys and /v1/status ten times, to reach several replicas, and reports on the
// answers. If those of /v1/pubkeys differ, it returns neither keys nor an error.
func (c signingKeysCheckCommand) published(ctx context.Context, client *httpclient.Client, file *keys.Set, report *verification.Report) (keys.List, error) {
	var first string
	var list keys.List
	var differs, misfits error
	const times = 10
	for range times {
		client.Reconnect()
		document, err := fetch(ctx, client, "/v1/pubkeys")
		if err != nil {
			return nil, err
		}
		if list, err = keys.ParsePublished(document); err != nil {
			return nil, fmt.Errorf("the published key set is malformed: %w", err)
		}
		answer := string(canon.Encode(document))
		if first = cmp.Or(first, answer); answer != first {
			differs = fmt.Errorf("/v1/pubkeys answered %s at first and %s later", first, answer)
		}
		listed, err := fetchList(ctx, client, "/v1/status")
		if err != nil {
			return nil, err
		}
		if !signsNow(list, listed[0].Label) || len(listed) != 1+len(list.In(keys.Retired)) {
			misfits = fmt.Errorf("/v1/status names the key %s and %d legacy keys, but /v1/pubkeys names the current key %s and %d retired keys", listed[0].Label, len(listed)-1, list.Current(), len(list.In(keys.Retired)))
		}
	}
	report.Add(checked("replicas_agree", differs, "%d answers of /v1/pubkeys, all the same", times))
	if differs != nil {
		return nil, nil
	}
	report.Add(checked("status_agrees", misfits, "the key of /v1/status signs now according to /v1/pubkeys, and both name the same number of keys"))
	if file != nil {
		var other error
		if given := string(file.Published(time.Now().Unix())); given != first {
			other = fmt.Errorf("/v1/pubkeys answers %s, but the file requires %s", first, given)
		}
		report.Add(checked("file_agrees", other, "the published key set matches %s", c.File))
	}
	return list, nil
}

// signsNow reports whether the labelled key may be the one that signs. A key is published as current one
// margin before it signs; until then the key before it, published as retired, signs.
func signsNow(list keys.List, label string) bool {
	return label == list.Current() || slices.ContainsFunc(list.In(keys.Retired), func(key keys.Key) bool {
		return key.Label == label && key.RetiredAt != nil && *key.RetiredAt+keys.Margin > time.Now().Unix()
	})
}

// A signedHead has a verified signature.
type signedHead struct {
	size int64
	root []byte
	by   keys.Key
}

func newestHead(ctx context.Context, client *httpclient.Client, list keys.List) (signedHead, error) {
	document, err := fetch(ctx, client, "/v1/log/tree-head")
	if err != nil {
		return signedHead{}, unreadable(err)
	}
	return checkedHead(document, list)
}

func checkedHead(document any, list keys.List) (signedHead, error) {
	by, problem := verification.VerifyTreeHead(document, list)
	if problem != "" {
		return signedHead{}, refusal{errors.New("the tree head: " + problem)}
	}
	members := document.(map[string]any)
	root, err := hex.DecodeString(members["root_hash"].(string))
	return signedHead{members["tree_size"].(int64), root, by}, err
}

// grown checks that the newest tree continues an earlier one, which is never empty: any tree continues it.
func (c signingKeysCheckCommand) grown(ctx context.Context, t *terminal, client *httpclient.Client, newest signedHead, list keys.List) verification.Check {
	if c.TreeHead == "none" {
		return checked("consistency", nil, "not checked, because of --tree-head none; keep today's tree head for the next check")
	}
	earlier, err := c.earlier(ctx, t, client, newest.size, list)
	if err == nil {
		err = consistent(ctx, client, earlier, newest)
	}
	source := ""
	if c.TreeHead == "" {
		source = ", whose head the log itself returned"
	}
	return checked("consistency", err, "the tree of size %d continues the tree of size %d%s", newest.size, earlier.size, source)
}

// earlier returns the head in the file of --tree-head, or else one of at least size/2 leaves of the log.
func (c signingKeysCheckCommand) earlier(ctx context.Context, t *terminal, client *httpclient.Client, size int64, list keys.List) (signedHead, error) {
	if c.TreeHead != "" {
		document, err := t.tree(c.TreeHead)
		if err != nil {
			return signedHead{}, err
		}
		head, err := checkedHead(document, list)
		if err == nil && head.size == 0 {
			err = fmt.Errorf("%s is the head of the empty tree, which any tree continues: give a later head", c.TreeHead)
		}
		return head, err
	}
	// Not every tree size has a signed head (404): those of a busy log are tens of leaves apart.
	middle := max(size/2, 1)
	for at := middle; at < min(size, middle+64); at++ {
		document, err := fetch(ctx, client, fmt.Sprintf("/v1/log/tree-head?tree_size=%d", at))
		if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && refused.Status == 404 {
			continue
		}
		if err != nil {
			return signedHead{}, err
		}
		return checkedHead(document, list)
	}
	return signedHead{}, fmt.Errorf("found no earlier head of the log to compare the tree of size %d with: give --tree-head FILE with a head that you kept. If the log is new and nobody kept a head, give --tree-head none", size)
}

// consistent verifies the consistency proof of the log from first to second (RFC 9162 2.1.4).
func consistent(ctx context.Context, client *httpclient.Client, first, second signedHead) error {
	if first.size > second.size {
		return fmt.Errorf("the earlier tree head has size %d, but the log's newest head has only size %d: the log was set back", first.size, second.size)
	}
	var answer struct {
		Path []string `json:"consistency_path"`
	}
	if err := client.GetInto(ctx, fmt.Sprintf("/v1/log/consistency?first=%d&second=%d", first.size, second.size), "", &answer); err != nil {
		return err
	}
	path := make([][]byte, len(answer.Path))
	for i, node := range answer.Path {
		var err error
		if path[i], err = hex.DecodeString(node); err != nil {
			return fmt.Errorf("node %d of the consistency proof from size %d to %d is not hex: %w", i, first.size, second.size, err)
		}
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(first.size), uint64(second.size), path, first.root, second.root); err != nil {
		return fmt.Errorf("the tree of size %d does not continue the tree of size %d: the log is forked: %w", second.size, first.size, err)
	}
	return nil
}

// next returns the operator's next step in a rotation. `agreed`: all checks passed.
func next(file *keys.Set, list keys.List, agreed bool) string {
	if !agreed {
		return "correct what failed before you take any further step of a rotation"
	}
	if file != nil {
		list = file.At(time.Now().Unix())
	}
	for _, k := range list {
		switch {
		case k.State == keys.Next && k.SignsFrom != nil:
			return fmt.Sprintf("nothing: %s signs from %s on, without a further step", k.Label, instant(k.SignsFrom))
		case k.State == keys.Next:
			return fmt.Sprintf("nothing: %s will sign later; give --file to see from when", k.Label)
		case k.State == keys.Retired && !k.Closed():
			// A process whose clock is behind may sign until one signing.Margin after RetiredAt.
			if k.RetiredAt != nil {
				if open := time.Unix(*k.RetiredAt, 0).Add(signing.Margin()); time.Now().Before(open) {
					return fmt.Sprintf("wait: %s may sign until %s; then run this check again and close the key", k.Label, open.UTC().Format(time.RFC3339))
				}
			}
			return fmt.Sprintf("%s is retired but not closed: close it with fairpactctl signing-keys close %s, and then roll out the new key set", k.Label, k.Label)
		}
	}
	return "nothing: one key signs and every retired one is closed. To rotate, begin with fairpactctl signing-keys rotate"
}

func (t *terminal) keysReport(r verification.Report, next string) error {
	return t.report(r, struct {
		verification.Report
		Next string `json:"next"`
	}{r, next}, "next: "+next)
}
