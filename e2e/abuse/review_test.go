package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// deal-api runs with GOMEMLIMIT, and its peak of resident memory is compared with mostResident. If
// FAIRPACT_ATTACKS_CGROUP names a memory cgroup with a limit, deal-api is moved into it, so that the
// kernel kills it at the limit.
const (
	memoryLimit  = "540MiB"  // GOMEMLIMIT: 90 % of 600 MB
	mostResident = 600 << 20 // bytes
	mostUnsent   = 64 << 20  // bytes that the kernel holds for clients of deal-api
	victimAt     = "127.0.9.9"
)

// attack prepares deals, and returns what then runs until its context ends.
type attack struct {
	name    string
	prepare func(*testing.T, *localstack.Stack) func(context.Context, *crowd)
}

// cheap are the attacks that need no large deals.
var cheap = []attack{
	{"1 verify 300 x 65 KB", deepDocuments},
	{"1 commit 300 x 65 KB own token", deepCommits},
	{"4 stalled commits, own token", func(t *testing.T, s *localstack.Stack) func(context.Context, *crowd) { return stalled(t, s, true) }},
	{"4 stalled bodies, /mcp", func(t *testing.T, s *localstack.Stack) func(context.Context, *crowd) { return stalled(t, s, false) }},
	{"6 unread answers, 80 connections", unread((*localstack.Stack).BaseURL, 80, 40, "/openapi.json")},
	{"6 unread answers of log-server, 300 connections", unread(logURL, 300, 600, "/v1/log/tree-head")},
	{"7 silent connections", silent},
	{"10 unknown credentials, 500 connections", unknown},
	{"headers of 5,000 lines, 1,200 connections", shortLines},
	{"bodies that do not come, own token, 4,000 connections", missingBody},
	{"replays of a large answer, unread, 400 connections", largeReplays},
}

// TestReview runs the cheap attacks of the review from one address beside a victim at another. deal-api
// must not be killed, must stay below mostResident, and must refuse none of the victim's calls. Latencies are logged, because they
// depend on the machine.
func TestReview(t *testing.T) {
	stack := attacked(t)
	for _, a := range cheap {
		t.Run(a.name, func(t *testing.T) { a.run(t, stack, a.prepare(t, stack), 1, 2*time.Second) })
	}
	t.Run("large tool calls beside stalled bodies", func(t *testing.T) { largeBesideStalled(t, stack) })
	t.Run("readers of a large deal", func(t *testing.T) { readersOfALargeDeal(t, stack) })
}

// attacked starts a stack for attacks.
func attacked(t *testing.T) *localstack.Stack {
	return e2e.Own(t, func(o *localstack.Options) { o.Env[localstack.DealAPI] = limits })
}

var limits = []string{"GOMEMLIMIT=" + memoryLimit, "FAIRPACT_LOG_LEVEL=error"}

// run runs a prepared attack from some addresses.
func (a attack) run(t *testing.T, stack *localstack.Stack, attack func(context.Context, *crowd), addresses int, d time.Duration) {
	e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, limits...))
	confine(t, stack)
	v := newVictim(t, stack)
	quiet := v.play(t.Context(), d/2)
	ctx, cancel := context.WithTimeout(t.Context(), d+5*time.Second)
	defer cancel()
	attackers := newCrowd(t, stack, addresses)
	var all sync.WaitGroup
	all.Go(func() { attack(ctx, attackers) })
	e2e.Pause(ctx, d/4)
	loud := v.play(ctx, d)
	unsent := unsentBytes(stack)
	cancel()
	all.Wait()
	select {
	case <-stack.Ended(localstack.DealAPI):
		t.Error("deal-api was killed")
		return
	default:
	}
	held := peak(t, stack)
	t.Logf("ROW | %s | %d | %d MB | %d MB |%s", a.name, addresses, held>>20, unsent>>20, loud.beside(quiet))
	if held > mostResident {
		t.Errorf("deal-api used %d MB, want at most %d", held>>20, mostResident>>20)
	}
	if unsent > mostUnsent {
		t.Errorf("the kernel holds %d MB for clients, want at most %d", unsent>>20, mostUnsent>>20)
	}
	for i, name := range calls {
		if loud.refused[i] > 0 {
			t.Errorf("%s of another address: %d of %d refused (%s), want none", name, loud.refused[i], loud.refused[i]+len(loud.took[i]), loud.why[i])
		}
	}
}

// confine moves deal-api into the prepared cgroup, if any.
func confine(t *testing.T, stack *localstack.Stack) {
	if group := os.Getenv("FAIRPACT_ATTACKS_CGROUP"); group != "" {
		e2e.Must(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(stack.PID(localstack.DealAPI))), 0o600))
	}
}

func logURL(stack *localstack.Stack) string { return stack.LogReadURL(localstack.LogServer) }

