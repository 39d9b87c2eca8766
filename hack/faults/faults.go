package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
)

// lies are wrong answers of the key service.
var lies = []kmstest.Fault{kmstest.OtherDigest, kmstest.OtherKey, kmstest.GarbageDER, kmstest.CorruptedCRC, kmstest.UnverifiedDigest, kmstest.OtherKeyName}

var failures = []kmstest.Fault{kmstest.ServerError, kmstest.Overloaded, kmstest.Throttled, kmstest.CutConnection, kmstest.Down, kmstest.Denied}

// strike begins fault f and returns the function that ends the fault. For the kind signerFails, n
// selects an element of failures. For the kind signerLies, n selects an element of lies.
func (s *stack) strike(ctx context.Context, f Fault, n int) (lift func() error, err error) {
	signer := func(fault kmstest.Fault) (func() error, error) {
		return func() error { return s.kms.SetFault(kmstest.None) }, s.kms.SetFault(fault)
	}
	beacon := func(mode string) (func() error, error) {
		s.relay.mode.Store(mode)
		return func() error { s.relay.mode.Store(""); return nil }, nil
	}
	link := func(mode linkMode) (func() error, error) {
		s.links[f.Target].set(mode)
		return func() error { s.links[f.Target].set(linkOpen); return nil }, nil
	}
	switch f.Kind {
	case killProcess:
		s.Kill(f.Target)
		return func() error { s.run(ctx, f.Target); return nil }, nil
	case pauseProcess:
		s.Signal(f.Target, syscall.SIGSTOP)
		return func() error { s.Signal(f.Target, syscall.SIGCONT); return nil }, nil
	case killServer, restartServer:
		if f.Target == "redis" {
			if f.Kind == killServer {
				s.Redis().Kill()
			}
			return func() error { return s.Redis().Restart(ctx) }, nil
		}
		s.databases.Lock()
		if f.Kind == killServer {
			s.primary.Kill()
		}
		return func() error {
			defer s.databases.Unlock()
			return s.primary.Restart(ctx)
		}, nil
	case failOver:
		s.databases.Lock()
		return func() error {
			defer s.databases.Unlock()
			return s.startStandby(ctx)
		}, s.failOver(ctx)
	case cutLink:
		return link(linkCut)
	case delayLink:
		return link(linkSlow)
	case stickLink:
		return link(linkStuck)
	case blockGuard:
		return func() error { return s.blockGuard(ctx, false) }, s.blockGuard(ctx, true)
	case signerFails:
		return signer(failures[n%len(failures)])
	case signerLies:
		return signer(lies[n%len(lies)])
	case signerHangs:
		return signer(kmstest.Hang)
	case beaconFails, beaconLies, beaconHangs:
		return beacon(f.Kind)
	}
	return nil, fmt.Errorf("unknown kind of fault %q", f.Kind)
}

// relay is a drand relay in front of the development beacon.
type relay struct {
	url    string
	mode   atomic.Value // the kind of the current fault, or ""
	server *http.Server
}

var publicRound = regexp.MustCompile(`/public/(\d+)$`)

func startRelay(to string) (*relay, error) {
	target, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{url: "http://" + listener.Addr().String()}
	r.mode.Store("")
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorLog = log.New(io.Discard, "", 0) // callers that give up are expected here
	r.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch r.mode.Load() {
		case beaconFails:
			http.Error(w, "injected failure", http.StatusInternalServerError)
			return
		case beaconLies: // answer with the valid signature of the previous round, under the number of the requested round
			if m := publicRound.FindStringSubmatchIndex(q.URL.Path); m != nil {
				round, _ := strconv.ParseInt(q.URL.Path[m[2]:], 10, 64)
				relabelled(w, to+q.URL.Path[:m[2]], round)
				return
			}
		case beaconHangs:
			e2e.Pause(q.Context(), 10*time.Second)
		}
		forward.ServeHTTP(w, q)
	})}
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

func relabelled(w http.ResponseWriter, rounds string, round int64) {
	answer, err := http.Get(rounds + strconv.FormatInt(round-1, 10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	var content map[string]any
	if answer.StatusCode != http.StatusOK || json.NewDecoder(answer.Body).Decode(&content) != nil {
		w.WriteHeader(answer.StatusCode)
		return
	}
	content["round"] = round
	_ = json.NewEncoder(w).Encode(content)
}

func (r *relay) close() { _ = r.server.Close() }
