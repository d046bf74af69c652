package capacity

import (
	"slices"
	"time"

	"github.com/xebec-serving/xebec/scheduler/placement"
)

// measureEvery is the period of usage measurements. One costs about a tenth of a millisecond per process.
const measureEvery = 5 * time.Second //xebec:limit interval between measurements of replicas

// usage is what one replica of a version was measured to use.
type usage struct {
	memoryBytes int64 // the mean over its replicas, as next counts it; 0: not measured yet
	cpuMillis   int64 // the recent mean
	replicas    int   // how many replicas were measured
	warm        bool  // one of them had worked for a while: the version may use less than declared
	pids        []int // of the replicas that were measured
}

// measured is what one process of a version uses.
type measured struct {
	pid         int
	memoryBytes int64
	cpuMillis   int64
	warm        bool // it has worked for a while
}

// next is the usage after a measurement. Planning uses a mean, so that all replicas together count as what they hold: a replica
// that leaks takes no room from the others' share. A replica that has just started counts as those that have worked for a
// while, because it will grow to that. The mean rises at once and falls slowly, but restarts where a replica ended that was part
// of it.
func (u usage) next(all []measured) usage {
	if len(all) == 0 {
		return u
	}
	var out usage
	var sumWarm, maxCold int64
	n := int64(0)
	for _, p := range all {
		out.pids = append(out.pids, p.pid)
		out.cpuMillis += p.cpuMillis
		if p.warm {
			sumWarm, n = sumWarm+p.memoryBytes, n+1
		} else {
			maxCold = max(maxCold, p.memoryBytes)
		}
	}
	out.replicas = len(all)
	out.cpuMillis /= int64(out.replicas)
	out.warm = u.warm || n > 0
	atLeast := maxCold
	if n > 0 {
		atLeast = sumWarm / n
	}
	sum := int64(0)
	for _, p := range all {
		if p.warm {
			sum += p.memoryBytes
		} else {
			sum += max(atLeast, p.memoryBytes)
		}
	}
	out.memoryBytes = sum / int64(out.replicas)
	ended := slices.ContainsFunc(u.pids, func(pid int) bool { return !slices.Contains(out.pids, pid) })
	if n == 0 || !ended {
		out.memoryBytes = max(out.memoryBytes, u.memoryBytes-u.memoryBytes/memoryMargin)
	}
	return out
}

// memoryMargin: the plan adds a 32nd to the memory that was measured.
const memoryMargin = 32

// plannedUsage is what is planned for one replica of the version: memory as measured, once it has been, the rest as declared.
// Declared cores are not replaced by measured ones: an idle replica will want its cores when queries come, and a busy one on a
// full machine shows no more than it gets. Its caller holds Capacity.mu.
func (c *Capacity) plannedUsage(st *seat) placement.Resources {
	r := resourcesOf(&st.m.version.Spec().Resources)
	if m := st.usage.memoryBytes; m > r.MemoryBytes || m > 0 && st.usage.warm {
		r.MemoryBytes = min(m+m/memoryMargin, c.budget.MemoryBytes) // it has run here, so it can
	}
	return r
}

// A replica uses what it will ever use once it has been ready for so long and has evaluated so many batches. Before that its
// memory may still grow.
const (
	warmAfter   = 30 * time.Second
	warmBatches = knownBatches
)

// measure reads what replicas use, and what processes with preloaded modules hold, which is not available to replicas.
func (c *Capacity) measure() {
	c.mu.Lock()
	var pids []int
	var of []*seat
	var at []measured
	for _, st := range c.order {
		for _, p := range st.m.version.Processes() {
			pids, of = append(pids, p.PID), append(of, st)
			at = append(at, measured{pid: p.PID, warm: p.Batches >= warmBatches && time.Since(p.Ready) >= warmAfter})
		}
	}
	c.mu.Unlock()
	var preloads []int
	if c.cfg.Preloaded != nil {
		preloads = c.cfg.Preloaded()
	}
	if pids = append(pids, preloads...); len(pids) == 0 {
		c.setPreloaded(0, 0)
		return
	}
	c.usages = c.meter.Read(time.Now(), pids, c.usages)
	held := int64(0)
	for _, u := range c.usages[len(at):] {
		held += max(0, u.MemoryBytes)
	}
	c.setPreloaded(len(preloads), held)
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[*seat][]measured{}
	for i := range at {
		if u := c.usages[i]; u.MemoryBytes > 0 { // else it has ended meanwhile
			at[i].memoryBytes, at[i].cpuMillis = u.MemoryBytes, u.CPUMillis
			all[of[i]] = append(all[of[i]], at[i])
		}
	}
	for st, replicas := range all {
		if c.seats[st.m] == st {
			st.usage = st.usage.next(replicas)
		}
	}
}

// setPreloaded notes how many processes hold preloaded modules and how much memory they hold together. No replica gets it.
func (c *Capacity) setPreloaded(n int, memoryBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.preloadCount, c.preloadBytes = n, memoryBytes
	c.nodes[0].Budget.MemoryBytes = max(0, c.budget.MemoryBytes-memoryBytes)
}
