package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
	"golang.org/x/sys/unix"
)

// helloTimeout and readyTimeout are the protocol's: the hub closes a connection that does not speak in time. Tests
// shorten them.
var (
	helloTimeout = 10 * time.Second //xebec:limit from connecting to HELLO
	readyTimeout = 60 * time.Second //xebec:limit from SEGMENTS to READY
)

// maxPendingHandshakes bounds connections that have not said HELLO. Only the gateway's user can connect, so nothing
// larger is expected than a burst of replicas that start at once.
const maxPendingHandshakes = 256 //xebec:limit workers in a handshake

// acceptRetryDelay is how long to wait after a failed accept. The usual cause is a lack of file descriptors, which
// another component must close, so retrying at once would spin.
const acceptRetryDelay = 50 * time.Millisecond

// DefaultMaxSegmentBytes bounds a segment. It is sixteen times the largest request body and four times
// [worker.MaxBatchBytes], so that a pipeline of two such batches fits after rounding up to size classes.
const DefaultMaxSegmentBytes = 1 << 30 //xebec:limit largest segment; batches that need more end as `too_large`

var (
	_ worker.Transport = (*Hub)(nil)
	_ worker.Replica   = (*Replica)(nil)
	_ worker.Learner   = (*Replica)(nil)
	_                  = [1]struct{}{}[DefaultMaxSegmentBytes-4*worker.MaxBatchBytes]
)

// Poller selects where a replica's socket is watched.
type Poller string

// NetpollPoller handles answers inline in netpoll's poller, RuntimePoller in a goroutine per replica.
const (
	NetpollPoller Poller = "netpoll"
	RuntimePoller Poller = "runtime"
)

// Config configures a hub. Now and Socket are required.
type Config struct {
	// Socket is the path to listen on. The file has mode 0600; Close removes it.
	Socket string
	// Doors is a directory for the sockets of isolated workers ([worker.Expectation].Isolated). It is made with mode
	// 0700 and, like Socket, belongs to this hub alone. Keep its path short: the hub adds 11 bytes, and a socket's path
	// has at most 107. If empty, the hub refuses isolated workers.
	Doors string
	// Now reads the gateway's monotonic clock.
	Now func() api.Nanos
	// Poller is RuntimePoller when empty: the pollers of clients sleep in the same place, so a lone query wakes one thread, not two.
	Poller Poller
	// MaxSegmentBytes bounds each segment of each replica; 1 GiB when 0. Send refuses a batch that needs more as
	// TooLarge.
	MaxSegmentBytes uint64
	// BusyPoll is how long the gateway's side of a ring may spin before it sleeps, while it expects an answer; 0: it sleeps at once. Only
	// RuntimePoller spins: netpoll's poller has other replicas to see to.
	BusyPoll time.Duration
	// SlotBytes bounds the part of each request segment in which inputs are received; DefaultSlotBytes when 0. A quarter of MaxSegmentBytes
	// bounds it, too.
	SlotBytes uint64
	// ShrinkAfter is how long a replica has no batch before segments that have grown become small again; DefaultShrinkAfter when 0.
	ShrinkAfter time.Duration
}

// Hub accepts workers on a unix socket. It is a [worker.Transport].
type Hub struct {
	cfg Config
	ln  *net.UnixListener

	mu          sync.Mutex
	expected    map[string]worker.Expectation
	doors       map[string]*door // open doors, by token
	live        map[*Replica]struct{}
	ended       Bells // of replicas that have ended
	inHandshake map[*net.UnixConn]struct{}
	closed      bool

	spins      spinning
	handshakes chan struct{} // a semaphore: one element per handshake in progress
	wg         sync.WaitGroup
}

// Listen starts accepting workers at cfg.Socket. It replaces the socket file of a gateway that died, and fails if a
// process still listens there.
func Listen(cfg Config) (*Hub, error) {
	if cfg.Poller == "" {
		cfg.Poller = RuntimePoller
	}
	if cfg.MaxSegmentBytes == 0 {
		cfg.MaxSegmentBytes = DefaultMaxSegmentBytes
	}
	if cfg.ShrinkAfter == 0 {
		cfg.ShrinkAfter = DefaultShrinkAfter
	}
	if cfg.SlotBytes == 0 {
		cfg.SlotBytes = DefaultSlotBytes
	}
	if c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: cfg.Socket, Net: "unix"}); err == nil {
		holder := "another gateway"
		if cred, err := peer(c); err == nil { // of the process that listens
			holder = fmt.Sprintf("another gateway, process %d,", cred.Pid)
		}
		c.Close()
		return nil, fmt.Errorf("the worker socket %s is in use: %s runs with the same data directory; choose another --data-dir", cfg.Socket, holder)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		os.Remove(cfg.Socket)
	}
	ln, err := listenPrivate(cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen for workers at %s: %w; --data-dir chooses another directory", cfg.Socket, err)
	}
	if err := cleanDoors(cfg.Doors); err != nil { // only now is it certain that no other gateway uses them
		_ = ln.Close()
		return nil, err
	}
	h := &Hub{cfg: cfg, ln: ln, expected: map[string]worker.Expectation{}, doors: map[string]*door{}, live: map[*Replica]struct{}{}, inHandshake: map[*net.UnixConn]struct{}{}, handshakes: make(chan struct{}, maxPendingHandshakes)}
	h.spins.init()
	h.wg.Add(1)
	go h.accept()
	return h, nil
}

