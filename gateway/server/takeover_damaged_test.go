package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

// pipeEnd returns the read end of a pipe, and a check that all its copies are closed.
func pipeEnd(t *testing.T) (end *os.File, closed func() bool) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	end = os.NewFile(uintptr(p[0]), "read end")
	t.Cleanup(func() { end.Close() })
	return end, func() bool {
		_, err := unix.Write(p[1], []byte{1})
		return errors.Is(err, unix.EPIPE)
	}
}

// say sends messages, each with a descriptor that has no business there.
func say(c *takeover.Conn, end *os.File, messages ...any) error {
	for i := 0; i < len(messages); i += 2 {
		if err := c.Send(messages[i].(takeover.Kind), messages[i+1], end); err != nil {
			return err
		}
	}
	return nil
}

// Whatever a process says that asks to take over, the gateway goes on: it answers, takes changes again, keeps no descriptor, and can be
// taken over afterwards.
func TestADamagedProcessAsksToTakeOver(t *testing.T) {
	dir := t.TempDir()
	s, _, addr := alive(t, Config{DataDir: dir})
	mustApply(t, s, sleepyVersion("1", "min: 1, max: 1"), askM)
	until(t, "a replica", func() bool { return deployed(s, "m", "1").Ready() == 1 })
	hello := takeover.Hello{Version: takeover.Version, Program: "test"}
	canary := hello
	canary.Canary = &takeover.Canary{Share: 0.5, Seconds: 3600}
	text := func(s string) []byte { return []byte(s) }
	for name, messages := range map[string][]any{
		"no JSON":                      {takeover.KindHello, text("]")},
		"another version":              {takeover.KindHello, takeover.Hello{Version: 99}},
		"a canary of everything":       {takeover.KindHello, takeover.Hello{Version: takeover.Version, Canary: &takeover.Canary{Share: 7}}},
		"ready before a hello":         {takeover.KindReady, nil},
		"done":                         {takeover.KindDone, nil},
		"an upgrade that is no JSON":   {takeover.KindUpgrade, text("]")},
		"hello twice":                  {takeover.KindHello, hello, takeover.KindHello, hello},
		"serving before the release":   {takeover.KindHello, hello, takeover.KindServing, nil},
		"the old process's messages":   {takeover.KindHello, hello, takeover.KindRelease, nil},
		"an upgrade in a takeover":     {takeover.KindHello, hello, takeover.KindUpgrade, takeover.Upgrade{}},
		"the past without a canary":    {takeover.KindHello, hello, takeover.KindPast, text("x")},
		"a past that is none":          {takeover.KindHello, canary, takeover.KindPast, text("x"), takeover.KindAbort, takeover.Abort{}},
		"an answer without a question": {takeover.KindHello, hello, takeover.KindAnswer, takeover.Answer{ID: 7}, takeover.KindAbort, takeover.Abort{}},
		"an answer that is no JSON":    {takeover.KindHello, hello, takeover.KindAnswer, text("]")},
		"a call that is no JSON":       {takeover.KindHello, hello, takeover.KindCall, text("]")},
		"an abort that is no JSON":     {takeover.KindHello, hello, takeover.KindAbort, text("]")},
		"calls that mean nothing": {
			takeover.KindHello, canary, takeover.KindCall, takeover.Call{ID: 1, Op: "none"}, takeover.KindCall, takeover.Call{ID: 1, Op: opMerge, Body: text(`[{"seq":1}]`)},
			takeover.KindCall, takeover.Call{ID: 2, Op: opLoad, Body: text(`{}`)}, takeover.KindCall, takeover.Call{ID: 3, Op: opPast, Body: text(`7`)}, takeover.KindAbort, takeover.Abort{},
		},
		"a canary that serves":     {takeover.KindHello, canary, takeover.KindReady, nil, takeover.KindServing, nil},
		"ready, and then ready":    {takeover.KindHello, canary, takeover.KindReady, nil, takeover.KindReady, nil},
		"aborts without an end":    {takeover.KindHello, hello, takeover.KindAbort, takeover.Abort{}, takeover.KindAbort, takeover.Abort{}, takeover.KindAbort, takeover.Abort{}},
		"it leaves after hello":    {takeover.KindHello, hello},
		"it leaves as it is tried": {takeover.KindHello, canary, takeover.KindReady, nil},
	} {
		t.Run(name, func(t *testing.T) {
			end, closed := pipeEnd(t)
			c, err := takeover.Dial(t.Context(), filepath.Join(dir, controlFile))
			if err != nil {
				t.Fatal(err)
			}
			if err := say(c, end, messages...); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				t.Error(err)
			}
			end.Close()
			c.Close()
			until(t, "the end of the takeover", func() bool {
				s.succession.mu.Lock()
				defer s.succession.mu.Unlock()
				return s.succession.to == nil && s.Upgrade() == nil && closed()
			})
			answers(t, addr, "m@1")
			mustApply(t, s, askM)
		})
	}
}

