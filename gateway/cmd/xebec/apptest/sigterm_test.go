package apptest

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lastWord is how long a connection is silent before a gateway that stops closes it.
const lastWord = time.Second

// SIGTERM without a lame duck costs clients no request: not those that keep their connections and go on sending, nor those whose new
// connection the kernel has accepted. Each kept connection is told to close by an answer.
func TestSIGTERMLosesNoRequest(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("m", "echo"), function("f", "m", "slo: 60s")))
	const keep, fresh = 16, 4
	request := "POST /f/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"input\":7}"
	ask := func(c net.Conn, r *bufio.Reader) (closes bool, err error) {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, request); err != nil {
			return false, err
		}
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != 200 {
			t.Errorf("a request is answered %d: %s", answer.StatusCode, text)
		}
		return answer.Close, err
	}
	var clients sync.WaitGroup
	var answered atomic.Int64
	busy := make(chan struct{}, keep+fresh)
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.DialTimeout("tcp", g.functions, patience)
		if err != nil {
			return nil, nil
		}
		return c, bufio.NewReader(c)
	}
	for i := range keep {
		clients.Go(func() {
			c, r := dial()
			if c == nil {
				t.Error("the port refuses a connection before SIGTERM")
				busy <- struct{}{}
				return
			}
			defer c.Close()
			before := time.Now()
			for n := 0; ; n++ {
				sent := time.Now()
				closes, err := ask(c, r)
				if err != nil && time.Since(before) < lastWord { // otherwise this client was silent for longer: the machine is busy
					t.Errorf("a kept connection ended without a word, after %d answers: %v", n, err)
				}
				if err == nil {
					answered.Add(1)
				}
				if n == 10 || err != nil && n < 10 {
					busy <- struct{}{}
				}
				if closes || err != nil {
					return
				}
				before = sent
				<-time.After(time.Duration(rand.IntN(1+i)) * time.Millisecond) // what a client does between two requests
			}
		})
	}
	for range fresh {
		clients.Go(func() {
			for n := 0; ; n++ {
				if n == 10 {
					busy <- struct{}{}
				}
				began := time.Now()
				c, r := dial()
				if c == nil {
					return
				}
				_, err := ask(c, r)
				c.Close()
				if err != nil && time.Since(began) >= lastWord {
					return
				}
				if err != nil {
					t.Errorf("a new connection is not answered: %v", err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range keep + fresh {
		<-busy
	}
	began := time.Now()
	g.signal(syscall.SIGTERM)
	clients.Wait()
	g.gone(0)
	t.Logf("%d answers; the gateway has ended %v after the signal", answered.Load(), time.Since(began))
	if strings.Contains(g.logText(), "ERROR") {
		t.Error(g.logText())
	}
}