// Bells counts the bells between the hub and all of its replicas, since it was made. No count ever falls.
type Bells struct {
	Rung, Received uint64
}

func (b *Bells) add(r *Replica) {
	b.Rung += r.rung.Load()
	b.Received += r.received.Load()
}

// Bells returns the counts. Replicas without a ring have no bells.
func (h *Hub) Bells() Bells {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.ended
	for r := range h.live {
		b.add(r)
	}
	return b
}

// listenPrivate listens on a socket file of mode 0600. The mode is set before the file exists, so it never has a wider one, not
// even for a moment: Linux makes the file with the mode of the socket (unix(7)), and the process's umask stays as it is.
func listenPrivate(path string) (*net.UnixListener, error) {
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return failed
	}}
	ln, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return ln.(*net.UnixListener), nil
}

// Expect implements [worker.Transport]. The environment that it returns names the socket and a one-time token. An
// isolated worker gets a door.
func (h *Hub) Expect(e worker.Expectation) (env []string, withdraw func() (unused bool), err error) {
	token, socket := newToken(), h.cfg.Socket
	if e.Isolated {
		if socket, err = h.expectAtDoor(token, e); err != nil {
			return nil, nil, fmt.Errorf("make a socket for a worker of %s: %w", e.Model, err)
		}
	} else {
		h.mu.Lock()
		h.expected[token] = e
		h.mu.Unlock()
	}
	env = []string{"XEBEC_SOCKET=" + socket, "XEBEC_TOKEN=" + token, "XEBEC_MODEL=" + e.Model.Name, "XEBEC_VERSION=" + e.Model.Version}
	if e.BusyPoll > 0 {
		env = append(env, fmt.Sprintf("XEBEC_BUSY_POLL=%d", e.BusyPoll.Microseconds()))
	}
	return env, func() bool { return h.withdraw(token) }, nil
}

func newToken() string {
	var b [24]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// withdraw invalidates a token and closes its door if it has one. It reports whether the token was still unused.
func (h *Hub) withdraw(token string) bool {
	h.mu.Lock()
	_, unused := h.expected[token]
	d := h.consumeTokenLocked(token)
	h.mu.Unlock()
	if d != nil {
		d.close()
	}
	return unused
}

// consumeTokenLocked invalidates a token and returns its door, nil if it has none. The caller closes the door after
// releasing h.mu.
func (h *Hub) consumeTokenLocked(token string) *door {
	d := h.doors[token]
	delete(h.expected, token)
	delete(h.doors, token)
	return d
}

// Close stops accepting, ends every connection and returns when all replicas are gone.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	var live []*Replica
	for r := range h.live {
		live = append(live, r)
	}
	for c := range h.inHandshake {
		c.Close()
	}
	doors := h.doors
	h.doors = map[string]*door{}
	h.mu.Unlock()
	err := h.ln.Close()
	for _, d := range doors {
		d.close()
	}
	for _, r := range live {
		r.Kill("the gateway is shutting down")
	}
	h.wg.Wait()
	return err
}

func (h *Hub) accept() {
	defer h.wg.Done()
	for {
		c, err := h.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			timer := time.NewTimer(acceptRetryDelay)
			<-timer.C
			continue
		}
		if uid, err := peerUID(c); err != nil || uid != os.Getuid() {
			c.Close() // cheap and early: an abstract socket has no mode that keeps other users out
			continue
		}
		select {
		case h.handshakes <- struct{}{}:
		default:
			c.Close()
			continue
		}
		h.wg.Add(1)
		go func() {
			defer h.wg.Done()
			h.receive(c, nil, sync.OnceFunc(func() { <-h.handshakes }))
		}()
	}
}

// receive performs the handshake on a new connection and serves the replica until it ends. d is the door that accepted
// the connection, nil for the main socket. receive calls onHello when HELLO has arrived or can no longer arrive.
func (h *Hub) receive(c *net.UnixConn, d *door, onHello func()) {
	h.track(c, true)
	r, refusal := h.handshake(c, d, onHello)
	h.track(c, false)
	onHello()
	if refusal != nil {
		c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(refusal.Append(nil)) // best effort: the connection is closed next
		c.Close()
		return
	}
	if r != nil {
		r.run()
	}
}

