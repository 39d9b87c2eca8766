package main

import (
	"math/rand/v2"
	"time"
)

// Fault is a scheduled fault. At is the delay from the start of the campaign. For is the duration.
type Fault struct {
	Kind, Target string
	At, For      time.Duration
}

func (f Fault) String() string {
	if f.Target == "" {
		return f.Kind
	}
	return f.Kind + " " + f.Target
}

// kind is a kind of fault. The duration of each fault is random, between the values of shortest
// and shortest+spread. Two scheduled faults with the same resource and target never overlap.
type kind struct {
	name, resource   string
	targets          []string
	shortest, spread time.Duration
}

const (
	killProcess   = "kill"
	pauseProcess  = "pause"
	killServer    = "kill server"
	restartServer = "restart server"
	failOver      = "fail over"
	cutLink       = "cut link"
	delayLink     = "delay link"
	stickLink     = "stick link"
	blockGuard    = "block fork guard"
	signerFails   = "signer fails"
	signerLies    = "signer lies"
	signerHangs   = "signer hangs"
	beaconFails   = "beacon fails"
	beaconLies    = "beacon lies"
	beaconHangs   = "beacon hangs"
)

// kinds returns every kind of fault. A pauseProcess fault lasts up to 6.3 s, so that the lock of
// an idempotent request and the timeout of a client can expire during the pause.
func kinds() []kind {
	ms := time.Millisecond
	servers, links := []string{"postgres", "redis"}, linkNames()
	return []kind{
		{killProcess, "process", processes, 0, 1500 * ms},
		{pauseProcess, "process", processes, 300 * ms, 6000 * ms},
		{killServer, "server", servers, 0, 1500 * ms},
		{restartServer, "server", servers, 0, 0},
		{failOver, "server", []string{"postgres"}, 0, 0},
		{cutLink, "link", links, 0, 3000 * ms},
		{delayLink, "link", links, 500 * ms, 4000 * ms},
		{stickLink, "link", links, 500 * ms, 4000 * ms},
		{blockGuard, "guard", nil, 500 * ms, 4000 * ms},
		{signerFails, "signer", nil, 500 * ms, 4000 * ms},
		{signerLies, "signer", nil, 500 * ms, 4000 * ms},
		{signerHangs, "signer", nil, 500 * ms, 6000 * ms},
		{beaconFails, "beacon", nil, 500 * ms, 4000 * ms},
		{beaconLies, "beacon", nil, 500 * ms, 4000 * ms},
		{beaconHangs, "beacon", nil, 500 * ms, 4000 * ms},
	}
}

func schedule(seed uint64, length time.Duration) []Fault {
	random := rand.New(rand.NewPCG(seed, 1))
	busy := map[string]time.Duration{}
	all := kinds()
	var faults []Fault
	for at := time.Second; at < length; at += 300*time.Millisecond + time.Duration(random.Int64N(int64(1200*time.Millisecond))) {
		k := all[random.IntN(len(all))]
		f := Fault{Kind: k.name, At: at, For: k.shortest}
		if len(k.targets) > 0 {
			f.Target = k.targets[random.IntN(len(k.targets))]
		}
		if k.spread > 0 {
			f.For += time.Duration(random.Int64N(int64(k.spread)))
		}
		if on := k.resource + f.Target; busy[on] <= at {
			busy[on] = at + f.For + time.Second
			faults = append(faults, f)
		}
	}
	return faults
}
