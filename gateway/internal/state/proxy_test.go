package state

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
)

// lossy is a proxy in front of a server that drops answers on request.
type lossy struct {
	listener net.Listener
	lose     chan struct{} // a token in it makes the proxy drop the next answer and close its connection
	on       atomic.Pointer[trigger]
}

// A trigger is called once, before the proxy passes on the next request that has what as an argument.
type trigger struct {
	what string
	call func()
}

func startLossy(t *testing.T, server string, listener net.Listener) *lossy {
	p := &lossy{listener: listener, lose: make(chan struct{}, 1)}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go p.pass(client, upstream, false)
			go p.pass(upstream, client, true)
		}
	}()
	return p
}

func mustListen(t *testing.T) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (p *lossy) pass(from, to net.Conn, answers bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if next := p.on.Load(); !answers && next != nil && bytes.Contains(buffer[:n], []byte("\r\n"+next.what+"\r\n")) {
			p.on.CompareAndSwap(next, nil)
			next.call()
		}
		if answers {
			select {
			case <-p.lose:
				return
			default:
			}
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