// track adds a connection in its handshake to the set that Close closes, or removes it.
func (h *Hub) track(c *net.UnixConn, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !on {
		delete(h.inHandshake, c)
		return
	}
	h.inHandshake[c] = struct{}{}
	if h.closed {
		c.Close()
	}
}

// handshake takes a new connection through HELLO, WELCOME and SEGMENTS. It calls onHello when HELLO has arrived. It
// returns the replica, or the refusal to send, or neither if the connection is already closed.
func (h *Hub) handshake(c *net.UnixConn, d *door, onHello func()) (*Replica, *wire.Refused) {
	c.SetDeadline(time.Now().Add(helloTimeout))
	var p wire.Parser
	typ, payload, err := readFrame(c, &p)
	onHello()
	if err != nil {
		return nil, &wire.Refused{Code: wire.RefusedMalformed, Text: "expected HELLO"}
	}
	var hello wire.Hello
	if typ != wire.TypeHello {
		return nil, &wire.Refused{Code: wire.RefusedViolation, Text: "expected HELLO first"}
	}
	if err := hello.Decode(payload); err != nil {
		return nil, &wire.Refused{Code: wire.RefusedMalformed, Text: err.Error()}
	}
	if hello.Major < 1 {
		return nil, &wire.Refused{Code: wire.RefusedVersion, Text: fmt.Sprintf("protocol version %d.%d: this gateway speaks 1.0 to %d.%d", hello.Major, hello.Minor, wire.Major, wire.Minor)}
	}
	h.mu.Lock()
	e, ok := h.expected[hello.Token]
	ok = ok && h.doors[hello.Token] == d // a token is valid only where it was issued
	if ok && !h.closed {
		h.consumeTokenLocked(hello.Token)
	}
	closed := h.closed
	h.mu.Unlock()
	switch {
	case closed:
		return nil, &wire.Refused{Code: wire.RefusedToken, Text: "the gateway is shutting down"}
	case !ok:
		return nil, &wire.Refused{Code: wire.RefusedToken, Text: "the token is unknown or was used before"}
	}

	if d != nil {
		d.close() // each door is for one worker
	}
	r := newReplica(h, e, hello, c)
	if refusal := h.checkHello(e, hello); refusal != nil {
		r.abandon("refused: "+refusal.Text, false)
		return nil, refusal
	}
	if err := r.start(c, &p); err != nil {
		violated := errors.Is(err, errViolation)
		r.abandon(err.Error(), violated)
		if violated {
			return nil, &wire.Refused{Code: wire.RefusedViolation, Text: err.Error()}
		}
		c.Close()
		return nil, nil
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		r.abandon("the gateway is shutting down", false)
		unix.Close(r.fd) // start has closed c
		return nil, nil
	}
	h.live[r] = struct{}{}
	h.mu.Unlock()
	return r, nil
}

// checkHello checks that the worker serves the launched model version, with the declared signature.
func (h *Hub) checkHello(e worker.Expectation, hello wire.Hello) *wire.Refused {
	if hello.Model != e.Model.Name || hello.Version != e.Model.Version {
		return &wire.Refused{Code: wire.RefusedModel, Text: fmt.Sprintf("the worker serves %s@%s, but was launched for %s", hello.Model, hello.Version, e.Model)}
	}
	if what := tooNew(hello.Major, e.Signature); what != "" {
		return &wire.Refused{Code: wire.RefusedVersion, Text: fmt.Sprintf("%s has %s, which version 1 of the protocol lacks: use a binding that speaks version 2", e.Model, what)}
	}
	if hello.Signature != nil {
		declared := signatureFor(hello.Major, e.Signature)
		if where := signatureDifference(hello.Signature, &declared); where != "" {
			return &wire.Refused{Code: wire.RefusedSignature, Text: where}
		}
	}
	if hello.Major >= 2 && hello.Capabilities&wire.CapStreams != 0 && !e.Streams {
		return &wire.Refused{Code: wire.RefusedSignature, Text: fmt.Sprintf("the worker answers in streams, but %s is not declared so: add stream: true to its manifest", e.Model)}
	}
	return nil
}

