package ctl

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/internal/replica"
	"github.com/fairpact/fairpact/internal/restclient"
	"github.com/fairpact/fairpact/internal/verification"
)

type keysCheckCommand struct {
	BaseURL     string `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"The deployment, like https://fairpact.example."`
	File        string `placeholder:"FILE" help:"The key set that every replica is to publish."`
	Times       int    `default:"10" help:"How often to ask, each time over a new connection: the replicas behind one address take turns."`
	Signer      string `placeholder:"URI" help:"A FAIRPACT_SIGNING_KEY: it is opened, and its key must be the current or a next one."`
	DatabaseURL string `env:"DATABASE_URL" placeholder:"URL" help:"Postgres of the deployment: the processes that run are listed, with the keys that they sign with."`
	TreeHead    string `placeholder:"FILE" help:"A tree head that was kept: the log must have grown from it. Left out: one that the log still answers, which says less. none: nobody has kept one, and the log is too young to answer one; the check is left out."`
}

func (keysCheckCommand) Help() string {
	return `Each check is one line, OK or FAIL; the last lines say what is next in a rotation. While a change is being rolled out replicas disagree: check again once it is done.

Examples:

    fairpactctl keys check --base-url https://fairpact.example --file keys.json
    fairpactctl keys check --base-url https://fairpact.example --file keys.json --tree-head head-of-last-month.json
    fairpactctl keys check --base-url https://fairpact.example --file keys.json --signer file:///etc/fairpact/key.pem --times 30`
}

func (c keysCheckCommand) Run(ctx context.Context, t *terminal) error {
	if c.Times < 1 {
		return fmt.Errorf("--times is %d: ask once at least", c.Times)
	}
	client, err := restclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	var file keySet
	if c.File != "" {
		if file, err = t.keySet(c.File); err != nil {
			return err
		}
	}
	report := verification.Report{Valid: true}
	keys, err := c.published(ctx, client, file, &report)
	if err != nil {
		return unreadable(err)
	}
	if c.DatabaseURL != "" {
		running, err := replica.Running(ctx, c.DatabaseURL)
		report.Add(processes(running, err))
	}
	if keys == nil { // they disagree, and what they agree on is unknown
		return t.keysReport(report, "the replicas do not agree: wait until the roll-out is done and check again; if it is done, find the replica with another FAIRPACT_KEY_SET_FILE")
	}
	head, err := newestHead(ctx, client, trusted(keys))
	c.head(head, err, &report)
	if err == nil {
		c.grown(ctx, t, client, head, keys, &report)
	}
	if c.Signer != "" {
		label, err := publicKeyOf(ctx, c.Signer)
		if err != nil {
			return err
		}
		i := keys.find(label)
		good := i >= 0 && keys[i].State != verification.Retired
		detail := label + " is not in the set: publish it with keys add-next, roll that out, then sign with it"
		if i >= 0 {
			detail = "the " + keys[i].State + " key, " + label
		}
		report.Add(verification.Check{Name: "signer", OK: good, Detail: detail})
	}
	return t.keysReport(report, next(keys, report.Valid))
}

// published asks for the key set and the status several times and compares. It
// gives nil where the answers differ.
func (c keysCheckCommand) published(ctx context.Context, client *restclient.Client, file keySet, report *verification.Report) (keySet, error) {
	answers := map[string]int{}
	var keys keySet
	fits := "pubkey and legacy_pubkeys are those of the key set"
	same := true
	for range c.Times {
		client.Reconnect()
		document, err := fetch(ctx, client, "/v1/pubkeys")
		if err != nil {
			return nil, err
		}
		if keys, err = readKeySet(document); err != nil {
			return nil, err
		}
		answers[string(keys.document())]++
		status, err := fetch(ctx, client, "/v1/status")
		if err != nil {
			return nil, err
		}
		listed, err := keysOfStatus(status)
		if err != nil {
			return nil, err
		}
		if len(listed) != len(keys) || listed[0].Label != keys.in(verification.Current)[0].Label {
			same, fits = false, fmt.Sprintf("the status names %s as the current key, and %d keys; the key set %s, and %d", listed[0].Label, len(listed), keys.in(verification.Current)[0].Label, len(keys))
		}
	}
	agree := verification.Check{Name: "replicas_agree", OK: len(answers) == 1, Detail: fmt.Sprintf("%d answers, all the same", c.Times)}
	if !agree.OK {
		var counts []string
		for text, n := range answers {
			counts = append(counts, fmt.Sprintf("%d times %s", n, text))
		}
		agree.Detail = fmt.Sprintf("%d different answers: %s", len(answers), strings.Join(counts, "; "))
	}
	report.Add(agree)
	if !agree.OK {
		return nil, nil
	}
	report.Add(verification.Check{Name: "status_agrees", OK: same, Detail: fits})
	if file != nil {
		check := verification.Check{Name: "file_agrees", OK: string(file.document()) == string(keys.document()), Detail: "the published set is that of " + c.File}
		if !check.OK {
			check.Detail = "published is " + string(keys.document()) + " and the file says " + string(file.document())
		}
		report.Add(check)
	}
	return keys, nil
}

// signedHead is a tree head whose signature holds.
type signedHead struct {
	size int64
	root []byte
	by   verification.Key
}

// newestHead fetches the newest tree head and verifies it.
func newestHead(ctx context.Context, client *restclient.Client, keys []verification.Key) (signedHead, error) {
	document, err := fetch(ctx, client, "/v1/log/tree-head")
	if err != nil {
		return signedHead{}, unreadable(err)
	}
	return checkedHead(document, keys)
}

