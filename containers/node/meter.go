package node

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

const (
	// MaxProcesses is how many processes of the machine one reading examines; further ones are ignored. Linux's default
	// limit is 32,768.
	MaxProcesses = 32768
	// MaxRollups is how many processes' page tables one reading walks for their memory: see the package documentation.
	MaxRollups = 256
	// tick is the unit of the kernel's process times, USER_HZ, which is 100 wherever Go runs.
	tick = 10 * time.Millisecond
	// minInterval is the least time between two computations of CPU time: ten ticks.
	minInterval = 10 * tick
	// maxStatBytes and maxStatusBytes are more than the kernel writes; it bounds the names in them.
	maxStatBytes   = 4 << 10
	maxStatusBytes = 16 << 10
)

// Usage is what one replica uses: the given process, and those that it started and that are still in its session.
type Usage struct {
	// MemoryBytes is what they hold; 0: the process no longer exists, or could not be read.
	MemoryBytes int64
	// CPUMillis is how many thousandths of a core they used since the previous reading; 0 at the first one.
	CPUMillis int64
	// Processes is their number.
	Processes int
}

// Meter reads what replicas use. The zero value is ready. It is not safe for concurrent use.
type Meter struct {
	proc  string // "": /proc
	known map[int]*process
	round uint64
	next  int // index, among all replicas' processes, of the first one whose page tables the next reading walks
	// State of the current reading.
	all   []procfs.Stat
	at    map[int]int32 // index in all, by pid
	owner []int32       // index in pids, by index in all; -1: none
	buf   []byte
	sums  []sum
}

// process is what is remembered of a replica's process.
type process struct {
	start  uint64
	ticks  uint64 // its counted CPU time
	round  uint64 // the last reading that it was seen in
	memory int64  // the last measurement; 0: none yet
	// For a replica's first process: when CPU time was last computed, and the result.
	since     time.Time
	cpuMillis int64
}

type sum struct {
	root  *process // nil: the process does not exist
	again bool     // it existed in the previous reading
	ticks uint64
	due   bool // CPU time is to be computed
}

// Read returns what the replicas with these first processes use, in the same order, in dst's memory. It reads the
// processes of the machine once, however many replicas there are.
func (m *Meter) Read(now time.Time, pids []int, dst []Usage) []Usage {
	dst = dst[:0]
	for range pids {
		dst = append(dst, Usage{})
	}
	if m.known == nil {
		m.known, m.at = map[int]*process{}, map[int]int32{}
	}
	if len(pids) == 0 {
		clear(m.known)
		return dst
	}
	m.round++
	m.list()
	m.assign(pids)
	m.begin(now, pids)
	m.measure(dst)
	for i := range pids {
		s := &m.sums[i]
		if s.root == nil {
			continue
		}
		if elapsed := now.Sub(s.root.since); s.due {
			s.root.cpuMillis = int64(min(float64(s.ticks)*float64(tick)*1000/float64(elapsed), math.MaxInt32))
			s.root.since = now
		}
		dst[i].CPUMillis = s.root.cpuMillis
	}
	for pid, p := range m.known {
		if p.round != m.round {
			delete(m.known, pid)
		}
	}
	for i, pid := range pids { // a pid that is listed twice has the same result twice
		if at, ok := m.at[pid]; ok && m.owner[at] >= 0 && pids[m.owner[at]] == pid {
			dst[i] = dst[m.owner[at]]
		}
	}
	return dst
}

// list reads all processes.
func (m *Meter) list() {
	m.all = m.all[:0]
	clear(m.at)
	root := m.proc
	if root == "" {
		root = "/proc"
	}
	dir, err := os.Open(root)
	if err != nil {
		return
	}
	defer dir.Close()
	for len(m.all) < MaxProcesses {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil || pid <= 0 || len(m.all) == MaxProcesses {
				continue
			}
			st, ok := procfs.ParseStat(m.read(name, "stat", maxStatBytes))
			if _, twice := m.at[pid]; ok && !twice && st.PID == pid && st.Session >= 0 {
				m.at[pid] = int32(len(m.all))
				m.all = append(m.all, st)
			}
		}
		if err != nil {
			return // io.EOF, or an error that ends the listing
		}
	}
}

