package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
)

// scripted is a gateway that reports what is asked of it.
type scripted struct {
	events chan string
	failed chan error
	reload error
}

func (s *scripted) Superseded() <-chan struct{} { return nil }
func (s *scripted) Successor() int              { return 0 }
func (s *scripted) Failed() <-chan error        { return s.failed }

func (s *scripted) Reload(context.Context) ([]api.Change, error) {
	s.events <- "reload"
	return []api.Change{{Action: api.Created}}, s.reload
}

func (s *scripted) Stop(lameDuck, drain context.Context) error {
	if lameDuck.Err() == nil {
		s.events <- "lame duck"
		<-lameDuck.Done()
	}
	s.events <- "drain"
	<-drain.Done()
	s.events <- "cut off"
	return nil
}

func TestSignalsRuleTheGateway(t *testing.T) {
	hup, term, intr := syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT
	type step struct {
		signal os.Signal
		events string        // that follow
		after  time.Duration // the signal before; 0: a second
	}
	const soon, later = sentTwice - 1, sentTwice
	for _, c := range []struct {
		what     string
		lameDuck time.Duration
		reload   error
		steps    []step
	}{
		{"three times SIGTERM", time.Hour, nil, []step{{term, "lame duck", 0}, {term, "drain", 0}, {term, "cut off, let go", 0}}},
		{"each SIGTERM comes twice", time.Hour, nil, []step{{term, "lame duck", 0}, {term, "", soon}, {term, "drain", 1}, {term, "", soon}, {term, "cut off, let go", later}}},
		{"SIGINT after SIGTERM", 0, nil, []step{{term, "drain", 0}, {intr, "cut off, let go", soon}}},
		{"SIGINT has no lame duck", time.Hour, nil, []step{{intr, "drain", 0}, {intr, "cut off, let go", 0}}},
		{"SIGINT ends a lame duck", time.Hour, nil, []step{{term, "lame duck", 0}, {intr, "drain", 0}, {intr, "cut off, let go", 0}}},
		{"no lame duck", 0, nil, []step{{term, "drain", 0}, {term, "cut off, let go", 0}}},
		{"SIGHUP", time.Hour, nil, []step{{hup, "reload", 0}, {hup, "reload", 0}, {intr, "drain", 0}, {intr, "cut off, let go", 0}}},
		{"SIGHUP with an invalid configuration", 0, errors.New("all.yaml:3:1: no"), []step{{hup, "reload", 0}, {hup, "reload", 0}, {term, "drain", 0}, {term, "cut off, let go", 0}}},
		{"SIGHUP at the end", time.Hour, nil, []step{{term, "lame duck", 0}, {hup, "", 0}, {term, "drain", 0}, {hup, "", 0}, {term, "cut off, let go", 0}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := &scripted{events: make(chan string, 8), failed: make(chan error), reload: c.reload}
			signals := make(chan os.Signal)
			log, clock, times := zap.NewNop(), time.Unix(1, 0), make(chan time.Time)
			r := running{gateway: s, lameDuck: c.lameDuck, signals: signals, letGo: func() { s.events <- "let go" }, manager: manager{log}, log: log, now: func() time.Time { return <-times }}
			ended := make(chan error)
			go func() { ended <- r.run() }()
			for i, step := range c.steps {
				signals <- step.signal
				if step.signal != hup {
					clock = clock.Add(cmp.Or(step.after, time.Second))
					times <- clock
				}
				want := map[string]bool{}
				for _, e := range strings.Split(step.events, ", ") {
					want[e] = true
				}
				for delete(want, ""); len(want) > 0; {
					e := <-s.events
					if !want[e] {
						t.Fatalf("step %d, %v: %q, want %q", i, step.signal, e, step.events)
					}
					delete(want, e)
				}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPortThatFailsEndsTheGateway(t *testing.T) {
	s := &scripted{events: make(chan string, 8), failed: make(chan error)}
	signals := make(chan os.Signal)
	r := running{gateway: s, lameDuck: time.Hour, signals: signals, letGo: func() {}, manager: manager{zap.NewNop()}, log: zap.NewNop(), now: time.Now}
	ended := make(chan error)
	go func() { ended <- r.run() }()
	broken := errors.New("broken")
	s.failed <- broken
	if e := <-s.events; e != "drain" {
		t.Errorf("%q", e)
	}
	signals <- syscall.SIGTERM
	if err := <-ended; !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

// named is a socket as systemd passes it.
func named(t *testing.T, name string) *os.File {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), name)
}

func TestSocketsOfSystemd(t *testing.T) {
	functions := named(t, "functions")
	l, err := listenersFrom([]*os.File{named(t, "admin"), functions})
	if err != nil || l.Functions == nil || l.Admin == nil || l.Functions.Addr().String() == l.Admin.Addr().String() {
		t.Fatalf("%v, %v", l, err)
	}
	l.Functions.Close()
	l.Admin.Close()
	if l, err := listenersFrom(nil); err != nil || l.Functions != nil || l.Admin != nil {
		t.Errorf("without sockets: %v, %v", l, err)
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files []*os.File
		says  string
	}{
		{[]*os.File{named(t, "xebec.socket")}, `"xebec.socket": expected FileDescriptorName=functions or admin`},
		{[]*os.File{named(t, "admin"), named(t, "admin")}, `two sockets have the name "admin"`},
		{[]*os.File{os.NewFile(uintptr(null), "functions")}, `the socket "functions" cannot be listened on`},
	} {
		if l, err := listenersFrom(c.files); err == nil || !strings.Contains(err.Error(), c.says) || l.Functions != nil || l.Admin != nil {
			t.Errorf("%v, %v: want an error that says %s", l, err, c.says)
		}
	}
}

// A SIGHUP that comes before a gateway runs is kept for it. Other commands end at a SIGHUP, as programs do.
func TestAnEarlyHangupIsKept(t *testing.T) {
	for _, args := range [][]string{{}, {"logs", "serve"}} {
		if catchHangups(args) != nil {
			t.Errorf("%v catches SIGHUP", args)
		}
	}
	signals := catchHangups([]string{"serve", "--admin", "127.0.0.1:0"})
	defer signal.Stop(signals)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := <-signals; got != syscall.SIGHUP {
		t.Errorf("got %v", got)
	}
}