// fakeOld is a socket at which a test plays the old process, and the welcome that a new one expects.
type fakeOld struct {
	t        *testing.T
	dir      dataDir
	ln       *net.UnixListener
	function net.Listener
	admin    net.Listener
	store    *state.Handover
	ownPort  bool                // it says that it has no supervisor
	declared map[string][]string // that it says is in force
}

func newFakeOld(t *testing.T) *fakeOld {
	t.Helper()
	old := &fakeOld{t: t, dir: heldDir(t)}
	var err error
	if old.ln, err = takeover.Listen(old.dir.control()); err != nil {
		t.Fatal(err)
	}
	if old.store, err = state.OwnFile(old.dir.store()); err != nil {
		t.Fatal(err)
	}
	if err := old.store.Copy(old.dir.file(copyFile)); err != nil {
		t.Fatal(err)
	}
	for _, ln := range []*net.Listener{&old.function, &old.admin} {
		if *ln, err = accept.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { old.ln.Close(); old.store.Close(); old.function.Close(); old.admin.Close() })
	return old
}

// meet waits for the new process and its hello.
func (o *fakeOld) meet() *takeover.Conn {
	o.t.Helper()
	_ = o.ln.SetDeadline(time.Now().Add(testTimeout))
	c, err := o.ln.AcceptUnix()
	if err != nil {
		o.t.Fatal(err)
	}
	conn, err := takeover.NewConn(c)
	if err != nil {
		o.t.Fatal(err)
	}
	if f, _, err := conn.Receive(); err != nil || f.Kind != takeover.KindHello {
		o.t.Fatalf("got message %d, %v", f.Kind, err)
	}
	return conn
}

// welcome sends the descriptors that the names say.
func (o *fakeOld) welcome(c *takeover.Conn, names ...string) {
	o.t.Helper()
	w := takeover.WelcomeMessage{Version: takeover.Version, Program: "test", Second: true, OwnPort: o.ownPort, Canary: true, Files: names, Store: o.store.Name(), Copy: o.dir.file(copyFile), Declared: o.declared}
	var files []*os.File
	for _, name := range names {
		switch name {
		case fileLock:
			files = append(files, o.dir.lock)
		case fileFunction, fileAdmin:
			ln := o.function
			if name == fileAdmin {
				ln = o.admin
			}
			f, err := ln.(*net.TCPListener).File()
			if err != nil {
				o.t.Fatal(err)
			}
			defer f.Close()
			files = append(files, f)
		}
	}
	if err := c.Send(takeover.KindWelcome, w, files...); err != nil {
		o.t.Fatal(err)
	}
}

// start starts a process that takes over from the test.
func (o *fakeOld) start(cfg Config) (s *Server, started <-chan error) {
	cfg.DataDir, cfg.Takeover, cfg.Runtime = o.dir.path, true, newIdle()
	cfg.Listen, cfg.Admin = o.function.Addr().String(), o.admin.Addr().String()
	s = New(cfg)
	done := make(chan error, 1)
	go func() { done <- s.Start(context.Background()) }()
	return s, done
}