func peerUID(c *net.UnixConn) (int, error) {
	cred, err := peer(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// peer returns the credentials of the process at the other end.
func peer(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, cerr
}

// tooNew returns what in the signature a worker of this version does not know; empty: nothing.
func tooNew(major uint16, sig api.Signature) string {
	if major >= 2 {
		return ""
	}
	for _, specs := range [][]api.TensorSpec{sig.Inputs, sig.Outputs} {
		if len(specs) > wire.MaxTensorsV1 {
			return fmt.Sprintf("more than %d inputs or outputs", wire.MaxTensorsV1)
		}
		if slices.ContainsFunc(specs, func(t api.TensorSpec) bool { return t.DType == api.BFloat16 }) {
			return "a tensor of dtype " + api.BFloat16.String()
		}
	}
	return ""
}

// signatureFor is the signature as a worker of this version knows it: version 1 has bytes for strings.
func signatureFor(major uint16, sig api.Signature) api.Signature {
	if major >= 2 {
		return sig
	}
	plain := func(specs []api.TensorSpec) []api.TensorSpec {
		specs = slices.Clone(specs)
		for i := range specs {
			if specs[i].DType == api.String {
				specs[i].DType = api.Bytes
			}
		}
		return specs
	}
	return api.Signature{Inputs: plain(sig.Inputs), Outputs: plain(sig.Outputs)}
}

func signatureDifference(worker, declared *api.Signature) string {
	for _, part := range []struct {
		what             string
		worker, declared []api.TensorSpec
	}{{"input", worker.Inputs, declared.Inputs}, {"output", worker.Outputs, declared.Outputs}} {
		if len(part.worker) != len(part.declared) {
			return fmt.Sprintf("the worker declares %d %ss, xebec.yaml %d", len(part.worker), part.what, len(part.declared))
		}
		for i, d := range part.declared {
			w := part.worker[i]
			if w.Name != d.Name || w.String() != d.String() {
				return fmt.Sprintf("%s %d: the worker declares %s %s, xebec.yaml %s %s", part.what, i, w.Name, w, d.Name, d)
			}
		}
	}
	return ""
}

// readFrame blocks until a frame has arrived. Only the handshake uses it.
func readFrame(c *net.UnixConn, p *wire.Parser) (wire.Type, []byte, error) {
	for {
		typ, payload, ok, err := p.Next()
		if err != nil || ok {
			return typ, payload, err
		}
		n, err := c.Read(p.Space())
		if err != nil {
			return 0, nil, err
		}
		p.Advance(n)
	}
}

// errViolation is wrapped by errors of start that are protocol violations.
var errViolation = errors.New("protocol violation")

// fitsSegment reports whether the largest segment holds a block of n bytes. n may come from a worker.
func (h *Hub) fitsSegment(n uint64) bool {
	slab := shm.SlabOffset(ringEntries)
	return slab <= h.cfg.MaxSegmentBytes && n <= h.cfg.MaxSegmentBytes-slab
}

// start sends WELCOME and the first SEGMENTS and waits for READY.
func (r *Replica) start(c *net.UnixConn, p *wire.Parser) error {
	welcome := wire.Welcome{Major: r.major, Mode: r.mode, Replica: r.exp.Replica, Model: r.exp.Model.Name, Version: r.exp.Model.Version, Signature: signatureFor(r.major, r.exp.Signature)}
	if _, err := c.Write(welcome.Append(nil)); err != nil {
		return fmt.Errorf("send WELCOME: %w", err)
	}
	if r.mode&wire.ModeLines != 0 {
		if err := r.sendLines(c); err != nil {
			return err
		}
	}
	g, err := newGeneration(1, r.firstSizes())
	if err != nil {
		return err
	}
	r.gen = g
	if _, _, err := c.WriteMsgUnix(g.frame(nil), unix.UnixRights(g.a.FD(), g.b.FD()), nil); err != nil {
		return fmt.Errorf("send SEGMENTS: %w", err)
	}
	c.SetDeadline(time.Now().Add(readyTimeout))
	typ, payload, err := readFrame(c, p)
	if errors.Is(err, wire.ErrMalformed) {
		return fmt.Errorf("%w: %w", errViolation, err)
	}
	if err != nil {
		return fmt.Errorf("the worker ended, or was silent for %s, before it was ready: %w", readyTimeout, err)
	}
	var ready wire.Ready
	if typ != wire.TypeReady {
		return fmt.Errorf("%w: expected READY, got %v", errViolation, typ)
	}
	if err := ready.Decode(payload); err != nil || ready.Generation != 1 {
		return fmt.Errorf("%w: expected READY of generation 1", errViolation)
	}
	g.closeFDs()
	c.SetDeadline(time.Time{})
	fd, err := dupNonblocking(c)
	if err != nil {
		return err
	}
	c.Close()
	r.fd, r.parser = fd, p
	return nil
}

// dupNonblocking duplicates the descriptor. The original is registered with the Go runtime's poller, which would watch
// the socket too.
func dupNonblocking(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var derr error
	if err := raw.Control(func(f uintptr) { fd, derr = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return -1, err
	}
	return fd, derr
}
