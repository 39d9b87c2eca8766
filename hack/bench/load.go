package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

type timed struct {
	n       int // completed units of work, such as deals (see the type do)
	elapsed time.Duration
	calls   map[string]latencies // by the name of the measured call, such as "commit"
	before  cpuTimes
	after   cpuTimes
}

func (t *timed) perSecond() float64 { return float64(t.n) / t.elapsed.Seconds() }

// do runs one unit of a client's work, such as a deal. It calls note for each measured call.
type do func(client int, note func(call string, took time.Duration)) error

// errDone is returned by a `do` function when no work is left. Its client then ends early.
var errDone = errors.New("nothing is left to do")

// load runs the given number of clients. Each client calls `thing` in a loop until the
// duration d has passed. load then waits for the calls in progress. The result includes
// these calls and their time. load returns the first error of a client, or an error if no
// call was completed.
func (b *bench) load(clients int, d time.Duration, thing do) (*timed, error) {
	t := &timed{calls: map[string]latencies{}}
	var err error
	if t.before, err = b.cpu(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(b.ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for i := range clients {
		all.Go(func() {
			n, mine := 0, map[string]latencies{}
			note := func(call string, took time.Duration) { mine[call] = append(mine[call], took) }
			for time.Since(begin) < d && ctx.Err() == nil {
				if err := thing(i, note); err == errDone {
					break
				} else if err != nil {
					cancel(err)
					return
				}
				n++
			}
			mu.Lock()
			defer mu.Unlock()
			t.n += n
			for call, list := range mine {
				t.calls[call] = append(t.calls[call], list...)
			}
		})
	}
	all.Wait()
	t.elapsed = time.Since(begin)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t.after, err = b.cpu()
	if t.n == 0 && err == nil {
		err = fmt.Errorf("%d clients completed no operation in %s, want at least one", clients, t.elapsed)
	}
	return t, err
}

func (s samples) addLoad(name string, t *timed) {
	s.add(name+".per_second", t.perSecond())
	s.addCPU(name, t)
	for call, list := range t.calls {
		s.addLatencies(name+"."+call, list)
	}
}