// A new process that gets no sense from the old one ends with an error that says so, and leaves nothing open.
func TestTakeOverFromADamagedProcess(t *testing.T) {
	for name, c := range map[string]struct {
		play func(o *fakeOld, c *takeover.Conn, end *os.File) error
		says string
	}{
		"it ends":    {func(*fakeOld, *takeover.Conn, *os.File) error { return nil }, "does not answer"},
		"no welcome": {func(_ *fakeOld, c *takeover.Conn, end *os.File) error { return say(c, end, takeover.KindReady, nil) }, "that this program does not know"},
		"no JSON": {func(_ *fakeOld, c *takeover.Conn, end *os.File) error {
			return say(c, end, takeover.KindWelcome, []byte("]"))
		}, "that this program does not know"},
		"a refusal": {func(_ *fakeOld, c *takeover.Conn, end *os.File) error {
			return say(c, end, takeover.KindAbort, takeover.Abort{Reason: "no room"})
		}, "refuses: no room"},
		"one file too many": {func(_ *fakeOld, c *takeover.Conn, end *os.File) error {
			return say(c, end, takeover.KindWelcome, takeover.WelcomeMessage{})
		}, "that this program does not know"},
		"files of one name": {func(_ *fakeOld, c *takeover.Conn, end *os.File) error {
			return c.Send(takeover.KindWelcome, takeover.WelcomeMessage{Files: []string{fileLock, fileLock}}, end, end)
		}, "that this program does not know"},
		"no lock": {func(_ *fakeOld, c *takeover.Conn, end *os.File) error {
			return c.Send(takeover.KindWelcome, takeover.WelcomeMessage{Files: []string{"x"}}, end)
		}, "does not pass on the data directory"},
		"a port that is none": {func(o *fakeOld, c *takeover.Conn, end *os.File) error {
			return c.Send(takeover.KindWelcome, takeover.WelcomeMessage{Files: []string{fileLock, fileFunction}}, o.dir.lock, end)
		}, "take over the function port"},
		"a call, and then its end": {func(o *fakeOld, c *takeover.Conn, _ *os.File) error {
			o.welcome(c, fileLock, fileFunction, fileAdmin)
			return errors.Join(c.Send(takeover.KindCall, takeover.Call{ID: 1, Op: opAwaited}), c.Send(takeover.KindAbort, takeover.Abort{Reason: "it stops"}))
		}, "ends the takeover: it stops"},
		"it has taken its copy back": {func(o *fakeOld, c *takeover.Conn, _ *os.File) error {
			err := os.Remove(o.dir.file(copyFile))
			o.welcome(c, fileLock, fileFunction, fileAdmin)
			return err
		}, "hands nothing over"},
		"release before ready": {func(o *fakeOld, c *takeover.Conn, end *os.File) error {
			o.welcome(c, fileLock, fileFunction, fileAdmin)
			return say(c, end, takeover.KindConnections, nil, takeover.KindConnections, nil)
		}, "--takeover"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newFakeOld(t)
			end, closed := pipeEnd(t)
			_, started := o.start(Config{})
			conn := o.meet()
			if err := c.play(o, conn, end); err != nil {
				t.Error(err)
			}
			end.Close()
			conn.Close()
			if err := <-started; err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the new process ends with %v: expected %q", err, c.says)
			}
			if !closed() {
				t.Error("a descriptor is still open")
			}
		})
	}
}

