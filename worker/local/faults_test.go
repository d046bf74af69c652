package local_test

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// killable starts a raw worker in a process of its own that dies at a step.
func killable(t *testing.T, l *workertest.Launch, step string, capabilities uint32) (begin func(), ended func() error) {
	t.Helper()
	cmd := self(roleRaw, step)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := workertest.StartProcess(t, cmd, append(l.Env, fmt.Sprintf("%s=%d", envCaps, capabilities)))
	return func() { stdin.Close() }, p.Wait
}

// A worker is killed before it is ready: its launch ends with Gone, unless it had not shown its token yet.
func TestWorkerKilledBeforeReady(t *testing.T) {
	for _, step := range []string{"connected", "greeted", "welcomed", "mapped"} {
		t.Run(step, func(t *testing.T) {
			eachPoller(t, func(t *testing.T, g *workertest.Hub) {
				l := g.Expect(workertest.Text(), 2)
				_, ended := killable(t, l, step, wire.CapRing)
				if err := ended(); err == nil {
					t.Fatal("the worker exited with 0, expected SIGKILL")
				}
				if step == "connected" {
					if !l.Withdraw() {
						t.Error("the token was consumed")
					}
				} else if end := l.Events.WaitGone(t); end.Violation {
					t.Errorf("%+v", end)
				}
			})
		})
	}
}

// A worker is killed at each step of a batch, with another batch behind it. Batches that it had answered are done, the
// others are left, and exactly those that it had taken are reported begun.
func TestWorkerKilledAtEachStep(t *testing.T) {
	type left = map[uint64]bool
	for _, c := range []struct {
		step         string
		batches      int
		ring, socket left // nil: not for that mode
	}{
		{"ready", 2, left{1: false, 2: false}, left{1: true, 2: false}}, // over the socket the gateway cannot know what was read
		{"leaving", 2, left{1: false, 2: false}, left{1: true, 2: false}},
		{"taken", 2, left{1: true, 2: false}, left{1: true, 2: false}},
		{"writing", 2, left{1: true, 2: false}, left{1: true, 2: false}},
		{"written", 2, left{1: true, 2: false}, left{1: true, 2: false}},
		{"half a frame", 2, nil, left{1: true, 2: false}},
		{"need more", 2, left{1: true, 2: false}, left{1: true, 2: true}},
		{"granted", 2, left{1: true, 2: true}, left{1: true, 2: true}},
		{"segments came", 1, left{1: true}, left{1: true}},
		{"mapped again", 1, left{1: true}, left{1: true}},
		{"granted again", 1, left{1: true}, left{1: true}},
		{"draining", 2, left{1: true, 2: false}, left{1: true, 2: false}},
		{"pushed", 2, left{2: false}, nil},
		{"answered", 2, left{2: false}, left{2: true}},
	} {
		t.Run(c.step, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				want := c.ring
				if capabilities == 0 {
					want = c.socket
				}
				if want == nil {
					return
				}
				g := workertest.NewHub(t, poller, 0)
				l := g.Expect(workertest.Text(), c.batches)
				l.Events.OnLeaving = func(r worker.Replica, _ string) { r.Drain() }
				begin, ended := killable(t, l, c.step, capabilities)
				s := workertest.NewSession(t, l)
				for i := range c.batches {
					s.Send(workertest.Texts(fmt.Sprint("batch ", i+1))...)
				}
				begin()
				if err := ended(); err == nil {
					t.Fatal("the worker exited with 0, expected SIGKILL")
				}
				if end := s.End(); end.Violation {
					t.Errorf("%+v", end)
				}
				got := s.Left()
				if !maps.Equal(got, want) {
					t.Errorf("left %v (true: begun), expected %v", got, want)
				}
				for id := range uint64(c.batches) {
					if res, ok := s.Events.Result(id + 1); ok && res.Code != api.OK {
						t.Errorf("%+v", res)
					}
				}
			})
		})
	}
}

// A gateway is killed at each step. Its worker ends by itself, and nothing remains of both but the socket's file, which
// the next gateway replaces.
func TestGatewayKilledAtEachStep(t *testing.T) {
	for _, step := range []string{"listening", "launched", "in Ready", "ready", "sent", "in Done", "answered", "segments sent", "grown", "drained"} {
		t.Run(step, func(t *testing.T) {
			for _, poller := range workertest.Pollers {
				t.Run(string(poller), func(t *testing.T) { killGateway(t, step, poller) })
			}
		})
	}
}

func killGateway(t *testing.T, step string, poller local.Poller) {
	dir, err := os.MkdirTemp("", "xebec")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	alive, inParts, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	cmd := self(roleGateway, step)
	cmd.Env = append(cmd.Env, envDir+"="+dir, "XEBEC_WORKER_TEST_POLLER="+string(poller))
	cmd.ExtraFiles = []*os.File{inParts}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inParts.Close()
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the gateway: %v, expected SIGKILL", err)
	}
	// End of file: the worker has ended too, and with the last process the kernel frees the segments.
	if _, err := io.Copy(io.Discard, alive); err != nil {
		t.Fatal(err)
	}
	if names, err := filepath.Glob("/dev/shm/*xebec*"); err != nil || len(names) != 0 {
		t.Errorf("left in /dev/shm: %v, %v", names, err)
	}
	hub, err := local.Listen(local.Config{Socket: dir + "/w.sock", Now: workertest.Now, Poller: poller})
	if err != nil {
		t.Fatalf("the next gateway: %v", err)
	}
	if _, err := local.Listen(local.Config{Socket: dir + "/w.sock", Now: workertest.Now}); err == nil {
		t.Error("two gateways listen at one socket")
	}
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
}
