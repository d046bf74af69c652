package poll

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner passes what happens to a test, which says what to do with input.
type owner struct {
	Socket
	input  func(o *owner, in []byte)
	events chan string
}

func (o *owner) Input(in []byte, _ api.Nanos) { o.input(o, in) }
func (o *owner) Ended()                       { o.events <- "ended"; o.Close() }
func (o *owner) Expired(api.Nanos)            { o.events <- "expired" }
func (o *owner) Left()                        { o.events <- "left" }
func (o *owner) Closed()                      { o.events <- "closed" }

func group(t *testing.T, n int) *Group {
	t.Helper()
	began := time.Now()
	g, err := New(Config{Pollers: n, Now: func() api.Nanos { return api.Nanos(time.Since(began)) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// pair makes a socket of the group, and its peer.
func pair(t *testing.T, g *Group, input func(*owner, []byte)) (*owner, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := os.NewFile(uintptr(fds[1]), "peer")
	if err := peer.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	o := &owner{input: input, events: make(chan string, 64)}
	if err := g.Adopt(&o.Socket, fds[0], &net.UnixAddr{Name: "here"}, &net.UnixAddr{Name: "there"}, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close(); peer.Close() })
	return o, peer
}

func (o *owner) wants(t *testing.T, event string) {
	t.Helper()
	select {
	case got := <-o.events:
		if got != event {
			t.Fatalf("%s, want %s", got, event)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not come", event)
	}
}

func reads(t *testing.T, from io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v, want %q", got, err, want)
	}
}

func write(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

func echo(o *owner, in []byte) { o.Send(in) }

func TestPollersServeManySockets(t *testing.T) {
	g := group(t, 2)
	var peers sync.WaitGroup
	for i := range 300 { // more than a batch of events
		_, peer := pair(t, g, echo)
		peers.Go(func() {
			for n := range 5 {
				text := fmt.Sprintf("%d of %d", n, i)
				write(t, peer, text)
				reads(t, peer, text)
			}
		})
	}
	peers.Wait()
}

// More than a poller reads at a time comes without another event of the kernel.
func TestAllIsRead(t *testing.T) {
	var mu sync.Mutex
	var got bytes.Buffer
	o, peer := pair(t, group(t, 1), func(o *owner, in []byte) {
		mu.Lock()
		defer mu.Unlock()
		got.Write(in)
	})
	sent := bytes.Repeat([]byte("0123456789abcdef"), 20*ReadBytes/16)
	if _, err := peer.Write(sent); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	o.wants(t, "ended")
	o.wants(t, "closed")
	mu.Lock()
	defer mu.Unlock()
	if !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes came of %d, or others", got.Len(), len(sent))
	}
}

// While a socket is held the poller reads nothing, and says when the peer leaves. Free reads on, also what was kept.
func TestHold(t *testing.T) {
	inputs := make(chan string, 8)
	o, peer := pair(t, group(t, 1), func(o *owner, in []byte) {
		inputs <- string(in[:1])
		o.Hold()
		o.Keep(in[1:])
	})
	write(t, peer, "abc")
	for _, want := range []string{"a", "b", "c"} {
		if got := <-inputs; got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		if want == "c" {
			write(t, peer, "d")
		}
		o.Free()
	}
	if got := <-inputs; got != "d" {
		t.Fatalf("%q, want d", got)
	}
	peer.Close()
	o.wants(t, "left")
	o.Free()
	o.wants(t, "ended")
	o.wants(t, "closed")
}

// A socket that is held twice is read after both were undone.
func TestHoldTwice(t *testing.T) {
	inputs := make(chan string, 8)
	o, peer := pair(t, group(t, 1), func(o *owner, in []byte) {
		inputs <- string(in)
		o.Hold()
		o.Hold()
		o.Wake()
	})
	write(t, peer, "a")
	<-inputs
	o.Free()
	write(t, peer, "b")
	o.wants(t, "expired")
	o.Wake() // after the poller has seen b, if it would read it
	o.wants(t, "expired")
	select {
	case got := <-inputs:
		t.Errorf("%q was read", got)
	default:
	}
	o.Free()
	if got := <-inputs; got != "b" {
		t.Errorf("%q, want b", got)
	}
	o.Free()
	o.Free()
}

// A goroutine returns a socket that stays held: what was kept is not passed on before Free, and the poller looks at it once.
func TestYield(t *testing.T) {
	inputs := make(chan string, 8)
	o, peer := pair(t, group(t, 1), func(o *owner, in []byte) {
		inputs <- string(in[:1])
		if in[0] != 'a' {
			return
		}
		o.Keep(in[1:])
		o.Take()
		go func() {
			o.Hold()
			o.Yield()
		}()
	})
	write(t, peer, "abc")
	<-inputs
	o.wants(t, "expired")
	if o.Gone() || len(inputs) > 0 {
		t.Error("it is read, or its peer has left")
	}
	o.Free()
	if got := <-inputs; got != "b" {
		t.Errorf("%q, want b", got)
	}
	peer.Close()
	o.wants(t, "ended")
	o.wants(t, "closed")
	if !o.Gone() {
		t.Error("its peer has not left")
	}
}

// A goroutine that has taken a socket waits without the poller, and gives it back when nothing is to be read.
func TestTake(t *testing.T) {
	steps := make(chan string, 8)
	o, peer := pair(t, group(t, 1), func(o *owner, in []byte) {
		if in[0] == 'p' {
			echo(o, in)
			return
		}
		o.Keep(in)
		o.Take()
		go func() {
			b := make([]byte, 8)
			if _, err := io.ReadFull(o, b); err != nil {
				steps <- err.Error()
			}
			o.SetReadTimeout(time.Millisecond)
			_, err := o.Peek(1)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				steps <- fmt.Sprint("a read without bytes: ", err)
			}
			if !o.Give() {
				steps <- "nothing is to be read, and the goroutine keeps the socket"
			}
			steps <- string(b)
		}()
	})
	write(t, peer, "goro")
	write(t, peer, "utin")
	if got := <-steps; got != "goroutin" {
		t.Fatal(got)
	}
	write(t, peer, "poller")
	reads(t, peer, "poller")
	peer.Close()
	o.wants(t, "ended")
	o.wants(t, "closed")
}

// A write that does not fit waits for the peer, or until its time is over, or for Close.
func TestWritesWait(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 8<<20)
	results := make(chan error, 8)
	o, peer := pair(t, group(t, 1), func(o *owner, _ []byte) {
		o.Take()
		go func() {
			_, err := o.Write(large)
			results <- err
			o.SetWriteTimeout(time.Millisecond)
			o.WriteBinary(large)
			results <- o.Flush()
			o.SetWriteTimeout(0)
			_, err = o.Write(large)
			results <- err
			o.Leave()
		}()
	})
	write(t, peer, "x")
	reads(t, peer, string(large))
	if err := <-results; err != nil {
		t.Error(err)
	}
	if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write that nothing reads: %v", err)
	}
	o.Close()
	if err := <-results; !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write on a closed socket: %v", err)
	}
	o.wants(t, "closed")
}

