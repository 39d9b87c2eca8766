package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
)

type watchCommand struct {
	eitherFlags
	Timeout time.Duration `help:"Give up after this time; 0: never."`
}

func (c watchCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
	if err != nil {
		return err
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, refusal{fmt.Errorf("the deal has not ended within %s, or its certificate is not published yet: watch again, or give a longer --timeout", c.Timeout)})
		defer cancel()
	}
	p := progress{t: t, live: isTerminal(t.err)}
	body, err := call.watch(ctx, &p)
	p.end()
	if err != nil {
		return cause(ctx, err)
	}
	return t.answer(body)
}

// watch shows the progress of the deal until it has ended, and returns the last answer.
func (c *call) watch(ctx context.Context, p *progress) ([]byte, error) {
	var last viewResponse
	for {
		now := c.follow(ctx, last, p)
		if now.err != nil {
			return nil, now.err
		}
		p.show(now.view, time.Now())
		if ended(now.view) {
			return now.body, nil
		}
		if now.tag == last.tag {
			// A service that is stopping answers without waiting for a change. The pause limits
			// the rate of requests.
			if err := httpclient.Pause(ctx, time.Second); err != nil {
				return nil, err
			}
		}
		last = now
	}
}

// longestWait is the longest ?wait= that the service accepts.
const longestWait = 45 * time.Second

// viewResponse is one answer of GET /v1/deals/{id}, or an error.
type viewResponse struct {
	body []byte
	tag  string // its ETag
	view wire.View
	err  error
}

// follow asks the service to wait until the deal differs from the answer `last`, for at most
// longestWait, and returns the new answer. On a terminal, follow updates the remaining time
// once a second.
func (c *call) follow(ctx context.Context, last viewResponse, p *progress) viewResponse {
	looked := make(chan viewResponse, 1)
	go func() {
		var l viewResponse
		if l.body, l.tag, l.err = c.client.Follow(ctx, c.path(""), c.token, last.tag, longestWait); l.err == nil {
			l.err = json.Unmarshal(l.body, &l.view)
		}
		looked <- l
	}()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case l := <-looked:
			return l
		case <-second.C:
			if p.live && last.tag != "" {
				p.show(last.view, time.Now())
			}
		}
	}
}

// cause returns the cause of ctx once ctx has ended, because err may say no more than
// "context deadline exceeded". It returns err unchanged while ctx is active, and if err already
// wraps the cause.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return context.Cause(ctx)
	}
	return err
}

// ended reports whether the deal has ended and its certificate is published. An EXPIRED or
// CANCELLED deal gets no certificate, so its state alone decides.
func ended(v wire.View) bool {
	switch v.State {
	case "COMPUTED", "CERTIFIED", "VOID":
		return v.CertificateID != nil
	}
	return v.State == "EXPIRED" || v.State == "CANCELLED"
}

func progressLine(v wire.View, now time.Time) string {
	committed, revealed := 0, 0
	for _, p := range v.Parties {
		if p.Committed {
			committed++
		}
		if p.Revealed {
			revealed++
		}
	}
	parts := []string{v.State, fmt.Sprintf("%d/%d committed", committed, len(v.Parties)), fmt.Sprintf("%d/%d revealed", revealed, len(v.Parties))}
	left := func(deadline int64) string {
		return max(time.Unix(deadline, 0).Sub(now), 0).Truncate(time.Second).String()
	}
	switch {
	case v.State == "OPEN" || v.State == "COMMITTING":
		parts = append(parts, left(v.CommitDeadline)+" left to commit")
	case v.State == "REVEALING" && revealed < len(v.Parties):
		parts = append(parts, left(v.RevealDeadline)+" left to reveal")
	case v.State == "REVEALING":
		parts = append(parts, "waiting for the beacon")
	case (v.State == "COMPUTED" || v.State == "VOID") && v.CertificateID == nil:
		parts = append(parts, "certificate pending")
	}
	return strings.Join(parts, "  ")
}

// progress shows the state of the deal on standard error. On a terminal it rewrites one line
// each second; elsewhere it writes a line for each change.
type progress struct {
	t    *terminal
	live bool
	last string
}

func (p *progress) show(v wire.View, now time.Time) {
	if p.live {
		fmt.Fprintf(p.t.err, "\r\033[K%s", printable(progressLine(v, now)))
		return
	}
	still := v
	still.CommitDeadline, still.RevealDeadline = 0, 0
	if key := progressLine(still, now); key != p.last {
		p.last = key
		p.t.note("%s", progressLine(v, now))
	}
}

func (p *progress) end() {
	if p.live {
		fmt.Fprintln(p.t.err)
	}
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
