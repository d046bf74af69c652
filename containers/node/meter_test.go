package node

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeProc is a fake /proc.
type fakeProc struct {
	t   *testing.T
	dir string
}

// entry is a process, with its memory in KiB in smaps_rollup, or if that is 0 in status.
type entry struct {
	pid, ppid, session int
	ticks, start       int
	state              string // "": S
	pss, anon, shmem   int
}

func (p fakeProc) set(entries ...entry) {
	p.t.Helper()
	for _, e := range entries {
		dir := filepath.Join(p.dir, strconv.Itoa(e.pid))
		if e.state == "" {
			e.state = "S"
		}
		files := map[string]string{
			"stat":         fmt.Sprintf("%d (a (b) c) %s %d %d %d 0 -1 4194560 1 2 3 4 %d %d 7 8 20 0 1 0 %d 99 99\n", e.pid, e.state, e.ppid, e.session, e.session, e.ticks/2, e.ticks-e.ticks/2, e.start),
			"status":       fmt.Sprintf("Name:\ta\nVmRSS:\t   1 kB\nRssAnon:\t     %d kB\nRssFile:\t  7 kB\nRssShmem:\t  %d kB\n", e.anon, e.shmem),
			"smaps_rollup": fmt.Sprintf("00400000-7ff000 ---p 00000000 00:00 0 [rollup]\nRss:   9 kB\nPss:      %d kB\nPss_Anon:   1 kB\n", e.pss),
		}
		if e.pss == 0 {
			delete(files, "smaps_rollup")
		}
		if err := os.RemoveAll(dir); err != nil {
			p.t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			p.t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p fakeProc) end(pids ...int) {
	for _, pid := range pids {
		if err := os.RemoveAll(filepath.Join(p.dir, strconv.Itoa(pid))); err != nil {
			p.t.Fatal(err)
		}
	}
}

func newProcfs(t *testing.T) (fakeProc, *Meter) {
	p := fakeProc{t, t.TempDir()}
	for _, name := range []string{"self", "sys", "0", "-1", "99999999999"} {
		if err := os.MkdirAll(filepath.Join(p.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.set(entry{pid: 1, session: 1, pss: 1000, start: 1}, entry{pid: 5, ppid: 1, session: 1, pss: 1000, start: 2})
	return p, &Meter{proc: p.dir}
}

func expect(t *testing.T, got []Usage, want ...Usage) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v; expected %+v", got, want)
	}
}

const kib = 1 << 10

var start = time.Unix(1e9, 0)

// TestMeterAddsUp checks the worked example of the package documentation, with a third process that has left the
// session, a second replica, and missing ones.
func TestMeterAddsUp(t *testing.T) {
	p, m := newProcfs(t)
	p.set(entry{pid: 10, ppid: 5, session: 10, pss: 90 << 10, ticks: 1200, start: 50}, entry{pid: 11, ppid: 10, session: 10, pss: 110 << 10, ticks: 300, start: 51},
		entry{pid: 12, ppid: 10, session: 12, pss: 5, start: 52}, entry{pid: 20, ppid: 5, session: 20, anon: 7, shmem: 3, ticks: 40, start: 50})
	expect(t, m.Read(start, []int{10, 20, 404, -3, 0}, nil), Usage{MemoryBytes: 200 << 20, Processes: 2}, Usage{MemoryBytes: 10 * kib, Processes: 1}, Usage{}, Usage{}, Usage{})
	p.set(entry{pid: 10, ppid: 5, session: 10, pss: 90 << 10, ticks: 1500, start: 50}, entry{pid: 11, ppid: 10, session: 10, pss: 110 << 10, ticks: 400, start: 51})
	now := start.Add(5 * time.Second)
	expect(t, m.Read(now, []int{20, 10, 20}, nil), Usage{MemoryBytes: 10 * kib, Processes: 1}, Usage{MemoryBytes: 200 << 20, CPUMillis: 800, Processes: 2}, Usage{MemoryBytes: 10 * kib, Processes: 1})
	expect(t, m.Read(now, nil, nil))
	if len(m.known) != 0 {
		t.Errorf("%d processes are remembered, expected none", len(m.known))
	}
}

// TestMeterChildren checks that a new child counts from its start, that a child whose parents have ended belongs to the
// replica that leads its session, and that a child that has ended subtracts nothing.
func TestMeterChildren(t *testing.T) {
	p, m := newProcfs(t)
	root := entry{pid: 10, ppid: 5, session: 10, pss: 1, ticks: 100, start: 50}
	p.set(root)
	m.Read(start, []int{10}, nil)
	p.set(entry{pid: 11, ppid: 10, session: 10, pss: 2, ticks: 50, start: 60}, entry{pid: 12, ppid: 11, session: 10, pss: 4, ticks: 30, start: 60}, entry{pid: 13, ppid: 1, session: 10, pss: 8, ticks: 20, start: 60})
	expect(t, m.Read(start.Add(time.Second), []int{10}, nil), Usage{MemoryBytes: 15 * kib, CPUMillis: 1000, Processes: 4})
	p.end(11, 13)
	p.set(entry{pid: 12, ppid: 1, session: 10, pss: 4, ticks: 30, start: 60})
	expect(t, m.Read(start.Add(2*time.Second), []int{10}, nil), Usage{MemoryBytes: 5 * kib, Processes: 2})
}

// TestMeterForks checks that replicas forked by one process in one session are distinguished.
func TestMeterForks(t *testing.T) {
	p, m := newProcfs(t)
	p.set(entry{pid: 30, ppid: 5, session: 30, pss: 1, start: 50}, entry{pid: 31, ppid: 30, session: 30, pss: 2, start: 51}, entry{pid: 32, ppid: 30, session: 30, pss: 4, start: 52},
		entry{pid: 33, ppid: 31, session: 30, pss: 8, start: 53}, entry{pid: 34, ppid: 1, session: 30, pss: 16, start: 53})
	expect(t, m.Read(start, []int{31, 32}, nil), Usage{MemoryBytes: 10 * kib, Processes: 2}, Usage{MemoryBytes: 4 * kib, Processes: 1})
}

// TestMeterReusedPIDs checks that a pid with another start time is another process.
func TestMeterReusedPIDs(t *testing.T) {
	p, m := newProcfs(t)
	p.set(entry{pid: 10, ppid: 5, session: 10, pss: 1, ticks: 100, start: 50}, entry{pid: 11, ppid: 10, session: 10, pss: 1, ticks: 700, start: 51})
	m.Read(start, []int{10}, nil)
	p.set(entry{pid: 10, ppid: 5, session: 10, pss: 2, ticks: 900, start: 70})
	expect(t, m.Read(start.Add(time.Second), []int{10}, nil), Usage{MemoryBytes: 2 * kib, Processes: 1})
	p.set(entry{pid: 10, ppid: 5, session: 10, pss: 2, ticks: 950, start: 70}, entry{pid: 11, ppid: 10, session: 10, pss: 1, ticks: 10, start: 71})
	expect(t, m.Read(start.Add(2*time.Second), []int{10}, nil), Usage{MemoryBytes: 3 * kib, CPUMillis: 600, Processes: 2})
	// A cycle of parents, and a process older than its parent, belong to no replica.
	p.set(entry{pid: 40, ppid: 41, session: 9, start: 50, pss: 1}, entry{pid: 41, ppid: 40, session: 9, start: 50, pss: 1}, entry{pid: 12, ppid: 10, session: 8, start: 1, pss: 1})
	expect(t, m.Read(start.Add(3*time.Second), []int{10}, nil), Usage{MemoryBytes: 3 * kib, Processes: 2})
}

// TestMeterZombies checks that zombies use nothing and are no replicas.
func TestMeterZombies(t *testing.T) {
	p, m := newProcfs(t)
	p.set(entry{pid: 10, ppid: 5, session: 10, pss: 1, start: 50}, entry{pid: 11, ppid: 10, session: 10, state: "Z", start: 51}, entry{pid: 20, ppid: 5, session: 20, state: "Z", start: 51})
	expect(t, m.Read(start, []int{10, 20}, nil), Usage{MemoryBytes: kib, Processes: 2}, Usage{})
}

// TestMeterShortIntervals checks that within ten ticks, or after the clock went back, CPU time stays, and nothing is
// lost.
func TestMeterShortIntervals(t *testing.T) {
	p, m := newProcfs(t)
	set := func(ticks int) { p.set(entry{pid: 10, ppid: 5, session: 10, pss: 1, ticks: ticks, start: 50}) }
	read := func(after time.Duration, millis int64, processes int) {
		t.Helper()
		expect(t, m.Read(start.Add(after), []int{10}, nil), Usage{MemoryBytes: kib, CPUMillis: millis, Processes: processes})
	}
	set(0)
	read(0, 0, 1)
	set(50)
	read(time.Second, 500, 1)
	set(55)
	p.set(entry{pid: 11, ppid: 10, session: 10, ticks: 5, start: 99})
	read(time.Second+50*time.Millisecond, 500, 2)
	read(0, 500, 2)
	set(70)
	p.set(entry{pid: 11, ppid: 10, session: 10, ticks: 25, start: 99})
	read(2*time.Second, 450, 2) // 20 of the one and 25 of the other
	set(60)                     // which the kernel does not do
	read(3*time.Second, 0, 2)
}

// TestMeterInTurn checks that one reading walks the page tables of at most MaxRollups processes, and a few readings
// those of all, and that no value goes back to the other measure meanwhile.
func TestMeterInTurn(t *testing.T) {
	p, m := newProcfs(t)
	const n = 2*MaxRollups + 100
	var pids []int
	for i := range n {
		pids = append(pids, 1000+i)
		p.set(entry{pid: 1000 + i, ppid: 5, session: 1000 + i, pss: 5, anon: 9, start: 50})
	}
	count := func(us []Usage) (thorough, quick int) {
		for _, u := range us {
			switch u.MemoryBytes {
			case 5 * kib:
				thorough++
			case 9 * kib:
				quick++
			}
		}
		return thorough, quick
	}
	var us []Usage
	for round, want := range []int{MaxRollups, 2 * MaxRollups, n, n} {
		us = m.Read(start.Add(time.Duration(round)*time.Second), pids, us)
		if thorough, quick := count(us); thorough != want || quick != n-want {
			t.Errorf("reading %d: %d thorough and %d quick, expected %d of %d thorough", round, thorough, quick, want, n)
		}
	}
}

// TestMeterHere reads a real replica of two processes, and this process.
func TestMeterHere(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo ready; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		t.Fatalf("%q, %v", line, err)
	}
	var m Meter
	us := m.Read(time.Now(), []int{cmd.Process.Pid, os.Getpid()}, nil)
	if us[0].Processes != 2 || us[0].MemoryBytes < 10*kib || us[0].MemoryBytes > 100<<20 {
		t.Errorf("a shell and its child: %+v", us[0])
	}
	if us[1].Processes < 1 || us[1].MemoryBytes < 1<<20 {
		t.Errorf("this process: %+v", us[1])
	}
	// This process computes until the kernel has counted some of it.
	began, x := time.Now(), 0
	for us[1].CPUMillis == 0 && time.Since(began) < time.Minute {
		for i := range 10_000_000 {
			x += i * i
		}
		us = m.Read(time.Now(), []int{cmd.Process.Pid, os.Getpid()}, us)
	}
	if us[1].CPUMillis == 0 {
		t.Errorf("no CPU time of this process after work (%d): %+v", x, us[1])
	}
}

func BenchmarkRead(b *testing.B) {
	var m Meter
	var us []Usage
	pids := []int{os.Getpid()}
	now := start
	for b.Loop() {
		now = now.Add(time.Second)
		us = m.Read(now, pids, us)
	}
	b.ReportMetric(float64(len(m.all)), "processes")
}