func checkedHead(document any, keys []verification.Key) (signedHead, error) {
	by, problem := verification.VerifyTreeHead(document, keys)
	if problem != "" {
		return signedHead{}, refusal{errors.New("the tree head: " + problem)}
	}
	members := document.(map[string]any)
	root, err := hex.DecodeString(members["root_hash"].(string))
	return signedHead{members["tree_size"].(int64), root, by}, err
}

func (c keysCheckCommand) head(head signedHead, err error, report *verification.Report) {
	check := verification.Check{Name: "tree_head", OK: err == nil}
	if err != nil {
		check.Detail = err.Error()
	} else {
		check.Detail = fmt.Sprintf("the newest, of size %d, is signed by the %s key %s", head.size, head.by.State, head.by.Label)
	}
	report.Add(check)
}

// noHead is a --tree-head that says that there is none.
const noHead = "none"

// grown checks that the newest head continues an earlier one. Any tree continues
// the empty one, so that is none to compare with, and who has no other says so.
func (c keysCheckCommand) grown(ctx context.Context, t *terminal, client *restclient.Client, newest signedHead, keys keySet, report *verification.Report) {
	check := verification.Check{Name: "consistency"}
	if c.TreeHead == noHead {
		check.OK, check.Detail = true, "not checked, as --tree-head none asks; keep the tree head of today for the next time"
		report.Add(check)
		return
	}
	earlier, err := c.earlier(ctx, t, client, newest.size, keys)
	if err == nil {
		err = consistent(ctx, client, earlier, newest)
	}
	check.OK, check.Detail = err == nil, fmt.Sprintf("the tree of size %d continues the one of size %d", newest.size, earlier.size)
	if c.TreeHead == "" {
		check.Detail += ", which the log answered itself"
	}
	if err != nil {
		check.Detail = err.Error()
	}
	report.Add(check)
}

// nearby is how many sizes are tried for an earlier head: heads of a busy log
// are tens of leaves apart.
const nearby = 64

// earlier is the kept head, or one of about half the size that the log answers.
func (c keysCheckCommand) earlier(ctx context.Context, t *terminal, client *restclient.Client, size int64, keys keySet) (signedHead, error) {
	if c.TreeHead != "" {
		document, err := t.tree(c.TreeHead)
		if err != nil {
			return signedHead{}, err
		}
		head, err := checkedHead(document, trusted(keys))
		if err == nil && head.size == 0 {
			err = fmt.Errorf("%s is the head of the empty tree, which any tree continues: give a later one", c.TreeHead)
		}
		return head, err
	}
	// Not every size has a head of its own.
	middle := max(size/2, 1)
	for at := middle; at < size && at < middle+nearby; at++ {
		document, err := fetch(ctx, client, fmt.Sprintf("/v1/log/tree-head?tree_size=%d", at))
		if refused, ok := errors.AsType[*restclient.Refused](err); ok && refused.Status == 404 {
			continue
		}
		if err != nil {
			return signedHead{}, err
		}
		return checkedHead(document, trusted(keys))
	}
	return signedHead{}, fmt.Errorf("nothing to compare the tree of size %d with, since the log answers no earlier one: give a tree head that was kept, --tree-head FILE, or where the log is new and nobody has one, --tree-head none", size)
}

// consistent verifies an RFC 9162 consistency proof that the log gives.
func consistent(ctx context.Context, client *restclient.Client, first, second signedHead) error {
	if first.size > second.size {
		return fmt.Errorf("the tree head of size %d is newer than the newest of the log, of size %d: the log was set back", first.size, second.size)
	}
	body, err := client.Get(ctx, fmt.Sprintf("/v1/log/consistency?first=%d&second=%d", first.size, second.size), "")
	if err != nil {
		return err
	}
	var answer struct {
		Path []string `json:"consistency_path"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("the consistency proof is unreadable: %w", err)
	}
	path := make([][]byte, len(answer.Path))
	for i, node := range answer.Path {
		if path[i], err = hex.DecodeString(node); err != nil {
			return fmt.Errorf("the consistency proof is unreadable: %w", err)
		}
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(first.size), uint64(second.size), path, first.root, second.root); err != nil {
		return fmt.Errorf("the tree of size %d does not continue that of size %d: two logs are signed: %w", second.size, first.size, err)
	}
	return nil
}

// next says what an operator does now.
func next(keys keySet, agreed bool) string {
	if !agreed {
		return "mend what failed before any further step of a rotation"
	}
	if n := keys.in(verification.Next); len(n) > 0 {
		return fmt.Sprintf("%s is published and ready: fairpactctl keys promote, then roll out the new file together with the FAIRPACT_SIGNING_KEY of this key", n[0].Label)
	}
	for _, k := range keys.in(verification.Retired) {
		if k.TreeSize == nil {
			return fmt.Sprintf("%s is retired and open: once nothing that it signed is pending (see the runbook), fairpactctl keys close %s, and roll out the new file", k.Label, k.Label)
		}
	}
	return "nothing: one key signs and every retired one is closed. To rotate, begin with fairpactctl keys add-next"
}

func (t *terminal) keysReport(r verification.Report, next string) error {
	if t.json {
		err := t.value(struct {
			verification.Report
			Next string `json:"next"`
		}{r, next})
		if err != nil {
			return err
		}
	} else {
		for _, check := range r.Checks {
			word := "OK"
			if !check.OK {
				word = "FAIL"
			}
			t.line("%-4s %-15s %s", word, check.Name, check.Detail)
		}
		t.line("next: %s", next)
	}
	if !r.Valid {
		return errFailed
	}
	return nil
}
