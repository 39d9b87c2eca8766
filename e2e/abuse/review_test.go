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
	mostUnsent   = 96 << 20  // bytes that the kernel holds for clients of deal-api: tickets for 57 MB, and up to 16 KB of each connection in an attack
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

// apart moves the servers and this process to cores of their own, so that an attack costs the servers' time alone.
// It does nothing in `make test`, whose packages share the cores.
var apart = func(*testing.T) {}

var limits = []string{"GOMEMLIMIT=" + memoryLimit, "FAIRPACT_LOG_LEVEL=error"}

// run runs a prepared attack from some addresses.
func (a attack) run(t *testing.T, stack *localstack.Stack, attack func(context.Context, *crowd), addresses int, d time.Duration) {
	e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, limits...))
	confine(t, stack)
	v := newVictim(t, stack)
	apart(t)
	quiet := v.play(d / 2)
	ctx, cancel := context.WithTimeout(t.Context(), d+5*time.Second)
	defer cancel()
	attackers := newCrowd(t, stack, addresses)
	var all sync.WaitGroup
	all.Go(func() { attack(ctx, attackers) })
	e2e.Pause(ctx, d/4)
	loud := v.play(d)
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
		if loud.Refused[i] > 0 {
			t.Errorf("%s of another address: %d of %d refused (%s), want none", name, loud.Refused[i], loud.Refused[i]+len(loud.Took[i]), loud.Why[i])
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
	c := clientFrom(stack.BaseURL(), address)
	c.T = t
	t.Cleanup(c.Http.CloseIdleConnections)
	return c
}

func clientFrom(base, address string) *e2e.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 4096}
	return &e2e.Client{Base: base, Http: &http.Client{Transport: transport, Timeout: 12 * time.Second}}
}
