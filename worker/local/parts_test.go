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

// The parts that the test binary plays in processes of its own. A part dies at the step that envStep names, by SIGKILL, so that
// nothing is tidied up.
const (
	envPart = "XEBEC_WORKER_TEST_PART"
	envStep = "XEBEC_WORKER_TEST_STEP"
	envCaps = "XEBEC_WORKER_TEST_CAPABILITIES"
	envDir  = "XEBEC_WORKER_TEST_DIR"

	partRaw     = "raw worker"
	partHonest  = "honest worker"
	partGateway = "gateway"
	partCopying = "copying worker"
)

// aliveFD is a pipe that parts inherit: it reads end of file when the last of them is gone.
const aliveFD = 3

func play(part string) int {
	switch part {
	case partRaw:
		playRaw()
	case partGateway:
		playGateway()
	case partCopying:
		if err := xebec.Serve(copying); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case partHonest:
		if err := serveEcho(os.Getenv("XEBEC_SOCKET"), os.Getenv("XEBEC_TOKEN")); err == nil {
			return 0
		}
	}
	return 1
}

// self returns a command that runs this test binary in a part.
func self(part, step string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envPart+"="+part, envStep+"="+step)
	cmd.Stderr = os.Stderr
	return cmd
}

// at dies when the part has come to its step.
func at(step string) {
	if os.Getenv(envStep) != step {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// playing is the TB of a part.
type playing struct{}

func (playing) Helper() {}

func (playing) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, os.Getenv(envPart)+": "+format+"\n", args...)
	os.Exit(70)
}

func (p playing) Fatalf(format string, args ...any) { p.Errorf(format, args...) }

// playRaw is a worker that goes through a batch step by step. It begins when its standard input ends, which is when
// everything that it is to find has been sent.
func playRaw() {
	caps, err := strconv.ParseUint(os.Getenv(envCaps), 10, 32)
	if err != nil {
		playing{}.Fatalf("%v", err)
	}
	w := workertest.DialRaw(playing{}, os.Getenv("XEBEC_SOCKET"))
	at("connected")
	w.Hello(os.Getenv("XEBEC_TOKEN"), uint32(caps))
	at("greeted")
	w.ReadWelcome()
	at("welcomed")
	w.ReadSegments()
	at("mapped")
	w.Ready()
	_, _ = os.Stdin.Read(make([]byte, 1))
	at("ready")
	if os.Getenv(envStep) == "leaving" {
		w.Write((&wire.Leaving{Reason: "I must"}).Append(nil))
		at("leaving")
	}
	req := w.Next()
	at("taken")
	res := w.Outputs(req, w.Inputs(req))
	clear(w.Granted(req)[res.OutLen/2 : res.OutLen])
	at("writing")
	res = w.Outputs(req, w.Inputs(req))
	at("written")
	switch os.Getenv(envStep) {
	case "need more", "granted":
		more := workertest.Answer(req)
		more.Status, more.Need = wire.StatusNeedMore, req.OutCap+1
		w.Respond(more)
		at("need more")
		for req = w.Next(); req.Kind != wire.KindGrant; {
			req = w.Next()
		}
		at("granted")
	case "segments came", "mapped again", "granted again":
		more := workertest.Answer(req)
		more.Status, more.Need = wire.StatusNeedMore, 5<<20
		w.Respond(more)
		w.ReadSegments()
		at("segments came")
		w.Ready()
		at("mapped again")
		w.Next()
		at("granted again")
	case "draining":
		w.Write((&wire.Leaving{Reason: "I must"}).Append(nil))
		w.Want(wire.TypeDrain)
		at("draining")
	}
	if w.Ring() {
		w.Push(res)
		at("pushed")
		w.Bell()
	} else {
		frame := res.Append(nil)
		if os.Getenv(envStep) == "half a frame" {
			w.Write(frame[:40])
			at("half a frame")
		}
		w.Write(frame)
	}
	at("answered")
	playing{}.Fatalf("no step is called %q", os.Getenv(envStep))
}

// playGateway is a hub with one honest worker, which inherits the pipe.
func playGateway() {
	alive := os.NewFile(aliveFD, "alive")
	hub, err := local.Listen(local.Config{Socket: os.Getenv(envDir) + "/w.sock", Now: workertest.Now, Poller: local.Poller(os.Getenv("XEBEC_WORKER_TEST_POLLER"))})
	if err != nil {
		playing{}.Fatalf("%v", err)
	}
	ev := &gatewayEvents{ready: make(chan worker.Replica, 1), done: make(chan uint64, 8)}
	env, _, err := hub.Expect(worker.Expectation{Replica: 1, Model: workertest.Model, Signature: workertest.Text(), Depth: 2, Events: ev})
	if err != nil {
		playing{}.Fatalf("%v", err)
	}
	at("listening")
	child := self(partHonest, "")
	child.Env = append(child.Env, env...)
	child.ExtraFiles = []*os.File{alive}
	if err := child.Start(); err != nil {
		playing{}.Fatalf("%v", err)
	}
	at("launched")
	r := <-ev.ready
	at("ready")
	send := func(id uint64, text string) {
		b := &api.Batch{ID: id, Queries: []*api.Query{{Inputs: workertest.Texts(text)[0], Deadline: api.Never}}}
		if err := r.Send(b); err != nil {
			playing{}.Fatalf("%v", err)
		}
	}
	send(1, "x")
	at("sent")
	<-ev.done
	at("answered")
	send(2, strings.Repeat("x", 5<<20))
	at("segments sent")
	<-ev.done
	at("grown")
	r.Drain()
	at("drained")
	playing{}.Fatalf("no step is called %q", os.Getenv(envStep))
}

// gatewayEvents hands events to the part's goroutine.
type gatewayEvents struct {
	ready chan worker.Replica
	done  chan uint64
}

func (e *gatewayEvents) Ready(r worker.Replica) {
	at("in Ready")
	e.ready <- r
}

func (e *gatewayEvents) Done(_ worker.Replica, res *api.BatchResult) {
	at("in Done")
	e.done <- res.ID
}

func (e *gatewayEvents) Leaving(worker.Replica, string) {}

func (e *gatewayEvents) Gone(_ worker.Replica, end worker.End) {
	at("drained") // a drained worker may be quicker than the part
	playing{}.Fatalf("the worker went first: %s", end.Reason)
}