// unsentBytes returns the bytes that the kernel holds for clients of deal-api and log-server.
func unsentBytes(stack *localstack.Stack) (sum int64) {
	var ports []string
	for _, url := range []string{stack.BaseURL(), logURL(stack)} {
		n, _ := strconv.Atoi(url[strings.LastIndex(url, ":")+1:])
		ports = append(ports, fmt.Sprintf(":%04X", n))
	}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 4 && len(f[1]) > 5 && slices.Contains(ports, f[1][len(f[1])-5:]) {
				sent, received, _ := strings.Cut(f[4], ":")
				for _, queue := range []string{sent, received} {
					bytes, _ := strconv.ParseInt(queue, 16, 64)
					sum += bytes
				}
			}
		}
	}
	return sum
}

// crowd is the attacker's addresses, with a client for each.
type crowd struct {
	stack     *localstack.Stack
	addresses []string
	clients   []*e2e.Client
}

func newCrowd(t *testing.T, stack *localstack.Stack, n int) *crowd {
	c := &crowd{stack: stack}
	for i := range n {
		c.addresses = append(c.addresses, fmt.Sprintf("127.0.2.%d", 1+i))
		c.clients = append(c.clients, from(t, stack, c.addresses[i]))
	}
	return c
}

// hold sends a text on the i-th new connection, reads nothing, and returns when the server closes it.
func (c *crowd) hold(ctx context.Context, i int, text string) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.addresses[i%len(c.addresses)])}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(c.stack.BaseURL(), "http://"))
	if err != nil {
		e2e.Pause(ctx, 50*time.Millisecond)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, _ = io.WriteString(conn, text)
	_, _ = io.Copy(io.Discard, conn)
}

// from returns a client with connections of its own from an address.
func from(t *testing.T, stack *localstack.Stack, address string) *e2e.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4096}
	t.Cleanup(transport.CloseIdleConnections)
	return &e2e.Client{T: t, Base: stack.BaseURL(), Http: &http.Client{Transport: transport, Timeout: 12 * time.Second}}
}

var calls = []string{"read", "commit", "reveal", "tool call"}

// victim reads a deal of two parties over REST and MCP, commits and reveals.
type victim struct {
	c                    *e2e.Client
	read, commit, reveal *e2e.CreatedDeal
	inputs               []e2e.Sealed
	next                 int
}

type latencies struct {
	took    [4][]time.Duration
	refused [4]int
	why     [4]string // of the last refusal
}

func (l *latencies) p50(i int) time.Duration {
	if len(l.took[i]) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(l.took[i]))[len(l.took[i])/2]
}

func (l *latencies) beside(quiet *latencies) (row string) {
	for i := range calls {
		row += fmt.Sprintf(" %.1f -> %.0f ms, %d of %d refused |", quiet.p50(i).Seconds()*1e3, l.p50(i).Seconds()*1e3, l.refused[i], l.refused[i]+len(l.took[i]))
	}
	return row
}

const victimParties = 600

func newVictim(t *testing.T, stack *localstack.Stack) *victim {
	c := from(t, stack, victimAt)
	round := stack.Chain().RoundAt(time.Now().Add(3*hour).Unix()) + 1
	v := &victim{c: c, read: c.Create(e2e.SplitBody(hour, 2*hour)), commit: c.Create(e2e.RandomBody(victimParties, round, hour, 2*hour)), reveal: c.Create(e2e.RandomBody(victimParties, round, hour, 2*hour))}
	for range victimParties {
		v.inputs = append(v.inputs, e2e.Seal(t, e2e.Body{"nonce": "aa"}))
	}
	many(t, c, victimParties, func(i int) (string, string, string, any) {
		return "POST", v.reveal.Path("/commit"), v.reveal.Tokens[i], v.inputs[i].Act("commit")
	})
	return v
}

func (v *victim) play(ctx context.Context, d time.Duration) *latencies {
	l := &latencies{}
	for until := time.Now().Add(d); time.Now().Before(until) && ctx.Err() == nil && v.next < victimParties-1; v.next++ {
		for i := range calls {
			method, deal, path, sent := "GET", v.read, "", any(nil)
			switch i {
			case 1:
				method, deal, path, sent = "POST", v.commit, "/commit", v.inputs[v.next].Act("commit")
			case 2:
				method, deal, path, sent = "POST", v.reveal, "/reveal", v.inputs[v.next].Act("reveal")
			}
			token, url := deal.Tokens[v.next%len(deal.Tokens)], deal.Path(path)
			if i == 3 {
				method, url, sent = "POST", "/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_deal","arguments":{"deal_id":%q,"invite_token":%q}}}`, deal.ID, token)
			}
			began := time.Now()
			// Not ctx: a call that outlives the attack counts with its whole time.
			a, err := v.c.Try(v.c.T.Context(), method, url, token, sent)
			if err != nil || a.Status != 200 {
				l.refused[i]++
				l.why[i] = fmt.Sprintf("%v %d %.200s after %v", err, a.Status, a.Body, time.Since(began))
			} else {
				l.took[i] = append(l.took[i], time.Since(began))
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return l
}