// Alarms come in their time, an earlier one replaces a later one, and none comes to a goroutine that has the socket.
func TestAlarms(t *testing.T) {
	g := group(t, 1)
	o, peer := pair(t, g, func(o *owner, _ []byte) { o.Take(); o.events <- "taken" })
	began := g.now()
	o.Alarm(began + api.Nanos(time.Hour))
	o.Alarm(began + api.Nanos(20*time.Millisecond))
	o.wants(t, "expired")
	if passed := time.Duration(g.now() - began); passed < 20*time.Millisecond {
		t.Errorf("it came after %v", passed)
	}
	write(t, peer, "x")
	o.wants(t, "taken")
	o.Alarm(g.now())
	other, _ := pair(t, g, echo)
	other.Alarm(g.now() + api.Nanos(20*time.Millisecond))
	other.wants(t, "expired")
	o.Close()
	o.Leave()
	o.wants(t, "closed") // and not expired
}

// A closed socket's place is used again, and its successor hears nothing of it.
func TestPlacesAreUsedAgain(t *testing.T) {
	g := group(t, 1)
	for range 100 {
		o, peer := pair(t, g, echo)
		write(t, peer, "x")
		reads(t, peer, "x")
		o.Close()
		o.wants(t, "closed")
		peer.Close()
	}
	g.pollers[0].mu.Lock()
	defer g.pollers[0].mu.Unlock()
	if n := len(g.pollers[0].slots); n > 2 {
		t.Errorf("%d places for one socket at a time", n)
	}
}

// Bytes go where the owner says, also where they fill the place exactly.
func TestPlace(t *testing.T) {
	place := make([]byte, 3*ReadBytes)
	got := make(chan int, 64)
	have := 0
	_, peer := pair(t, group(t, 1), func(o *owner, in []byte) {
		if have > 0 && &in[0] != &place[have] {
			t.Error("the bytes are elsewhere")
		} else if have == 0 {
			copy(place, in)
		}
		have += len(in)
		if have < len(place) {
			o.Place(place[have:])
		} else {
			o.Send([]byte("!"))
		}
		got <- have
	})
	write(t, peer, "x")
	<-got
	sent := bytes.Repeat([]byte("y"), len(place)-1)
	if _, err := peer.Write(sent); err != nil {
		t.Fatal(err)
	}
	reads(t, peer, "!")
	for <-got < len(place) {
	}
	if place[0] != 'x' || !bytes.Equal(place[1:], sent) {
		t.Error("other bytes came")
	}
}

// A socket may be closed, and asked what it has, before it is adopted: its server already knows it. Adopt then closes the descriptor.
func TestCloseBeforeAdopt(t *testing.T) {
	g := group(t, 1)
	for range 50 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		peer := os.NewFile(uintptr(fds[1]), "peer")
		o := &owner{events: make(chan string, 4)}
		if !o.Unread() {
			t.Error("a socket that is about to be adopted counts as quiet")
		}
		if o.Offer() {
			t.Error("a socket that is about to be adopted can be passed on")
		}
		closed := make(chan error, 1)
		go func() { _ = o.Unread(); closed <- o.Close() }()
		adopted := g.Adopt(&o.Socket, fds[0], nil, nil, o)
		if err := <-closed; err != nil {
			t.Fatalf("Close: %v", err)
		}
		if adopted != nil && !errors.Is(adopted, net.ErrClosed) {
			t.Errorf("Adopt: %v", adopted)
		} else if adopted == nil {
			o.wants(t, "closed")
		}
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the peer reads %v, expected the end", err)
		}
		peer.Close()
	}
}
