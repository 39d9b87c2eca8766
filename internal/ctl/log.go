package ctl

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/platform/files"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/translog/audit"
)

type logCommands struct {
	Key    logKeyCommand    `cmd:"" group:"operators" help:"Make the Ed25519 key that signs the log's checkpoints, or show the verifier key of an existing key."`
	Audit  logAuditCommand  `cmd:"" group:"auditors" help:"Compute the root of a log from its entries and check every tile."`
	Mirror logMirrorCommand `cmd:"" group:"auditors" help:"Copy a log up to its newest checkpoint into a folder, which any static file server can serve as the log."`
	Fsck   logFsckCommand   `cmd:"" group:"operators" help:"Check the log's tables in the database against each other."`
	Guard  logGuardCommand  `cmd:"" group:"operators" help:"Show the fork guard under which the log is signed, or move the log to another guard."`
	Watch  logWatchCommand  `cmd:"" group:"auditors" help:"Prove that a log only grows, from one checkpoint to the next."`
}

type logTrust struct {
	Policy string   `placeholder:"FILE" xor:"trust" required:"" help:"File with the trust policy (c2sp.org/tlog-policy), which names the log's keys, the witnesses and the quorum."`
	VKey   []string `name:"vkey" sep:"none" placeholder:"KEY" xor:"trust" required:"" help:"Verifier key of the log, NAME+ID+KEY, instead of a policy; repeatable. Without a policy, witnesses are not checked."`
}

func (l logTrust) read(t *terminal) (*checkpoint.Policy, error) {
	if l.Policy != "" {
		text, err := t.read(l.Policy)
		if err != nil {
			return nil, err
		}
		policy, err := checkpoint.ParsePolicy(text)
		if err == nil && len(policy.Logs) == 0 {
			err = errors.New("the policy names no log: add a line \"log VKEY\"")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Policy, err)
		}
		return policy, nil
	}
	policy := &checkpoint.Policy{}
	for _, vkey := range l.VKey {
		key, err := checkpoint.ParseKey(vkey)
		if err != nil {
			return nil, err
		}
		policy.Logs = append(policy.Logs, key)
	}
	return policy, nil
}

// open reads the policy and opens the log at `place`, which is a URL or the folder of a mirror.
func (l logTrust) open(t *terminal, place string) (*checkpoint.Policy, *audit.Source, error) {
	policy, err := l.read(t)
	if err != nil {
		return nil, nil, err
	}
	from, err := audit.Open(place)
	return policy, from, err
}

// logReport is the --json output of log audit, log mirror and log watch.
type logReport struct {
	Verdict   string          `json:"verdict"` // "good", "quorum" (too few witnesses cosigned), "closings" (of one deal) or "contradiction"
	Origin    string          `json:"origin,omitempty"`
	TreeSize  int64           `json:"tree_size"`
	RootHash  string          `json:"root_hash,omitempty"`
	Witnesses []string        `json:"witnesses"`
	Findings  []audit.Finding `json:"findings,omitempty"`
	Notes     []string        `json:"notes,omitempty"`    // the signed checkpoints that contradict each other or the log
	Closings  []audit.Leaf    `json:"closings,omitempty"` // of the deal that log audit --deal names
}

// judged prints the verdict on a log, and returns the error that sets the exit code. If err is neither nil
// nor a Contradiction, there is no verdict, and judged returns err.
func (t *terminal) judged(head audit.Head, policy *checkpoint.Policy, err error, closings ...audit.Leaf) error {
	found, contradiction := errors.AsType[*audit.Contradiction](err)
	if err != nil && !contradiction {
		return err
	}
	r, exit := logReport{Verdict: "good", Witnesses: append([]string{}, head.Witnesses...), Closings: closings}, error(nil)
	if head.Note != nil {
		r.Origin, r.TreeSize, r.RootHash = head.Origin, head.Size, hex.EncodeToString(head.Root[:])
	}
	switch {
	case contradiction:
		r.Verdict, r.Findings, exit = "contradiction", found.Findings, errForged
		for _, signed := range found.Notes {
			r.Notes = append(r.Notes, string(signed))
		}
	case len(closings) > 1:
		r.Verdict, exit = "closings", errForged
	case head.Quorum != nil:
		r.Verdict, exit = "quorum", errFailed
	}
	if t.json {
		return cmp.Or(t.value(r), exit)
	}
	t.logLines(r, head, policy)
	return exit
}