// assign finds the replica of each process: that of its nearest ancestor that is a replica's first process, as long as
// they are in one session. If its ancestors have ended, it is the replica that leads its session.
func (m *Meter) assign(pids []int) {
	m.owner = m.owner[:0]
	for range m.all {
		m.owner = append(m.owner, -1)
	}
	for i, pid := range pids {
		if at, ok := m.at[pid]; ok && m.owner[at] < 0 {
			m.owner[at] = int32(i)
		}
	}
	const maxAncestors = 64 // the list is no snapshot: reused pids could form a cycle
	for i := range m.all {
		at := int32(i)
		session := m.all[i].Session
		for range maxAncestors {
			if m.owner[at] >= 0 {
				break
			}
			parent, ok := m.at[m.all[at].Parent]
			if !ok || m.all[parent].Session != session || m.all[parent].Start > m.all[at].Start { // a parent younger than its child has a reused pid
				break
			}
			at = parent
		}
		if m.owner[at] < 0 {
			leader, ok := m.at[session]
			if !ok || m.all[leader].Session != session || m.all[leader].Start > m.all[at].Start {
				continue
			}
			at = leader
		}
		m.owner[i] = m.owner[at]
	}
}

// begin looks up what is remembered of the replicas' first processes.
func (m *Meter) begin(now time.Time, pids []int) {
	m.sums = m.sums[:0]
	for i, pid := range pids {
		var s sum
		at, ok := m.at[pid]
		if ok && m.owner[at] == int32(i) && !m.all[at].Zombie {
			p := m.known[pid]
			s.again = p != nil && p.start == m.all[at].Start && !p.since.IsZero()
			if !s.again {
				p = &process{start: m.all[at].Start, since: now}
				m.known[pid] = p
			}
			s.root, s.due = p, s.again && now.Sub(p.since) >= minInterval
		}
		m.sums = append(m.sums, s)
	}
}

// measure adds up what the processes use.
func (m *Meter) measure(dst []Usage) {
	ours := 0
	for i := range m.all {
		if m.owner[i] >= 0 && m.sums[m.owner[i]].root != nil {
			ours++
		}
	}
	if m.next >= ours {
		m.next = 0
	}
	nth := 0
	for i := range m.all {
		st := &m.all[i]
		if m.owner[i] < 0 || m.sums[m.owner[i]].root == nil {
			continue
		}
		s, u := &m.sums[m.owner[i]], &dst[m.owner[i]]
		p := m.known[st.PID]
		if p == nil || p.start != st.Start {
			p = &process{start: st.Start}
			m.known[st.PID] = p // if its replica existed before, all of its time is new
		}
		if s.due && st.Ticks > p.ticks {
			s.ticks += st.Ticks - p.ticks
		}
		if s.due || !s.again {
			p.ticks = st.Ticks
		}
		p.round = m.round
		if turn := (nth - m.next + ours) % ours; turn < MaxRollups || p.memory == 0 {
			if n, ok := m.memory(st.PID, turn < MaxRollups); ok && !st.Zombie {
				p.memory = n
			}
		}
		nth++
		u.Processes++
		if !st.Zombie {
			u.MemoryBytes += min(p.memory, math.MaxInt64-u.MemoryBytes)
		}
	}
	m.next += MaxRollups
}

// memory reads what a process holds.
func (m *Meter) memory(pid int, rollup bool) (int64, bool) {
	name := strconv.Itoa(pid)
	if rollup {
		if n, ok := memoryOf(m.read(name, "smaps_rollup", maxStatusBytes), nil); ok {
			return n, true
		}
	}
	return memoryOf(nil, m.read(name, "status", maxStatusBytes))
}

// read returns the content of a process's file, valid until the next call; nothing if it cannot be read.
func (m *Meter) read(pid, name string, most int) []byte {
	root := m.proc
	if root == "" {
		root = "/proc"
	}
	f, err := os.Open(filepath.Join(root, pid, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	if len(m.buf) < most {
		m.buf = make([]byte, most)
	}
	n := 0
	for n < most {
		k, err := f.Read(m.buf[n:most])
		n += k
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil
		}
	}
	return m.buf[:n]
}
