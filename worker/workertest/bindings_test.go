package workertest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// TestMain also runs the worker of the Go binding in a process of its own: the test binary starts itself.
func TestMain(m *testing.M) {
	if os.Getenv(envVersion1) != "" {
		serveVersion1()
		return
	}
	if os.Getenv("XEBEC_TOKEN") != "" {
		if err := serve(os.Getenv, nil); err != nil {
			log.Fatal(err)
		}
		return
	}
	// netpoll's pollers serve the whole process and never end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

const envSocketOnly = "XEBEC_CONFORMANCE_SOCKET_ONLY"

// Package local passes the suite for transports, with workers of the Go binding in this process.
func TestLocal(t *testing.T) {
	for _, poller := range workertest.Pollers {
		for mode, env := range map[string][]string{"ring": nil, "socket": {envSocketOnly + "=1"}} {
			t.Run(string(poller)+"/"+mode, func(t *testing.T) {
				workertest.RunTransport(t, workertest.Transport{
					Worker: workertest.Worker{InProcess: true, Ring: mode == "ring"},
					Open: func(tb testing.TB, maxBatchBytes uint64) (worker.Transport, error) {
						dir, err := os.MkdirTemp("", "xebec") // a socket's path has at most 107 bytes, and test names make long ones
						if err != nil {
							return nil, err
						}
						tb.Cleanup(func() { os.RemoveAll(dir) })
						return local.Listen(local.Config{Socket: filepath.Join(dir, "w"), Doors: filepath.Join(dir, "d"), Now: workertest.Now, Poller: poller, MaxSegmentBytes: maxBatchBytes, ShrinkAfter: workertest.ShrinkAfter})
					},
					Start: func(_ testing.TB, _ worker.Transport, launch []string) workertest.Process {
						return startInProcess(append(launch, env...))
					},
				})
			})
		}
	}
}

func TestGoProcess(t *testing.T) {
	bothModes(t, func(env []string) func(testing.TB, []string) workertest.Process {
		return func(tb testing.TB, launch []string) workertest.Process {
			// By default a program under the race detector sleeps for a second before it exits.
			env := append([]string{"GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE")}, env...)
			return workertest.StartProcess(tb, exec.Command("/proc/self/exe"), append(launch, env...))
		}
	}, workertest.Worker{})
}

func bothModes(t *testing.T, start func(env []string) func(testing.TB, []string) workertest.Process, w workertest.Worker) {
	t.Run("ring", func(t *testing.T) {
		w.Ring, w.Start = true, start(nil)
		workertest.Run(t, w)
	})
	t.Run("socket", func(t *testing.T) {
		w.Ring, w.Start = false, start([]string{envSocketOnly + "=1"})
		workertest.Run(t, w)
	})
	if w.Version1 { // it need not spin
		return
	}
	w.BusyPoll = api.MaxBusyPoll
	t.Run("ring, busy polling", func(t *testing.T) {
		w.Ring, w.Start = true, start(nil)
		workertest.Run(t, w)
	})
	t.Run("socket, busy polling", func(t *testing.T) {
		w.Ring, w.Start = false, start([]string{envSocketOnly + "=1"})
		workertest.Run(t, w)
	})
}

// The command that other tests and benchmarks use as a worker.
func TestTestworker(t *testing.T) {
	program := os.Getenv("XEBEC_TEST_WORKER")
	if program == "" {
		program = filepath.Join(t.TempDir(), "xebec-testworker")
		build := exec.Command("go", "build", "-o", program, "./worker/bindings/go/cmd/xebec-testworker")
		build.Dir = workertest.Root(t)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build xebec-testworker: %v\n%s", err, out)
		}
	}
	for _, ring := range []bool{true, false} {
		t.Run(fmt.Sprintf("ring=%v", ring), func(t *testing.T) {
			workertest.Run(t, workertest.Worker{Ring: ring, Plain: true, NoSteps: true, Start: func(tb testing.TB, launch []string) workertest.Process {
				env := func(name string) string { return lookup(launch, name) }
				flags := []string{"-mode", env(workertest.EnvModel)}
				for flag, name := range map[string]string{"-contexts": workertest.EnvContexts, "-confidences": workertest.EnvConfidences, "-feedback": workertest.EnvFeedback, "-accuracy": workertest.EnvFeedback,
					"-parameters": workertest.EnvParameters, "-calls": workertest.EnvCalls, "-functions": workertest.EnvFunctions} {
					if env(name) == "1" {
						flags = append(flags, flag)
					}
				}
				if n := strings.TrimPrefix(env(workertest.EnvConcurrency), "async"); n != "" {
					flags = append(flags, "-concurrency", n)
				}
				if !ring {
					flags = append(flags, "-no-ring")
				}
				return workertest.StartProcess(tb, exec.Command(program, flags...), launch)
			}})
		})
	}
}

func TestPython(t *testing.T) {
	root := workertest.Root(t)
	python := os.Getenv("XEBEC_TEST_PYTHON")
	if python == "" {
		python = filepath.Join(root, "build/venv/bin/python")
	}
	if out, err := exec.Command(python, "-c", "import numpy, xebec").CombinedOutput(); err != nil {
		t.Fatalf("%s cannot run the Python binding (%v): `make venv` makes an environment that can; XEBEC_TEST_PYTHON names another interpreter\n%s", python, err, out)
	}
	script := filepath.Join(root, "worker/workertest/testdata/model.py")
	bothModes(t, func(env []string) func(testing.TB, []string) workertest.Process {
		return func(tb testing.TB, launch []string) workertest.Process {
			pure := "0"
			if env != nil {
				pure = "1"
			}
			return workertest.StartProcess(tb, exec.Command(python, script), append(launch, "XEBEC_PURE="+pure))
		}
	}, workertest.Worker{})
}

func lookup(env []string, name string) (value string) {
	for _, entry := range env {
		if len(entry) > len(name) && entry[:len(name)] == name && entry[len(name)] == '=' {
			value = entry[len(name)+1:]
		}
	}
	return value
}

// inProcess is a worker in this process.
type inProcess struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

func startInProcess(env []string) *inProcess {
	ctx, stop := context.WithCancel(context.Background())
	p := &inProcess{stop: stop, ended: make(chan struct{})}
	go func() {
		p.err = serve(func(name string) string { return lookup(env, name) }, ctx)
		stop()
		close(p.ended)
	}()
	return p
}

func (p *inProcess) PID() int { return os.Getpid() }

func (p *inProcess) Signal(sig syscall.Signal) error {
	if sig != syscall.SIGTERM {
		return fmt.Errorf("%v would end the test", sig)
	}
	p.stop()
	return nil
}

func (p *inProcess) Wait() error {
	<-p.ended
	return p.err
}
