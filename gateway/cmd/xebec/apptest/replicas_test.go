package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// sleepy are the replica bounds of a model that sleeps after a second without a query.
const sleepy = "replicas: {min: 0, max: 1, idle: 1s}"

// zygoteProgram occurs in the command line of every zygote.
const zygoteProgram = "xebec._zygote"

// pythonModel is a manifest of a Python model, bytes in and bytes out. Its program is NAME.py in dir, and tests find its
// processes by that name, because a forked process shows the environment of its zygote. extra are additional lines of the
// model.
func pythonModel(t *testing.T, dir, name, program string, extra ...string) string {
	t.Helper()
	writeFile(t, dir, name+".py", program)
	return fmt.Sprintf(`
---
kind: Model
name: %s
version: "1"
dir: %s
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [python, %s.py]}
%s
`, name, dir, name, strings.Join(extra, "\n"))
}

// gated lets a model of xebec-testworker start only while the file gate exists. It is not isolated: it looks into a
// directory of the test.
func gated(model, gate string) string {
	wait := fmt.Sprintf(`"/bin/sh", "-c", 'until [ -e %s ]; do sleep 0.02; done; exec "$0" "$@"', %q`, gate, programs.worker)
	return plain(strings.Replace(model, fmt.Sprintf("%q", programs.worker), wait, 1))
}

// plain lets a model write beside itself, and see the directories of the test.
func plain(model string) string {
	return strings.Replace(model, "run: {", "run: {isolation: none, ", 1)
}

// open creates a gate; shut removes it.
func open(t *testing.T, gate string) {
	t.Helper()
	writeFile(t, filepath.Dir(gate), filepath.Base(gate), "open")
}

func shut(t *testing.T, gate string) {
	t.Helper()
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
}

// running returns the gateway's processes with this word in the command line, without the gateway itself.
func (g *gateway) running(word string) (found []process) {
	for _, p := range processesOf(g.dir) {
		if p.pid != g.cmd.Process.Pid && strings.Contains(p.name, word) {
			found = append(found, p)
		}
	}
	return found
}

// awaitRunning waits until n processes have this word in the command line.
func (g *gateway) awaitRunning(word string, n int) []process {
	g.t.Helper()
	var found []process
	g.await(fmt.Sprintf("%d processes of %s", n, word), func(context.Context) (bool, string) {
		found = g.running(word)
		return len(found) == n, fmt.Sprint(found)
	})
	return found
}

// awaitAsleep waits until a model has no replica and wants none.
func (g *gateway) awaitAsleep(name string) api.ModelStatus {
	g.t.Helper()
	return g.awaitModel(name, "it sleeps", func(m api.ModelStatus) bool {
		return m.State == api.ModelIdle && len(m.Replicas) == 0 && m.Capacity.Wanted == 0
	})
}

// wantsForked fails unless a process was forked from a zygote, which means that it has the zygote's initial environment.
func wantsForked(t *testing.T, p process) {
	t.Helper()
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err == nil && strings.Contains("\x00"+string(environ), "\x00XEBEC_MODEL=") { // otherwise it has ended meanwhile
		t.Errorf("%v was not forked from a zygote", p)
	}
}

// lines returns the lines of a file, or none if there is no such file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// stream is an open loop: it sends at a rate regardless of the answers, until it is ended. The rate can be changed.
type stream struct {
	load
	rate atomic.Int64
	done chan struct{}
}

// startStream sends requests with distinct raw inputs to a function.
func (g *gateway) startStream(function string, perSecond int64) *stream {
	const ticksPerSecond = 100
	s := &stream{load: load{g: g}, done: make(chan struct{})}
	s.rate.Store(perSecond)
	ctx := bounded(g.t)
	send := func(n int64) {
		o := outcome{sent: fmt.Sprintf("input %d of the stream", n)}
		o.answer, o.err = g.post(ctx, "/"+function+"/predict", "text/plain", []byte(o.sent), "Xebec-Slo-Ms", patient)
		if o.err == nil && o.answer.predicted() {
			s.good.Add(1)
		}
		s.mu.Lock()
		s.all = append(s.all, o)
		s.mu.Unlock()
	}
	s.wg.Go(func() {
		tick := time.NewTicker(time.Second / ticksPerSecond)
		defer tick.Stop()
		owed := int64(0) // in hundredths of a request
		for s.sent.Load() < maxLoad {
			for owed += s.rate.Load(); owed >= ticksPerSecond; owed -= ticksPerSecond {
				n := s.sent.Add(1)
				s.wg.Go(func() { send(n) })
			}
			select {
			case <-tick.C:
			case <-s.done:
				return
			}
		}
	})
	g.t.Cleanup(func() { s.end() })
	return s
}

// end stops the stream and returns the outcome of every request.
func (s *stream) end() []outcome {
	if s.stopped.CompareAndSwap(false, true) {
		close(s.done)
	}
	s.wg.Wait()
	return s.all
}

// unenforced reports whether a model's description says that the gateway cannot enforce a limit on this machine.
func unenforced(m api.ModelStatus, limit string) bool {
	for _, sentence := range m.Capacity.Unenforced {
		if strings.HasPrefix(sentence, limit) {
			return true
		}
	}
	return false
}

// describes fails unless the description of a model has all the texts.
func (g *gateway) describes(model string, says ...string) string {
	g.t.Helper()
	text := g.must("describe", "model", model)
	for _, s := range says {
		if !strings.Contains(text, s) {
			g.t.Errorf("describe model %s does not say %q:\n%s", model, s, text)
		}
	}
	return text
}

// wellAgainBy queries a model until it answers by itself.
func wellAgainBy(g *gateway, what string, ask func() answer) {
	g.t.Helper()
	g.await(what+" to answer", func(context.Context) (bool, string) {
		a := ask()
		return a.predicted(), a.String()
	})
}

// hasWorkers is the condition that a version has n processes that were not forked.
func (g *gateway) hasWorkers(ref string, n int) func(context.Context) (bool, string) {
	return func(context.Context) (bool, string) {
		found := g.workersOf(ref)
		return len(found) == n, fmt.Sprint(found)
	}
}
