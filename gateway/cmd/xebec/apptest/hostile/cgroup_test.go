package hostile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Clients hold far more of bodies than a small machine has: they stall at their last byte. The gateway refuses those for which it
// has no room, and serves on.
func TestStalledUploadsInLittleMemory(t *testing.T) {
	t.Parallel()
	const (
		machine = 400 << 20
		uploads = 12
		size    = 60 << 20
	)
	g := inMemory(t, machine)
	var all sync.WaitGroup
	for range uploads {
		c := g.dial(g.functions)
		all.Go(func() {
			_, _ = fmt.Fprintf(c, "POST /none/x/y/z HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size)
			part := strings.Repeat("x", 1<<20)
			for sent := 0; sent < size-1; sent += len(part) {
				if _, err := io.WriteString(c, part[:min(len(part), size-1-sent)]); err != nil {
					return // refused
				}
			}
		})
	}
	all.Wait()
	g.until("all but one upload are refused", func() bool {
		return g.metric(`xebec_edge_refused_total{port="functions",reason="body_memory"}`) == fmt.Sprint(uploads-1)
	})
	g.ports(func(_, address string) { g.alive(g.dial(address)) })
	if peak := g.kilobytes("VmHWM"); peak > machine>>10 {
		t.Errorf("the gateway took %d KiB: expected at most %d", peak, machine>>10)
	}
}

// Small bodies that expand to as much as a body may have leave no garbage that ends the gateway.
func TestBombsInLittleMemory(t *testing.T) {
	t.Parallel()
	const machine, clients, rounds = 288 << 20, 12, 6
	bomb := func(body []byte, zeros int) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(body)
		_, _ = w.Write(make([]byte, zeros))
		_ = w.Close()
		return b.Bytes()
	}
	incompressible := make([]byte, 640<<10) // as the ratio wants it
	_, _ = rand.NewChaCha8([32]byte{}).Read(incompressible)
	once := bomb(incompressible, 60<<20)
	g := inMemory(t, machine)
	for coding, body := range map[string][]byte{"gzip": once, "gzip, gzip": bomb(once, 0)} {
		head := fmt.Sprintf("POST /none/x/y/z HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", coding, len(body))
		var all sync.WaitGroup
		for range clients {
			c := g.dial(g.functions)
			all.Go(func() {
				r := bufio.NewReader(c)
				for range rounds {
					if _, err := io.WriteString(c, head+string(body)); err != nil {
						return // refused for want of room
					}
					answer, err := http.ReadResponse(r, nil)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			})
		}
		all.Wait()
	}
	g.ports(func(_, address string) { g.alive(g.dial(address)) })
	if peak := g.kilobytes("VmHWM"); peak > machine>>10 {
		t.Errorf("the gateway took %d KiB: expected at most %d", peak, machine>>10)
	}
}

// inMemory starts a gateway in a control group with so much memory. Where the test may make none, its budgets are those
// that it would have there.
func inMemory(t *testing.T, size int, args ...string) *gateway {
	t.Helper()
	group, err := memoryGroup(size)
	if err != nil {
		t.Logf("without a control group: %v", err)
		return serveAfter(t, fmt.Sprintf("export GOMEMLIMIT=%d", size/8*3), append(args, "--body-memory", fmt.Sprint(size/4), "--cache", fmt.Sprint(size/8))...)
	}
	t.Cleanup(func() { // after the gateway's end, of which the kernel may know a moment later
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		late := time.After(patience)
		for os.Remove(group) != nil {
			select {
			case <-tick.C:
			case <-late:
				t.Errorf("control group %s cannot be removed", group)
				return
			}
		}
	})
	return serveAfter(t, fmt.Sprintf("echo $$ > %s/cgroup.procs", group), args...)
}

// memoryGroup makes a control group beside or below the test's own.
func memoryGroup(size int) (string, error) {
	table, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(table)) { // NUMBER:CONTROLLERS:PATH
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		base, limit := "", ""
		switch {
		case fields[1] == "memory": // version 1
			base, limit = filepath.Join("/sys/fs/cgroup/memory", fields[2]), "memory.limit_in_bytes"
		case fields[0] == "0": // version 2: processes are only in leaves
			base, limit = filepath.Join("/sys/fs/cgroup", filepath.Dir(fields[2])), "memory.max"
		}
		if base == "" {
			continue
		}
		if _, failed := os.Stat(filepath.Join(base, "cgroup.procs")); failed != nil {
			err = failed
			continue
		}
		dir, failed := os.MkdirTemp(base, "xebec-hostile-")
		if failed != nil {
			err = failed
			continue
		}
		if failed := os.WriteFile(filepath.Join(dir, limit), fmt.Append(nil, size), 0); failed != nil {
			err = failed
			_ = os.Remove(dir)
			continue
		}
		return dir, nil
	}
	if err == nil {
		err = os.ErrNotExist
	}
	return "", err
}