func (t *terminal) logLines(r logReport, head audit.Head, policy *checkpoint.Policy) {
	for _, f := range r.Findings {
		t.line("FAIL %s: %s", f.Path, f.Problem)
	}
	for i, signed := range r.Notes {
		t.line("signed checkpoint %d of %d:", i+1, len(r.Notes))
		for line := range strings.Lines(signed) {
			t.line("    %s", strings.TrimSuffix(line, "\n"))
		}
	}
	for _, leaf := range r.Closings {
		t.line("leaf %d closes the deal: %s", leaf.Index, leaf.Entry)
	}
	switch {
	case r.Verdict == "contradiction":
		t.line("THE LOG CONTRADICTS ITS SIGNED CHECKPOINTS: keep the lines above, and show them to others who use this log")
		return
	case head.Quorum != nil:
		t.line("FAIL witnesses: %v", head.Quorum)
	case policy.Demands():
		t.line("OK   witnesses: %s", strings.Join(r.Witnesses, ", "))
	default:
		t.line("no witness was checked: the policy requires none")
	}
	t.line("%s has %d leaves, root %s", r.Origin, r.TreeSize, r.RootHash)
	if r.Verdict == "closings" {
		t.line("THE LOG CLOSES THE DEAL %d TIMES: its operator could choose between several sets of commitments after the round of the seals", len(r.Closings))
	}
}

type logAuditCommand struct {
	logTrust
	Place string   `arg:"" help:"URL of the log, or folder of a mirror."`
	Seen  []string `sep:"none" placeholder:"FILE" help:"File with a signed checkpoint or a .tlog-proof that somebody received earlier; repeatable. The log must extend that checkpoint."`
	Deal  string   `placeholder:"ID" help:"List the leaves that close the commitments of this deal. An honest log has one for a deal with seals, and none for another deal."`
}

func (c logAuditCommand) Run(ctx context.Context, t *terminal) error {
	policy, from, err := c.open(t, c.Place)
	if err != nil {
		return err
	}
	head, err := from.Head(ctx, policy)
	if err != nil {
		return t.judged(head, policy, err)
	}
	for _, name := range c.Seen {
		seen, err := t.seen(name, policy)
		if err == nil {
			err = audit.Extends(ctx, from, head, seen)
		}
		if err != nil {
			return t.judged(head, policy, err)
		}
	}
	var mark []byte
	if c.Deal != "" {
		begins := timelock.Mark(c.Deal)
		mark = begins[:]
	}
	closings, err := audit.Audit(ctx, from, head, mark)
	_, contradiction := errors.AsType[*audit.Contradiction](err)
	if known := err == nil || contradiction; c.Deal != "" && known && len(closings) == 0 {
		t.note("no leaf closes the deal %s: it had no seals, its commitments are not closed yet, or the id is wrong", c.Deal)
	}
	return t.judged(head, policy, err, closings...)
}

// seen reads a checkpoint that the log signed from a file, which may also be a .tlog-proof.
func (t *terminal) seen(name string, policy *checkpoint.Policy) (audit.Head, error) {
	signed, err := t.read(name)
	if err != nil {
		return audit.Head{}, err
	}
	if proof, err := checkpoint.ParseProof(signed); err == nil {
		signed = proof.Note
	}
	head, err := audit.ReadHead(signed, policy)
	if err != nil {
		return head, fmt.Errorf("%s: %s", name, err)
	}
	return head, nil
}

type logMirrorCommand struct {
	logTrust
	URL string `arg:"" help:"URL of the log."`
	Dir string `arg:"" help:"Folder of the mirror, created if it does not exist."`
}

func (c logMirrorCommand) Run(ctx context.Context, t *terminal) error {
	policy, from, err := c.open(t, c.URL)
	if err != nil {
		return err
	}
	head, err := audit.Mirror(ctx, from, c.Dir, policy)
	return t.judged(head, policy, err)
}

