package http

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// While a server drains, connections are answered and closed with their next answer, and AwaitClosed waits for that.
func TestAwaitClosed(t *testing.T) {
	held := make(chan *scheduler.Item, 64)
	first := serve(t, querytest.Floats4, func(it *scheduler.Item) { held <- it })
	ask := request("/f/predict", `{"input":[1,2,3,4]}`)
	busy, busyReader := first.raw()
	io.WriteString(busy, ask)
	inFlight := <-held
	idle, idleReader := first.raw()
	io.WriteString(idle, ask)
	querytest.Sum(<-held)
	readAnswer(t, idleReader)

	first.s.CloseAfterAnswers()
	over, end := context.WithCancel(context.Background())
	end()
	if err := first.s.AwaitClosed(over); err == nil {
		t.Error("two connections are open, and AwaitClosed returns")
	}
	querytest.Sum(inFlight)
	if a := answerOf(t, busyReader); a.StatusCode != 200 {
		t.Errorf("the request in flight is answered %d", a.StatusCode)
	}
	for _, c := range []struct {
		net.Conn
		*bufio.Reader
	}{{busy, busyReader}, {idle, idleReader}} {
		io.WriteString(c.Conn, ask)
		querytest.Sum(<-held)
		if a := answerOf(t, c.Reader); a.StatusCode != 200 || !a.Close {
			t.Errorf("the next request is answered %d, close %v: want 200 and a close", a.StatusCode, a.Close)
		}
		if _, err := c.Reader.ReadByte(); err != io.EOF {
			t.Errorf("after the answer: %v, want the end", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := first.s.AwaitClosed(ctx); err != nil {
		t.Error(err)
	}
}

func answerOf(t *testing.T, r *bufio.Reader) *http.Response {
	t.Helper()
	a, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, a.Body)
	a.Body.Close()
	return a
}
