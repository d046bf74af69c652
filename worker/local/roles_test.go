package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// Roles that the test binary runs in processes of its own. A process dies by SIGKILL at the step that envStep names, so
// that nothing is cleaned up.
const (
	envRole = "XEBEC_WORKER_TEST_PART"
	envStep = "XEBEC_WORKER_TEST_STEP"
	envCaps = "XEBEC_WORKER_TEST_CAPABILITIES"
	envDir  = "XEBEC_WORKER_TEST_DIR"

	roleRaw     = "raw worker"
	roleHonest  = "honest worker"
	roleGateway = "gateway"
	roleCopying = "copying worker"
)

// aliveFD is a pipe that the processes inherit. It reads end of file when the last of them has ended.
const aliveFD = 3

func runRole(role string) int {
	switch role {
	case roleRaw:
		runRawWorker()
	case roleGateway:
		runGateway()
	case roleCopying:
		if err := xebec.Serve(copying); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case roleHonest:
		if err := serveEcho(os.Getenv("XEBEC_SOCKET"), os.Getenv("XEBEC_TOKEN")); err == nil {
			return 0
		}
	}
	return 1
}

// self returns a command that runs this test binary in a role.
func self(role, step string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envRole+"="+role, envStep+"="+step)
	cmd.Stderr = os.Stderr
	return cmd
}

// dieAt kills the process if it has reached its step.
func dieAt(step string) {
	if os.Getenv(envStep) != step {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// roleTB is the TB of a role.
type roleTB struct{}

func (roleTB) Helper() {}

func (roleTB) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, os.Getenv(envRole)+": "+format+"\n", args...)
	os.Exit(70)
}

func (p roleTB) Fatalf(format string, args ...any) { p.Errorf(format, args...) }

// runRawWorker is a worker that goes through a batch step by step. It begins when its standard input ends, after the
// test has sent everything that the worker is to find.
func runRawWorker() {
	caps, err := strconv.ParseUint(os.Getenv(envCaps), 10, 32)
	if err != nil {
		roleTB{}.Fatalf("%v", err)
	}
	w := workertest.DialRaw(roleTB{}, os.Getenv("XEBEC_SOCKET"))
	dieAt("connected")
	w.Hello(os.Getenv("XEBEC_TOKEN"), uint32(caps))
	dieAt("greeted")
	w.ReadWelcome()
	dieAt("welcomed")
	w.ReadSegments()
	dieAt("mapped")
	w.Ready()
	_, _ = os.Stdin.Read(make([]byte, 1))
	dieAt("ready")
	if os.Getenv(envStep) == "leaving" {
		w.Write((&wire.Leaving{Reason: "I must"}).Append(nil))
		dieAt("leaving")
	}
	req := w.Next()
	dieAt("taken")
	res := w.Outputs(req, w.Inputs(req))
	clear(w.Granted(req)[res.OutLen/2 : res.OutLen])
	dieAt("writing")
	res = w.Outputs(req, w.Inputs(req))
	dieAt("written")
	switch os.Getenv(envStep) {
	case "need more", "granted":
		more := workertest.Answer(req)
		more.Status, more.Need = wire.StatusNeedMore, req.OutCap+1
		w.Respond(more)
		dieAt("need more")
		for req = w.Next(); req.Kind != wire.KindGrant; {
			req = w.Next()
		}
		dieAt("granted")
	case "segments came", "mapped again", "granted again":
		more := workertest.Answer(req)
		more.Status, more.Need = wire.StatusNeedMore, 5<<20
		w.Respond(more)
		w.ReadSegments()
		dieAt("segments came")
		w.Ready()
		dieAt("mapped again")
		w.Next()
		dieAt("granted again")
	case "draining":
		w.Write((&wire.Leaving{Reason: "I must"}).Append(nil))
		w.Want(wire.TypeDrain)
		dieAt("draining")
	}
	if w.Ring() {
		w.Push(res)
		dieAt("pushed")
		w.Bell()
	} else {
		frame := res.Append(nil)
		if os.Getenv(envStep) == "half a frame" {
			w.Write(frame[:40])
			dieAt("half a frame")
		}
		w.Write(frame)
	}
	dieAt("answered")
	roleTB{}.Fatalf("unknown step %q", os.Getenv(envStep))
}

// runGateway is a hub with one honest worker, which inherits the pipe.
func runGateway() {
	alive := os.NewFile(aliveFD, "alive")
	hub, err := local.Listen(local.Config{Socket: os.Getenv(envDir) + "/w.sock", Now: workertest.Now, Poller: local.Poller(os.Getenv("XEBEC_WORKER_TEST_POLLER"))})
	if err != nil {
		roleTB{}.Fatalf("%v", err)
	}
	ev := &gatewayEvents{ready: make(chan worker.Replica, 1), done: make(chan uint64, 8)}
	env, _, err := hub.Expect(worker.Expectation{Replica: 1, Model: workertest.Model, Signature: workertest.Text(), Depth: 2, Events: ev})
	if err != nil {
		roleTB{}.Fatalf("%v", err)
	}
	dieAt("listening")
	child := self(roleHonest, "")
	child.Env = append(child.Env, env...)
	child.ExtraFiles = []*os.File{alive}
	if err := child.Start(); err != nil {
		roleTB{}.Fatalf("%v", err)
	}
	dieAt("launched")
	r := <-ev.ready
	dieAt("ready")
	send := func(id uint64, text string) {
		b := &api.Batch{ID: id, Queries: []*api.Query{{Inputs: workertest.Texts(text)[0], Deadline: api.Never}}}
		if err := r.Send(b); err != nil {
			roleTB{}.Fatalf("%v", err)
		}
	}
	send(1, "x")
	dieAt("sent")
	<-ev.done
	dieAt("answered")
	send(2, strings.Repeat("x", 5<<20))
	dieAt("segments sent")
	<-ev.done
	dieAt("grown")
	r.Drain()
	dieAt("drained")
	roleTB{}.Fatalf("unknown step %q", os.Getenv(envStep))
}

// gatewayEvents passes events to the role's goroutine.
type gatewayEvents struct {
	ready chan worker.Replica
	done  chan uint64
}

func (e *gatewayEvents) Ready(r worker.Replica) {
	dieAt("in Ready")
	e.ready <- r
}

func (e *gatewayEvents) Done(_ worker.Replica, res *api.BatchResult) {
	dieAt("in Done")
	e.done <- res.ID
}

func (e *gatewayEvents) FirstOutput(worker.Replica, uint64, int64) {}

func (e *gatewayEvents) Leaving(worker.Replica, string) {}

func (e *gatewayEvents) Gone(_ worker.Replica, end worker.End) {
	dieAt("drained") // a drained worker may be faster than this goroutine
	roleTB{}.Fatalf("the worker ended first: %s", end.Reason)
}