type logWatchCommand struct {
	logTrust
	URL   string        `arg:"" help:"URL of the log."`
	State string        `required:"" placeholder:"FILE" help:"File with the newest verified checkpoint, created if it does not exist."`
	Every time.Duration `default:"1m" help:"Time between two checks."`
	Once  bool          `help:"Check once and exit, for cron."`
}

func (c logWatchCommand) Run(ctx context.Context, t *terminal) error {
	if c.Every <= 0 {
		return fmt.Errorf("--every is %s: give a duration longer than 0, such as 1m", c.Every)
	}
	policy, from, err := c.open(t, c.URL)
	if err != nil {
		return err
	}
	seen, err := t.seen(c.State, policy)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for {
		head, err := audit.Watch(ctx, from, policy, seen)
		if err == nil && head.Size >= seen.Size {
			if err := files.Replace(c.State, head.Note, 0o644); err != nil {
				return err
			}
			seen = head
		}
		if _, forked := errors.AsType[*audit.Contradiction](err); c.Once || forked || ctx.Err() != nil {
			return t.judged(head, policy, err)
		}
		switch {
		case err != nil:
			t.note("cannot check the log: %v", err)
		case head.Quorum != nil:
			t.note("%d leaves; %v", head.Size, head.Quorum)
		default:
			t.note("%d leaves, and the log only grew", head.Size)
		}
		if err := httpclient.Pause(ctx, c.Every); err != nil {
			return err
		}
	}
}

// keyFilesCommand copies private keys in an init container. A group can read the files in a
// Secret volume, but signing.Open accepts a file:// key only if nobody except the owner can
// read it. The images have no shell that could copy the files.
type keyFilesCommand struct {
	From string `arg:"" help:"Folder of a Secret volume."`
	To   string `arg:"" help:"Folder in an in-memory volume, for the copies. Only the owner of a copy can read the copy."`
}

func (c keyFilesCommand) Run() error {
	entries, err := os.ReadDir(c.From)
	if err != nil {
		return err
	}
	copied := 0
	for _, file := range entries {
		if strings.HasPrefix(file.Name(), "..") { // the kubelet's own links and folders
			continue
		}
		from := filepath.Join(c.From, file.Name())
		content, err := os.ReadFile(from)
		if err == nil && len(content) == 0 {
			err = errors.New(from + " is empty: put the private key as PEM into the Secret")
		}
		if err == nil {
			err = files.Replace(filepath.Join(c.To, file.Name()), content, 0o600)
		}
		if err != nil {
			return err
		}
		copied++
	}
	if copied == 0 {
		return errors.New(c.From + " holds no file: put the private key as PEM into the Secret")
	}
	return nil
}

type logKeyCommand struct {
	Origin string `required:"" placeholder:"NAME" env:"FAIRPACT_LOG_ORIGIN" help:"Name of the log, as in the FAIRPACT_LOG_ORIGIN of log-server: the public URL without scheme, such as fairpact.example.com."`
	Out    string `placeholder:"FILE" help:"Make a key, and write the key to this new file as PEM (PKCS#8)."`
	Of     string `placeholder:"URI" help:"URI of an existing key, as in FAIRPACT_LOG_KEY. The command then makes no key, and shows the verifier key of this key."`
}

func (c logKeyCommand) Run(ctx context.Context, t *terminal) error {
	if (c.Out == "") == (c.Of == "") {
		return errors.New("--out and --of are both given or both missing: give --out FILE to make a key, or --of URI to show one")
	}
	if err := checkpoint.CheckOrigin(c.Origin); err != nil {
		return err
	}
	uri := c.Of
	if c.Out != "" {
		if _, err := signing.MakeKeyFile(c.Out, "ed25519"); err != nil {
			return err
		}
		uri = "file://" + c.Out
	}
	logKey, err := signing.OpenLogKey(ctx, uri)
	if err != nil {
		return err
	}
	defer func() { _ = logKey.Close() }()
	key, err := checkpoint.Ed25519Key(c.Origin, logKey.Public())
	if err != nil {
		return err
	}
	return t.show(map[string]string{"vkey": key.String()}, "%s", key)
}
