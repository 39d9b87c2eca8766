package abuse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// calls are those of a round of the victim.
var calls = [4]string{"read", "commit", "reveal", "tool call"}

const (
	victimAt     = "127.0.9.9"
	victimRounds = 600
	victimEnv    = "FAIRPACT_ABUSE_VICTIM" // the test binary plays the victim, see playVictim
)

// victim reads a deal of two parties over REST and MCP, commits and reveals. It plays in a process of its own, because in this one it would
// wait for the CPU behind the attackers.
type victim struct {
	t *testing.T
	rounds
}

// rounds are what a victim is to play.
type rounds struct {
	Base  string
	For   time.Duration
	Calls [][4]call // of each round
}

type call struct {
	Method, Path, Token string
	Body                json.RawMessage `json:",omitempty"`
}

// latencies are the answers of a victim, by call.
type latencies struct {
	Rounds  int
	Took    [4][]time.Duration
	Refused [4]int
	Why     [4]string // of the last refusal
}

func newVictim(t *testing.T, stack *localstack.Stack) *victim {
	c := from(t, stack, victimAt)
	round := stack.Chain().RoundAt(time.Now().Add(3*hour).Unix()) + 1
	read := c.Create(e2e.SplitBody(hour, 2*hour))
	// One party more than rounds, because the last commit or reveal would end the phase.
	commit := c.Create(e2e.RandomBody(victimRounds+1, round, hour, 2*hour))
	reveal := c.Create(e2e.RandomBody(victimRounds+1, round, hour, 2*hour))
	inputs := make([]e2e.Sealed, victimRounds+1)
	for i := range inputs {
		inputs[i] = e2e.Seal(t, e2e.Body{"nonce": "aa"})
	}
	many(t, c, len(inputs), func(i int) (string, string, string, any) {
		return "POST", reveal.Path("/commit"), reveal.Tokens[i], inputs[i].Act("commit")
	})
	v := &victim{t, rounds{Base: stack.BaseURL()}}
	body := func(value any) json.RawMessage {
		text, err := json.Marshal(value)
		e2e.Must(t, err)
		return text
	}
	get := tool("get_deal", e2e.Body{"deal_id": read.ID, "invite_token": read.Tokens[0]})
	for i := range victimRounds {
		v.Calls = append(v.Calls, [4]call{
			{"GET", read.Path(""), read.Tokens[i%2], nil},
			{"POST", commit.Path("/commit"), commit.Tokens[i], body(inputs[i].Act("commit"))},
			{"POST", reveal.Path("/reveal"), reveal.Tokens[i], body(inputs[i].Act("reveal"))},
			{"POST", "/mcp", "", json.RawMessage(get)},
		})
	}
	return v
}

// play plays rounds that the victim has not played yet. Not until ctx ends: a call that outlives the attack counts with its whole time.
func (v *victim) play(d time.Duration) *latencies {
	v.For = d
	sent, err := json.Marshal(v.rounds)
	e2e.Must(v.t, err)
	binary, err := os.Executable()
	e2e.Must(v.t, err)
	cmd := exec.CommandContext(v.t.Context(), binary)
	cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), victimEnv+"=1"), bytes.NewReader(sent), os.Stderr
	answer, err := cmd.Output()
	e2e.Must(v.t, err)
	l := &latencies{}
	e2e.Must(v.t, json.Unmarshal(answer, l))
	v.Calls = v.Calls[l.Rounds:]
	return l
}

// playVictim plays the rounds in standard input, and writes the latencies to standard output.
func playVictim() error {
	var todo rounds
	if err := json.NewDecoder(os.Stdin).Decode(&todo); err != nil {
		return err
	}
	l, c := latencies{}, clientFrom(todo.Base, victimAt)
	for until := time.Now().Add(todo.For); time.Now().Before(until) && l.Rounds < len(todo.Calls); l.Rounds++ {
		for i, one := range todo.Calls[l.Rounds] {
			body := any(nil)
			if one.Body != nil {
				body = string(one.Body)
			}
			began := time.Now()
			a, err := c.Try(context.Background(), one.Method, one.Path, one.Token, body)
			if took := time.Since(began); err == nil && a.Status == 200 {
				l.Took[i] = append(l.Took[i], took)
			} else {
				l.Refused[i]++
				l.Why[i] = fmt.Sprintf("%v %d %.200s after %v", err, a.Status, a.Body, took)
			}
		}
		time.Sleep(5 * time.Millisecond) // a client that thinks, so that it is no flood itself
	}
	return json.NewEncoder(os.Stdout).Encode(l)
}

// part returns the latency of a call that n of 100 do not exceed.
func (l *latencies) part(n, call int) time.Duration {
	if len(l.Took[call]) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(l.Took[call]))[len(l.Took[call])*n/100]
}

// beside is the end of a row of a table: medians of quiet and beside the attack, and there what 90 of 100 do not exceed. It marks a
// median over twice that of quiet and 20 ms.
func (l *latencies) beside(quiet *latencies) (row string) {
	for i := range calls {
		mark := ""
		if l.part(50, i) > 2*quiet.part(50, i)+20*time.Millisecond {
			mark = " !"
		}
		row += fmt.Sprintf(" %.1f -> %.0f ms%s, 90 %%: %.0f, %d of %d refused |", quiet.part(50, i).Seconds()*1e3, l.part(50, i).Seconds()*1e3, mark, l.part(90, i).Seconds()*1e3, l.Refused[i], l.Refused[i]+len(l.Took[i]))
	}
	return row
}
