package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// cpuTimes is the CPU time used so far, by process.
type cpuTimes map[string]time.Duration

const (
	postgres   = "postgres"
	redis      = "redis"
	generator  = "load generator"
	machineCPU = "machine" // all processes, those of other people too
)

// measured are the processes that a deal's CPU is the sum of, in the order of the report.
var measured = []string{postgres, localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker, redis}

func (b *bench) cpu() (cpuTimes, error) {
	times := cpuTimes{}
	for name, pid := range b.pids() {
		var children []int
		if name == postgres { // it has a child for each connection
			children = childrenOf(pid)
		}
		used, err := cpuTime(pid, children)
		if err != nil {
			return nil, fmt.Errorf("CPU time of %s: %w", name, err)
		}
		times[name] = used
	}
	var err error
	times[machineCPU], err = machineTime()
	return times, err
}

// addCPU adds the CPU microseconds of each process for one of n things, and the
// percentage of all cores that processes took which are not of this benchmark.
func (s samples) addCPU(name string, t *timed) {
	var product, all time.Duration
	for process, used := range t.after {
		used -= t.before[process]
		if process == machineCPU {
			continue
		}
		s.add(name+".cpu_us."+process, perThing(used, t.n))
		all += used
		if process != generator {
			product += used
		}
	}
	s.add(name+".cpu_us", perThing(product, t.n))
	others := t.after[machineCPU] - t.before[machineCPU] - all
	cores := t.elapsed.Seconds() * float64(runtime.NumCPU())
	s.add(name+".others_percent", max(0, 100*others.Seconds()/cores))
}

// machineTime is the CPU time that all processes of the machine have used.
func machineTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	const user, nice, system, irq, softirq, steal = 1, 2, 3, 6, 7, 8
	var total int64
	for _, i := range []int{user, nice, system, irq, softirq, steal} {
		total += ticks(fields, i)
	}
	return time.Duration(total) * tick, nil
}

func perThing(used time.Duration, n int) float64 {
	return float64(used.Microseconds()) / float64(max(n, 1))
}

// cpuTime is the CPU time of a process and of some of its children. Where
// children are given, those that have ended count too.
func cpuTime(pid int, children []int) (time.Duration, error) {
	const utime, stime, cutime, cstime = 11, 12, 13, 14
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	total := ticks(fields, utime) + ticks(fields, stime)
	if children != nil {
		total += ticks(fields, cutime) + ticks(fields, cstime)
	}
	for _, child := range children {
		if fields, err := stat(child); err == nil { // else it has just ended
			total += ticks(fields, utime) + ticks(fields, stime)
		}
	}
	return time.Duration(total) * tick, nil
}

// childrenOf returns the children of a process, looking at all processes: not
// every kernel has /proc/PID/task/TID/children.
func childrenOf(parent int) (pids []int) {
	const ppid = 1
	all, _ := os.ReadDir("/proc")
	for _, dir := range all {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		if fields, err := stat(pid); err == nil && fields[ppid] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat returns the fields of /proc/PID/stat after the program's name.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	name := strings.LastIndexByte(string(text), ')') // it may hold spaces
	return strings.Fields(string(text[name+1:])), nil
}

func ticks(fields []string, i int) int64 {
	n, _ := strconv.ParseInt(fields[i], 10, 64)
	return n
}

// memoryMiB returns the resident memory of a process, now or at its peak since
// resetPeak.
func memoryMiB(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak, nil
}

// resetPeak makes the peak of a process its present memory.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