// What is in force in the old process, and is of a later program than the new one, ends the takeover at once, with the reason. A model
// was waited for, and a function was gone. What the old process cannot read either is no reason.
func TestTakeoverByAnEarlierProgram(t *testing.T) {
	key := func(kind api.Kind, name string) state.ObjectKey {
		return state.ObjectKey{Kind: string(kind), Name: name}
	}
	for name, c := range map[string]struct {
		later    state.ObjectKey
		text     string
		declared map[string][]string
		says     string // empty: it takes over
	}{
		"a model":    {key(api.KindModel, "m@1"), "kind: Model\nname: m\nlater: true\n", map[string][]string{string(api.KindModel): {"m@1"}}, "model m@1 in the store cannot be read"},
		"a function": {key(api.KindFunction, "f"), "kind: Function\nname: f\nlater: true\n", map[string][]string{string(api.KindFunction): {"e", "f"}}, "function f in the store cannot be read"},
		"a rule":     {key(api.KindTraffic, "m"), "kind: Traffic\nname: m\nlater: true\n", map[string][]string{string(api.KindTraffic): {"m"}}, "traffic m in the store cannot be read"},
		"in neither": {key(api.KindFunction, "f"), "kind: Function\nname: f\nlater: true\n", map[string][]string{string(api.KindFunction): {"e"}, string(api.KindModel): {"f"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := newFakeOld(t)
			o.declared = c.declared
			if _, err := o.store.Commit(t.Context(), &state.Commit{ID: [16]byte{1}, Put: []state.Object{{ObjectKey: c.later, Data: []byte(c.text)}}}); err != nil {
				t.Fatal(err)
			}
			if err := o.store.Copy(o.dir.file(copyFile)); err != nil {
				t.Fatal(err)
			}
			if c.says == "" {
				s, conn := o.replaced()
				conn.Close()
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			_, started := o.start(Config{})
			conn := o.meet()
			defer conn.Close()
			o.welcome(conn, fileLock, fileFunction, fileAdmin)
			if err := <-started; err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the new process ends with %v", err)
			}
		})
	}
}

// replaced starts a process that takes over from the test, up to the point where it serves.
func (o *fakeOld) replaced() (*Server, *takeover.Conn) {
	o.t.Helper()
	s, started := o.start(Config{})
	conn := o.meet()
	o.welcome(conn, fileLock, fileFunction, fileAdmin)
	if f, _, err := conn.Receive(); err != nil || f.Kind != takeover.KindReady {
		o.t.Fatalf("got message %d %s, %v", f.Kind, f.Payload, err)
	}
	if err := errors.Join(o.store.Release(), conn.Send(takeover.KindRelease, nil)); err != nil {
		o.t.Fatal(err)
	}
	if f, _, err := conn.Receive(); err != nil || f.Kind != takeover.KindServing {
		o.t.Fatalf("got message %d %s, %v", f.Kind, f.Payload, err)
	}
	if err := <-started; err != nil {
		o.t.Fatal(err)
	}
	return s, conn
}

// A process that has taken over and ends before the old one begins no more connections, which would be reset when that one ends; except
// where a supervisor has the port too, and starts the next process.
func TestEndBeforeTheOldProcess(t *testing.T) {
	for name, ownPort := range map[string]bool{"alone": true, "with a supervisor": false} {
		t.Run(name, func(t *testing.T) {
			o := newFakeOld(t)
			o.ownPort = ownPort
			s, conn := o.replaced()
			defer conn.Close()
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(t.Context()) }()
			for { // until it has ended
				if _, _, err := conn.Receive(); err != nil {
					break
				}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			late := net.Dialer{Timeout: 100 * time.Millisecond}
			c, err := late.DialContext(t.Context(), "tcp", o.function.Addr().String())
			if (err == nil) == ownPort {
				t.Errorf("connecting after the end: %v", err)
			}
			if err == nil {
				c.Close()
			}
		})
	}
}

// What the old process says about the takeover when that is over changes nothing, however much it is: the new process serves, names the
// one that it waits for, can be taken over when that has ended, and ends.
func TestTheOldProcessGoesOnAboutTheTakeover(t *testing.T) {
	o := newFakeOld(t)
	s, conn := o.replaced()
	if serves, before := o.dir.holders(); serves != os.Getpid() || before != conn.PID() {
		t.Errorf("the lock names %d and %d", serves, before)
	}
	if u := s.Upgrade(); u == nil || u.Role != api.UpgradeNew || u.Step != api.UpgradeFinishing || u.Peer != conn.PID() {
		t.Errorf("shown is %+v", u)
	}
	for range 50 { // more than the events that it keeps
		if err := conn.Send(takeover.KindAbort, takeover.Abort{Reason: "of the test"}); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	until(t, "the end of the process before to be seen", func() bool { return s.Upgrade() == nil })
	until(t, "the control socket", func() bool {
		c, err := takeover.Dial(t.Context(), o.dir.control())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if serves, before := o.dir.holders(); serves != os.Getpid() || before != 0 {
		t.Errorf("the lock names %d and %d at the end", serves, before)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
