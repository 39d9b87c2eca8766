package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// lies are edits of the source that make a dishonest operator's service: file, what stands there, and
// what stands there instead. The label of a party or deal chooses among the lies about seals, so that the
// operator is honest in other deals.
var lies = [][3]string{
	// The draw takes the digest that lets party 0 win, instead of the digest of the nonces.
	{"internal/rules/algorithm/random.go", "	return drawn(labels, chain, randomness, sha256.Sum256(xorNonces(nonces)), b), nil", `	for try := byte(0); ; try++ {
		if result := drawn(labels, chain, randomness, sha256.Sum256([]byte{try}), b); result.Winner == 0 {
			return result, nil
		}
	}`},
	// The split gives each of two parties what the other one would get.
	{"internal/rules/algorithm/split.go", "for p, input := range inputs {\n\t\tvalues, err", "for p := range inputs {\n\t\tinput := inputs[len(inputs)-1-p]\n\t\tvalues, err"},
	// The seal of a party with the label "framed" is reported as one that does not open.
	{"internal/escrow/openseals.go", "	text, err := s.secrets.DecryptSeal(", `	if d.Labels[pending.Party] == "framed" {
		return openedSeal{err: errors.New("a lie")}
	}
	text, err := s.secrets.DecryptSeal(`},
	// The seals of a deal whose first party has the label "withheld" are never opened.
	{"internal/escrow/openseals.go", "	key, err := s.sealKey(ctx, d)", `	if d.Labels[0] == "withheld" {
		return problem.New(problem.BeaconNotReady, "a lie")
	}
	key, err := s.sealKey(ctx, d)`},
	// For ten minutes after the deadline, no deal is VOID for a missing commitment, and the time of a late commitment is
	// the second before the deadline.
	{"internal/rules/deal/deal.go", "now >= d.CommitDeadline {\n\t\t\treturn VoidCommits", "now >= d.CommitDeadline+600 {\n\t\t\treturn VoidCommits"},
	{"internal/rules/deal/deal.go", "		return d.CommitDeadline, true", "		return d.CommitDeadline + 600, true"},
	{"internal/escrow/store/sql/commit.sql", "(SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now)",
		"(SELECT least(floor(extract(epoch FROM clock_timestamp()))::bigint, (SELECT min(commit_deadline) - 1 FROM deals WHERE deal_id = ANY ($1::text[]))) AS now)"},
}

var dishonest = sync.OnceValues(func() (bin string, err error) {
	root, err := localstack.Root()
	if err != nil {
		return "", err
	}
	bin = filepath.Join(root, "bin", "e2e", "dishonest")
	unlock, err := lockDir(bin) // test packages run side by side, and two of them build it
	if err != nil {
		return "", err
	}
	defer unlock()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	edited := map[string]string{}
	for _, lie := range lies {
		path := filepath.Join(root, lie[0])
		if edited[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			edited[path] = string(text)
		}
		if strings.Count(edited[path], lie[1]) != 1 {
			return "", &os.PathError{Op: "lie in", Path: lie[0], Err: os.ErrNotExist} // the code has changed: renew the lie
		}
		edited[path] = strings.Replace(edited[path], lie[1], lie[2], 1)
	}
	if err := os.MkdirAll(filepath.Join(bin, "src"), 0o755); err != nil {
		return "", err
	}
	for path, text := range edited {
		overlay.Replace[path] = filepath.Join(bin, "src", filepath.Base(path)+".lie") // no Go file, so that no tool builds it
		if err := os.WriteFile(overlay.Replace[path], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	named := filepath.Join(bin, "src", "overlay.json")
	if err := os.WriteFile(named, text, 0o644); err != nil {
		return "", err
	}
	return bin, localstack.Build(context.Background(), bin, "-overlay", named)
})

// lockDir makes the directory and holds the lock of it until unlock is called or the process ends.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Dishonest starts the stack of an operator who signs, with the deployment's own key, draws that party 0
// wins, splits in which the two parties' shares are exchanged, and lies about seals.
func Dishonest(t testing.TB, witnesses int) *localstack.Stack {
	t.Helper()
	bin, err := dishonest()
	Must(t, err)
	return Own(t, func(o *localstack.Options) { o.Bin, o.Witnesses = bin, witnesses })
}

// Lie is a certified lie: the bundle that a party was given, the openings that the parties keep, and the
// key of the deployment.
type Lie struct {
	Bundle   []byte
	Openings []Body // opening files
	Pubkey   string
}

// Lies returns a ground draw and a wrong split of a dishonest operator, as parties get them.
func Lies(t testing.TB) (draw, split Lie) {
	t.Helper()
	stack := Dishonest(t, 0)
	c := NewClient(t, stack.BaseURL())
	var status KeysOfStatus
	c.Want(200, "GET", "/v1/status", "", nil).Into(t, &status)
	played := func(x *UnfinishedDeal) Lie {
		lie := Lie{Pubkey: status.Pubkey}
		Eventually(t, "the certificate is there", 20*time.Second, func() bool {
			a := c.Do("GET", x.Deal.Path("/bundle"), x.Deal.Tokens[1], nil)
			lie.Bundle = a.Body
			return a.Status == 200 && strings.Contains(string(a.Body), `"log_proof":"`)
		})
		for i, in := range x.Inputs {
			lie.Openings = append(lie.Openings, Body{"deal_id": x.Deal.ID, "party": i, "input": in.Input, "salt": in.Salt})
		}
		return lie
	}
	draws := Open(c, RandomBody(3, stack.Chain().RoundAt(time.Now().Unix())-10, time.Hour, 2*time.Hour), 3, 3, Body{"nonce": "aa"}, Body{"nonce": "0b"}, Body{"nonce": ""})
	c.Want(200, "POST", draws.Deal.Path("/entropy"), draws.Deal.Tokens[2], nil)
	return played(draws), played(Open(c, SplitBody(time.Hour, 2*time.Hour), 2, 2, AnnsValues, BobsValues))
}
