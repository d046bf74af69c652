package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
)

// Two goroutines park on their end of a socket pair whenever their ring is empty. A lost wake-up would leave both
// parked, and the test would never end.
func TestStressTwoGoroutines(t *testing.T) {
	const entries, messages = 16, 200_000
	segs := newPair(t, entries, 64<<10)
	x, y, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	gateway, err := newSide(segs.a, segs.b, x)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := newSide(segs.workerB, segs.workerA, y)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- echo(worker)
		y.Close()
	}()
	if err := newExchange(gateway).run(messages); err != nil {
		t.Error(err)
	}
	x.Close()
	if err := <-done; !errors.Is(err, errHungUp) {
		t.Errorf("the worker ended with %v: expected the hang-up", err)
	}
	t.Logf("gateway: %d sleeps, %d bells; worker: %d sleeps, %d bells", gateway.sleeps, gateway.bells, worker.sleeps, worker.bells)
}

// The race detector sees the order through the ring: the goroutine that pushed a request and the one that popped the
// answer share private memory of the process, here a plain slice without a lock.
func TestPushHappensBeforePopOfTheAnswer(t *testing.T) {
	const messages = 10_000
	segs := newPair(t, MinEntries, 4096)
	p, c := NewProducer(segs.a, segs.b), NewConsumer(segs.a, segs.b)
	peerP, peerC := NewProducer(segs.workerB, segs.workerA), NewConsumer(segs.workerB, segs.workerA)
	table := make([]uint64, messages)
	room := make(chan struct{}, MinEntries) // filled by the answering goroutine, so it does not order the reads of table
	for range MinEntries {
		room <- struct{}{}
	}
	answered := make(chan error, 1)
	echoed := make(chan error, 1)
	go func() { // the peer: spins, because a socket would order the accesses
		var d Descriptor
		for n := 0; n < messages; {
			ok, err := peerC.Pop(&d, MinEntries)
			if err != nil {
				echoed <- err
				return
			}
			if !ok {
				runtime.Gosched()
				continue
			}
			peerP.Push(&d)
			n++
		}
		echoed <- nil
	}()
	go func() {
		var d Descriptor
		for n := uint64(0); n < messages; {
			ok, err := c.Pop(&d, MinEntries)
			if err != nil {
				answered <- err
				return
			}
			if !ok {
				runtime.Gosched()
				continue
			}
			if i := binary.LittleEndian.Uint64(d[:]); i != n || table[i] != i+1 {
				answered <- fmt.Errorf("answer %d names request %d", n, i)
				return
			}
			n++
			room <- struct{}{}
		}
		answered <- nil
	}()
	for n := range uint64(messages) {
		<-room
		var d Descriptor
		table[n] = n + 1
		binary.LittleEndian.PutUint64(d[:], n)
		p.Push(&d)
	}
	if err := errors.Join(<-answered, <-echoed); err != nil {
		t.Error(err)
	}
}

// The protocol of these tests: a request is { number, input offset, input length, output offset }. The worker copies
// the input block in A to the output block in B and sends the request back as its response.
type message struct{ n, in, length, out uint64 }

func (m message) put(d *Descriptor) {
	for i, v := range [...]uint64{m.n, m.in, m.length, m.out} {
		binary.LittleEndian.PutUint64(d[i*8:], v)
	}
}

func getMessage(d *Descriptor) (m message) {
	for i, v := range [...]*uint64{&m.n, &m.in, &m.length, &m.out} {
		*v = binary.LittleEndian.Uint64(d[i*8:])
	}
	return m
}

// echo is the worker: it answers each request until the peer hangs up.
func echo(s *side) error {
	var d Descriptor
	for {
		// One bell for a run of responses: ring when the request ring is found empty.
		if err := s.next(&d, s.entries, s.bell); err != nil {
			return err
		}
		m := getMessage(&d)
		copy(s.own[m.out:m.out+m.length], s.peer[m.in:m.in+m.length])
		s.Push(&d)
	}
}

// exchange is the gateway: it sends requests in bursts and checks the answer to each, in order.
type exchange struct {
	*side
	inputs, outputs *Slab
	pending         []pending // a ring of the unanswered requests
	sent, got       uint64
}

type pending struct {
	message
	in, out Block
}

func newExchange(s *side) *exchange {
	start := SlabOffset(int(s.entries))
	slab := func(b []byte) *Slab { return NewSlab(start, uint64(len(b))-start) }
	return &exchange{side: s, inputs: slab(s.own), outputs: slab(s.peer), pending: make([]pending, s.entries)}
}

// run exchanges the given number of further messages. Bursts and the number of awaited answers vary all the time, so
// that both sides fall asleep at every possible moment.
func (x *exchange) run(messages uint64) error {
	nothing := func() error { return nil }
	last := x.sent + messages
	var d Descriptor
	for turn := x.sent; x.got < last; turn = turn*5 + 3 {
		for n := turn%x.entries + 1; n > 0 && x.sent-x.got < x.entries && x.sent < last; n-- {
			if err := x.send(); err != nil {
				return err
			}
		}
		if err := x.bell(); err != nil {
			return fmt.Errorf("after %d messages: %w", x.got, err)
		}
		for n := turn / x.entries % (x.sent - x.got); ; n-- {
			if err := x.next(&d, x.sent-x.got, nothing); err != nil {
				return fmt.Errorf("after %d messages: %w", x.got, err)
			}
			if err := x.take(&d); err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}

// fill returns word i of the input of message n.
func fill(n, i uint64) uint64 { return (n+1)*0x9e3779b97f4a7c15 + i }

func (x *exchange) send() error {
	length := x.sent%37*8 + 8
	in, okIn := x.inputs.Alloc(length)
	out, okOut := x.outputs.Alloc(length)
	if !okIn || !okOut {
		return fmt.Errorf("no room for message %d: %d and %d bytes in use", x.sent, x.inputs.InUse(), x.outputs.InUse())
	}
	for i := uint64(0); i < length; i += 8 {
		binary.LittleEndian.PutUint64(x.own[in.Off+i:], fill(x.sent, i))
	}
	p := pending{message{n: x.sent, in: in.Off, length: length, out: out.Off}, in, out}
	x.pending[x.sent%x.entries] = p
	var d Descriptor
	p.put(&d)
	x.Push(&d)
	x.sent++
	return nil
}

func (x *exchange) take(d *Descriptor) error {
	p := x.pending[x.got%x.entries]
	if m := getMessage(d); m != p.message {
		return fmt.Errorf("answer %d is %+v: expected %+v", x.got, m, p.message)
	}
	for i := uint64(0); i < p.length; i += 8 {
		if got, want := binary.LittleEndian.Uint64(x.peer[p.message.out+i:]), fill(p.n, i); got != want {
			return fmt.Errorf("byte %d of answer %d: %#x: expected %#x", i, x.got, got, want)
		}
	}
	x.inputs.Free(p.in)
	x.outputs.Free(p.out)
	x.got++
	return nil
}
