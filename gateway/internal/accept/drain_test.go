package accept

import (
	"net"
	"testing"
	"time"
)

// What has connected before Drain is accepted, and nothing connects after it.
func TestDrain(t *testing.T) {
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(ln, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted := make(chan net.Conn, 8)
	for range 3 {
		dial(t, l)
	}
	if n := l.waiting(); n != 3 {
		t.Fatalf("%d connections wait in the kernel's queue, expected 3", n)
	}
	drained := make(chan struct{})
	go func() { l.Drain(); close(drained) }()
	for range 3 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted <- c
	}
	<-drained
	late := net.Dialer{Timeout: 100 * time.Millisecond}
	if c, err := late.Dial("tcp", l.Addr().String()); err == nil {
		t.Errorf("a connection began after Drain: %v", c.LocalAddr())
		c.Close()
	}
	for range 3 {
		(<-accepted).Close()
	}
}
