package local_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// doorHub returns a hub with doors, and their directory.
func doorHub(t *testing.T, poller local.Poller) (*local.Hub, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "xebec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	doors := filepath.Join(dir, "d")
	hub, err := local.Listen(local.Config{Socket: filepath.Join(dir, "w"), Doors: doors, Now: workertest.Now, Poller: poller})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hub.Close()
		wantDoors(t, doors, 0)
	})
	return hub, doors
}

func wantDoors(t *testing.T, doors string, n int) {
	t.Helper()
	entries, err := os.ReadDir(doors)
	if err != nil || len(entries) != n {
		t.Errorf("%d doors (%v), expected %d: %v", len(entries), err, n, entries)
	}
}

func socketOf(l *workertest.Launch) string { return lookup(l.Env, "XEBEC_SOCKET") }

func lookup(env []string, name string) string {
	for _, entry := range env {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value
		}
	}
	return ""
}

// A worker connects through its door, which is removed before the worker serves. Strangers that connect before it
// change nothing.
func TestDoorServes(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		hub, doors := doorHub(t, poller)
		l := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 2, Isolated: true})
		wantDoors(t, doors, 1)
		socket := socketOf(l)
		for path, want := range map[string]os.FileMode{socket: 0o666 | os.ModeSocket, filepath.Dir(socket): 0o700 | os.ModeDir, doors: 0o700 | os.ModeDir} {
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("%s: %v %v, expected mode %v", path, info.Mode(), err, want)
			}
		}
		for _, stranger := range []struct {
			send []byte
			code uint16
		}{
			{[]byte("GET / HTTP/1.1\r\n\r\n"), wire.RefusedMalformed},
			{(&wire.Ready{Generation: 1}).Append(nil), wire.RefusedViolation},
			{(&wire.Hello{Major: wire.Major, Token: strings.Repeat("0", 48)}).Append(nil), wire.RefusedToken},
		} {
			w := workertest.DialRaw(t, socket)
			w.Write(stranger.send)
			if code := w.WantRefused(); code != stranger.code {
				t.Errorf("REFUSED %d, expected %d", code, stranger.code)
			}
			w.Close()
		}

		w := workertest.DialRaw(t, socket)
		t.Cleanup(w.Close)
		w.Hello(l.Token(), capabilities)
		w.ReadWelcome()
		wantDoors(t, doors, 0)
		if _, err := net.Dial("unix", socket); err == nil {
			t.Error("the door is still open")
		}
		w.ReadSegments()
		w.Ready()
		s := workertest.NewSession(t, l)
		b := s.Send(workertest.Texts("through", "the door")...)
		req := w.Next()
		w.Respond(w.Outputs(req, w.Inputs(req)))
		s.WantTexts(b, "through", "the door")
		if l.Withdraw() {
			t.Error("the token is unused")
		}
		w.Close()
		s.End()
	})
}

// A token is valid at its own door only: not at another door, not at the main socket. The main socket's tokens are not
// valid at doors.
func TestDoorTokens(t *testing.T) {
	hub, doors := doorHub(t, local.RuntimePoller)
	one := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	two := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	main := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1})
	for _, c := range []struct {
		name, socket, token string
	}{
		{"another door's token", socketOf(one), two.Token()},
		{"the main socket's token", socketOf(one), main.Token()},
		{"a door's token at the main socket", socketOf(main), one.Token()},
	} {
		w := workertest.DialRaw(t, c.socket)
		w.Hello(c.token, wire.CapRing)
		if code := w.WantRefused(); code != wire.RefusedToken {
			t.Errorf("%s: REFUSED %d", c.name, code)
		}
		w.Close()
	}
	wantDoors(t, doors, 2)
	for _, l := range []*workertest.Launch{one, two, main} {
		if !l.Withdraw() {
			t.Error("a token was consumed where it is not valid")
		}
	}
	wantDoors(t, doors, 0)
	if _, err := net.Dial("unix", socketOf(one)); err == nil {
		t.Error("the door of a withdrawn launch is open")
	}
}

// A connection that stays silent at a door delays only the connections behind it at that door.
func TestDoorSilence(t *testing.T) {
	local.ShortenHandshake(t, 50*time.Millisecond, time.Minute)
	hub, doors := doorHub(t, local.RuntimePoller)
	l := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	silent := workertest.DialRaw(t, socketOf(l))
	t.Cleanup(silent.Close)
	w := workertest.DialRaw(t, socketOf(l))
	t.Cleanup(w.Close)
	w.Hello(l.Token(), wire.CapRing)
	silent.WantRefused()
	w.ReadWelcome()
	w.ReadSegments()
	w.Ready()
	s := workertest.NewSession(t, l)
	wantDoors(t, doors, 0)
	w.Close()
	s.End()
}

// Closing a hub removes its doors, including one with a handshake in progress.
func TestDoorClose(t *testing.T) {
	hub, doors := doorHub(t, local.NetpollPoller)
	open := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	greeted := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	w := workertest.DialRaw(t, socketOf(greeted))
	t.Cleanup(w.Close)
	mapping := workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	v := workertest.DialRaw(t, socketOf(mapping))
	t.Cleanup(v.Close)
	v.Hello(mapping.Token(), wire.CapRing)
	v.ReadWelcome()
	hub.Close()
	mapping.Events.WaitGone(t)
	wantDoors(t, doors, 0)
	if !open.Withdraw() || !greeted.Withdraw() {
		t.Error("an unused token is gone")
	}
	if _, _, err := hub.Expect(worker.Expectation{Isolated: true}); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("a door of a closed hub: %v", err)
	}
}

// The number of doors is bounded, and errors say what to do.
func TestDoorLimits(t *testing.T) {
	hub, doors := doorHub(t, local.RuntimePoller)
	for range local.MaxDoors {
		workertest.Expect(t, hub, worker.Expectation{Signature: workertest.Text(), Depth: 1, Isolated: true})
	}
	if _, _, err := hub.Expect(worker.Expectation{Model: workertest.Model, Isolated: true}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(local.MaxDoors)) {
		t.Errorf("one door too many: %v", err)
	}
	wantDoors(t, doors, local.MaxDoors)

	dir := t.TempDir()
	for part, cfg := range map[string]local.Config{
		"choose a shorter --data-dir": {Socket: filepath.Join(dir, "a"), Doors: filepath.Join(dir, strings.Repeat("x", 90))},
		"Config.Doors":                {Socket: filepath.Join(dir, "b")},
	} {
		cfg.Now = workertest.Now
		h, err := local.Listen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.Expect(worker.Expectation{Model: workertest.Model, Isolated: true}); err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), workertest.Model.String()) {
			t.Errorf("%v: expected %q", err, part)
		}
		h.Close()
	}
}

// Listen removes what a killed gateway has left behind, and nothing else.
func TestDoorLeftovers(t *testing.T) {
	dir, err := os.MkdirTemp("", "xebec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	doors := filepath.Join(dir, "d")
	for _, sub := range []string{"00000001", "00000002", "00000003", "kept"} {
		if err := os.MkdirAll(filepath.Join(doors, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(doors, "00000001", "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if err := os.WriteFile(filepath.Join(doors, "00000002", "s"), []byte("a person's"), 0o600); err != nil {
		t.Fatal(err)
	}
	hub, err := local.Listen(local.Config{Socket: filepath.Join(dir, "w"), Doors: doors, Now: workertest.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	entries, _ := os.ReadDir(doors)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "00000002 kept" {
		t.Errorf("left: %s", got)
	}
}
