package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

const players = 8

// campaign is one run: players play deals while faults happen.
type campaign struct {
	seed  uint64
	bound time.Duration // every deal must end within this time after the last fault
	stack *stack
	h     *history
	c     *client
	dir   string
	past  int64  // number of a beacon round that was published before the campaign
	key   string // the API key that creates all deals

	mu    sync.Mutex
	games []*game
}

// runCampaign plays deals and injects the faults of the seed's schedule for the duration `length`.
// When all faults have ended, every deal must end within the duration `bound`. runCampaign returns
// the history, and writes the history and the logs to `dir`.
func runCampaign(ctx context.Context, seed uint64, length, bound time.Duration, bin, dir string) (events []*Event, err error) {
	h, files := &history{}, filepath.Join(dir, "stack")
	if err := errors.Join(os.RemoveAll(files), os.MkdirAll(files, 0o755)); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := startStack(life, seed, bin, files, func(f localstack.Failure) {
		say("%s ended by itself: %v", f.Name, f.Err)
		h.add(&Event{Op: opFault, Via: "ended by itself", Note: f.Name, Call: now(), Return: now()})
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.write(filepath.Join(dir, "history.jsonl")), s.close()) }()
	chain := s.Chain()
	c := &campaign{seed: seed, bound: bound, stack: s, h: h, c: newClient(h, s), dir: files, past: chain.RoundAt(time.Now().Unix()) - 60}
	if err := c.takeKey(ctx); err != nil {
		return nil, err
	}
	if err := c.disturb(ctx, length); err != nil {
		return nil, err
	}
	c.settle(ctx)
	return h.all(), ctx.Err()
}

func (c *campaign) takeKey(ctx context.Context) error {
	e := c.c.sendUntilAnswered(ctx, request{op: "key", method: http.MethodPost, path: "/v1/keys"}, nil)
	if e == nil || !e.acknowledged() {
		return fmt.Errorf("POST /v1/keys returned no API key; the last attempt: %+v", e)
	}
	var k struct {
		APIKey string `json:"api_key"`
	}
	err := json.Unmarshal(e.Body, &k)
	c.key = k.APIKey
	return err
}

// disturb starts deals and faults for the duration `length`. It then waits for all faults to end,
// and waits at most c.bound for the deals in progress. It returns an error if a fault cannot be
// injected or ended.
func (c *campaign) disturb(ctx context.Context, length time.Duration) error {
	began := time.Now()
	playing, stop := context.WithTimeout(ctx, length+c.bound)
	defer stop()
	all, ctx := errgroup.WithContext(ctx)
	for i := range players {
		all.Go(func() error {
			random := rand.New(rand.NewPCG(c.seed, uint64(i)+2))
			for time.Since(began) < length && ctx.Err() == nil {
				c.play(playing, gameKinds[random.IntN(len(gameKinds))])
			}
			return nil
		})
	}
	all.Go(func() error { c.playSealed(ctx, playing, began.Add(length-sealedTail)); return nil })
	all.Go(func() error { c.watchHeads(ctx, began.Add(length)); return nil })
	for i, f := range schedule(c.seed, length) {
		all.Go(func() error {
			e2e.Pause(ctx, time.Until(began.Add(f.At)))
			return c.strike(ctx, playing, f, i)
		})
	}
	return all.Wait()
}

func (c *campaign) play(ctx context.Context, kind string) {
	g, err := newGame(c.c, kind, c.past)
	if slices.Contains(sealedKinds, kind) {
		g, err = newSealedGame(c.c, kind, c.stack.Chain())
	}
	if err != nil {
		panic(err) // cannot happen: newGame can encode all its inputs as JSON
	}
	if g.play(ctx, c.key) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.games = append(c.games, g)
	}
}

// strike injects f, the fault with index n in the schedule, for the duration f.For. Then strike
// plays a deal to measure the recovery, which ends when this deal has its certificate. It plays as long as
// the players do: a deal that it left would end only at its deadline.
func (c *campaign) strike(ctx, playing context.Context, f Fault, n int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &Event{Op: opFault, Via: f.Kind, Note: f.Target, Call: now()}
	lift, err := c.stack.strike(ctx, f, n)
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	e2e.Pause(ctx, f.For)
	e.Return = now()
	if err := lift(); err != nil {
		return fmt.Errorf("cannot end the fault %s: %w", f, err)
	}
	c.play(playing, "split")
	e.Recovered = now()
	c.h.add(e)
	return nil
}

func (c *campaign) watchHeads(ctx context.Context, until time.Time) {
	for time.Now().Before(until) && ctx.Err() == nil {
		var all sync.WaitGroup
		for i := range c.heads().doors {
			all.Go(func() { c.h.add(c.heads().try(ctx, get(opHead, "", "", "/v1/log/tree-head"), i)) })
		}
		all.Wait()
		e2e.Pause(ctx, 50*time.Millisecond)
	}
}

func (c *campaign) heads() *client {
	all := &client{h: c.h, doors: slices.Clone(c.c.doors), names: slices.Clone(c.c.names), final: c.c.final}
	for _, name := range []string{"log-server", "log-server-2"} {
		all.doors = append(all.doors, &e2e.Client{Base: c.stack.LogReadURL(name), Http: c.c.doors[0].Http})
		all.names = append(all.names, name)
	}
	return all
}

// settle starts every process that is down, waits for the end of every deal and reads the deal
// again. Then it reads the newest tree head of each process that serves tree heads, and the
// consistency proofs between all heads in the history.
func (c *campaign) settle(ctx context.Context) {
	for _, name := range processes {
		c.stack.run(ctx, name)
	}
	calm, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	final := *c.c
	final.final = true
	queue := make(chan *game, len(c.games))
	for _, g := range c.games {
		queue <- g
	}
	close(queue)
	var all sync.WaitGroup
	for range players {
		all.Go(func() {
			for g := range queue {
				g.settle(calm, &final, c.dir)
			}
		})
	}
	all.Wait()
	c.c = &final
	for i := range c.heads().doors {
		c.h.add(c.heads().try(ctx, get(opHead, "", "", "/v1/log/tree-head"), i))
	}
	c.checkConsistency(ctx)
}

// checkConsistency reads the consistency proof from each tree head in the history to the next larger one.
func (c *campaign) checkConsistency(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	seen := map[int64]*head{}
	for _, e := range c.h.all() {
		if e.Op == opHead && e.acknowledged() {
			h := e.head()
			seen[h.Size] = &h
		}
	}
	sizes := slices.DeleteFunc(slices.Sorted(maps.Keys(seen)), func(size int64) bool { return size == 0 })
	for i := 1; i < len(sizes); i++ {
		path := fmt.Sprintf("/v1/log/consistency?first=%d&second=%d", sizes[i-1], sizes[i])
		proving := func(e *Event) { e.First, e.Last = seen[sizes[i-1]], seen[sizes[i]] }
		if c.c.sendUntilAnswered(ctx, get(opConsistency, "", "", path), proving) == nil {
			c.h.add(&Event{Op: opConsistency, Call: now(), Return: now(), Note: "not answered in time: " + path})
			return
		}
	}
}

func writeJSON(dir string, content any) (path string, err error) {
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(dir, "given-*.json")
	if err != nil {
		return "", err
	}
	_, err = file.Write(text)
	return file.Name(), errors.Join(err, file.Close())
}
