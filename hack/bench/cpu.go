package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// cpuTimes maps the name of each process to its CPU time so far.
type cpuTimes map[string]time.Duration

const (
	postgres   = "postgres"
	redis      = "redis"
	generator  = "load generator"
	machineCPU = "machine"
)

// measured is in the order of the report's columns.
var measured = []string{postgres, localstack.DealAPI, localstack.LogServer, localstack.DeadlineWorker, redis}

func (b *bench) cpu() (cpuTimes, error) {
	times := cpuTimes{}
	for name, pid := range b.pids() {
		used, err := cpuTime(pid, name == postgres) // Postgres has a child process for each connection
		if err != nil {
			return nil, fmt.Errorf("CPU time of %s: %w", name, err)
		}
		times[name] = used
	}
	var err error
	times[machineCPU], err = machineTime()
	return times, err
}

// addCPU adds the CPU time of each process of the benchmark, and the sum without the load
// generator, in microseconds per unit of work, such as a deal. t.n is the number of units.
// addCPU also adds the CPU use of all other programs, in percent of all cores.
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

func machineTime() (time.Duration, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	c := stat.CPUTotal
	return seconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal), err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func perThing(used time.Duration, n int) float64 {
	return float64(used.Microseconds()) / float64(max(n, 1))
}

// tick is the unit of the fields cutime and cstime of /proc/PID/stat, which hold the CPU time
// of ended children. Linux reports 100 ticks per second (USER_HZ).
const tick = 10 * time.Millisecond

func cpuTime(pid int, withChildren bool) (time.Duration, error) {
	stat, err := statOf(pid)
	if err != nil || !withChildren {
		return seconds(stat.CPUTime()), err
	}
	total := seconds(stat.CPUTime()) + time.Duration(stat.CUTime+stat.CSTime)*tick
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == pid { // an error means that p has just ended
			total += seconds(stat.CPUTime())
		}
	}
	return total, nil
}

func statOf(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

func memoryMiB(pid int) (now, peak float64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := p.NewStatus()
	return float64(status.VmRSS) / (1 << 20), float64(status.VmHWM) / (1 << 20), err
}

// resetPeak sets the peak memory of a process (VmHWM) to its current memory.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
