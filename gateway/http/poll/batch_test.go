package poll

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// ledger is a batch that notes what it gets, in the order of its poller.
type ledger struct {
	inputs, bytes int
	flushed       chan string // what each flush had
}

func (l *ledger) Flush() {
	if l.inputs > 0 {
		l.flushed <- fmt.Sprintf("%d inputs, %d bytes", l.inputs, l.bytes)
	}
	l.inputs, l.bytes = 0, 0
}

func (l *ledger) wants(t *testing.T, flushes ...string) {
	t.Helper()
	for _, want := range flushes {
		select {
		case got := <-l.flushed:
			if got != want {
				t.Errorf("flushed %s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no flush of %s", want)
		}
	}
}

// All that comes while a poller is busy is one batch, flushed when it has been read, and earlier if it is much.
func TestBatches(t *testing.T) {
	l := &ledger{flushed: make(chan string, 64)}
	g, err := New(Config{Pollers: 1, Now: func() api.Nanos { return 1 }, Batch: func() Batch { return l }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	busy, goOn := make(chan struct{}), make(chan struct{})
	input := func(o *owner, in []byte) {
		b := o.Batch().(*ledger)
		b.inputs++
		b.bytes += len(in)
		if string(in) == "wait" {
			busy <- struct{}{}
			<-goOn
		}
	}
	_, first := pair(t, g, input)
	var rest []io.StringWriter
	for range 2*flushReads + 3 {
		_, peer := pair(t, g, input)
		rest = append(rest, peer)
	}
	send := func(to []io.StringWriter, text string) {
		t.Helper()
		write(t, first, "wait")
		<-busy
		for _, peer := range to {
			if _, err := peer.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
		goOn <- struct{}{}
		l.wants(t, "1 inputs, 4 bytes")
	}
	send(rest[:3], "a")
	l.wants(t, "3 inputs, 3 bytes")
	send(rest, "b")
	l.wants(t, fmt.Sprintf("%d inputs, %[1]d bytes", flushReads), fmt.Sprintf("%d inputs, %[1]d bytes", flushReads), "3 inputs, 3 bytes")
	large := flushBytes/ReadBytes + 1 // inputs until a flush, of this size:
	send(rest[:large+1], strings.Repeat("c", ReadBytes-1))
	l.wants(t, fmt.Sprintf("%d inputs, %d bytes", large, large*(ReadBytes-1)), fmt.Sprintf("1 inputs, %d bytes", ReadBytes-1))
}

// What an owner does when its socket is given back by another goroutine, or is free again, is flushed too.
func TestBatchesOfThePollersInbox(t *testing.T) {
	l := &ledger{flushed: make(chan string, 64)}
	g, err := New(Config{Pollers: 1, Now: func() api.Nanos { return 1 }, Batch: func() Batch { return l }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	held := make(chan struct{}, 1)
	o, peer := pair(t, g, func(o *owner, in []byte) {
		b := o.Batch().(*ledger)
		b.inputs++
		b.bytes += len(in)
		if string(in) == "hold" {
			o.Hold()
			held <- struct{}{}
		}
	})
	write(t, peer, "hold")
	<-held
	l.wants(t, "1 inputs, 4 bytes")
	write(t, peer, "more")
	o.Free()
	l.wants(t, "1 inputs, 4 bytes")
}
