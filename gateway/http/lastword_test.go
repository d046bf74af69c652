package http

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// longTime is a bound that a test does not reach.
const longTime = time.Hour

func lastWords(f *fixture) { f.lastWord = longTime }

// ending begins the server's end, and waits until it accepts no more. ended waits for the rest.
func (f *fixture) ending() (ended func()) {
	f.t.Helper()
	f.s.lastAnswers = longTime
	end := make(chan error, 1)
	go func() { end <- f.shutdown(context.Background()) }()
	for {
		c, err := net.Dial("tcp", f.addr)
		if err != nil {
			break
		}
		c.Close()
	}
	return func() {
		f.t.Helper()
		select {
		case err := <-end:
			if err != nil {
				f.t.Error(err)
			}
		case <-time.After(time.Minute):
			f.t.Fatal("the server does not end")
		}
	}
}

// askOn sends a request, which is to be answered by 200, and reports whether the answer closes the connection.
func askOn(t *testing.T, c net.Conn, r *bufio.Reader, text string) (closes bool) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return answerOn(t, r)
}

func answerOn(t *testing.T, r *bufio.Reader) (closes bool) {
	t.Helper()
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 {
		t.Fatalf("answered %d, %v: %s", answer.StatusCode, err, text)
	}
	return answer.Close
}

// A connection that is in use closes with an answer: its client does not lose the request that it sends when the server begins to end.
func TestAConnectionInUseClosesWithAnAnswer(t *testing.T) {
	secure, trust := withTLS()
	ask := request("/f/predict", `{"input":[1,2,3,4]}`)
	for name, change := range map[string]func(*fixture){"clear text": func(*fixture) {}, "TLS": secure} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, querytest.Floats4, querytest.Sum, lastWords, change)
			dial := func() (net.Conn, *bufio.Reader) {
				c, r := f.raw()
				if name == "TLS" {
					c = tls.Client(c, trust)
					r = bufio.NewReader(c)
				}
				return c, r
			}
			used, usedReader := dial()
			if askOn(t, used, usedReader, ask) {
				t.Fatal("the first answer closes the connection")
			}
			again, againReader := dial()
			for range 3 {
				askOn(t, again, againReader, ask)
			}
			ended := f.ending()
			if !askOn(t, used, usedReader, ask) || !askOn(t, again, againReader, ask) {
				t.Error("an answer of the end does not close its connection")
			}
			ended()
		})
	}
}

// A client that has sent more than the request with which its connection closes is not reset: it can take the answer, and sees the end.
func TestWhatFollowsTheLastRequestIsDropped(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, lastWords, func(f *fixture) { f.lingers = longTime })
	ask := request("/f/predict", `{"input":[1,2,3,4]}`)
	c, r := f.raw()
	askOn(t, c, r, ask)
	ended := f.ending()
	if !askOn(t, c, r, ask+ask) {
		t.Fatal("the answer does not close the connection")
	}
	for range 3 { // the second would fail if the first had met a closed socket
		if _, err := io.WriteString(c, ask); err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("the connection ends with %q, %v", rest, err)
	}
	c.Close()
	ended()
}

// A request of which a part has come when the server begins to end is received and answered. A quiet connection is closed.
func TestARequestOnItsWayIsAnsweredAtTheEnd(t *testing.T) {
	body := `{"input":[1,2,3,4]}` + strings.Repeat(" ", 1<<20)
	chunked := "POST /f/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n{\"input\":[1,2,3,4]}\r\n0\r\n\r\n"
	for name, text := range map[string]string{
		"a part of the header": request("/f/predict", `{"input":[1,2,3,4]}`)[:30] + "|" + request("/f/predict", `{"input":[1,2,3,4]}`)[30:],
		"a part of a body":     request("/f/predict", body)[:300<<10] + "|" + request("/f/predict", body)[300<<10:],
		"a part of a chunk":    chunked[:80] + "|" + chunked[80:],
	} {
		t.Run(name, func(t *testing.T) {
			first, rest, _ := strings.Cut(text, "|")
			f := serve(t, querytest.Floats4, querytest.Sum)
			quiet, quietReader := f.raw()
			askOn(t, quiet, quietReader, request("/f/predict", `{"input":[1,2,3,4]}`))
			late, lateReader := f.raw()
			if _, err := io.WriteString(late, first); err != nil {
				t.Fatal(err)
			}
			f.wait(func(n int) bool { return n == 2 })
			f.wait(func(int) bool { return !f.unread() }) // nothing of it is in the kernel
			ended := f.ending()
			if _, err := quietReader.ReadByte(); err == nil {
				t.Error("a quiet connection is not closed")
			}
			askOn(t, late, lateReader, rest)
			ended()
		})
	}
}

// unread reports whether a connection has something that was not read.
func (f *fixture) unread() bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for c := range f.s.conns {
		if c.Unread() {
			return true
		}
	}
	return false
}
