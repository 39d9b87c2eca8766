package rest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/platform/httpcache"
	"github.com/fairpact/fairpact/internal/platform/limits"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// nextLook is a response header of deal views. Its value is the unix time by which a client
// should read the deal again, such as the next deadline (escrow.Service.LookAt).
const nextLook = "Fairpact-Next-Look"

// waitOf returns how long a call may wait for a change, in addition to timelimits.Call. For
// /mcp it returns waiting.Longest, because the requested wait is in the body, which only
// package mcp reads.
func waitOf(r *http.Request) time.Duration {
	if r.URL.Path == "/mcp" {
		return waiting.Longest
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.RawQuery == "" {
		return 0
	}
	seconds, _ := strconv.Atoi(r.URL.Query().Get("wait"))
	return min(max(time.Duration(seconds)*time.Second, 0), waiting.Longest)
}

// wait parses ?wait= (seconds) and ?since= (a state, or the ETag of a view). It returns
// the zero Wait if there is no ?wait=.
func (a *API) wait(r *http.Request) (escrow.Wait, error) {
	query := r.URL.Query()
	if !query.Has("wait") {
		return escrow.Wait{}, nil
	}
	wait := escrow.Wait{For: waitOf(r), Network: limits.Network(a.Callers.Address(r))}
	if query.Get("wait") != strconv.Itoa(int(wait.For/time.Second)) || wait.For <= 0 {
		return wait, problem.New(problem.InvalidRequest, "the parameter `wait` must be a whole number of seconds from 1 to %d", waiting.Longest/time.Second)
	}
	since := query.Get("since")
	if since == "" {
		return wait, nil
	}
	if state := deal.State(since); slices.Contains(deal.States, state) {
		wait.State = state
		return wait, nil
	}
	tag := httpcache.Known(since)
	if tag == "" {
		return wait, problem.New(problem.InvalidRequest, "the parameter `since` is neither a state nor the ETag of a view; send a state, such as %s, or an ETag unchanged", deal.Committing)
	}
	wait.Same = func(v escrow.View) bool {
		body, err := web.Encode(wire.ViewOf(v))
		return err == nil && httpcache.Tag(body) == tag
	}
	return wait, nil
}
