package apptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// keptConn is a client's connection that it does not open again.
type keptConn struct {
	net.Conn
	from *bufio.Reader
}

func (u *upgradable) keep() *keptConn {
	u.t.Helper()
	c, err := net.Dial("tcp", u.functions)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { c.Close() })
	return &keptConn{c, bufio.NewReader(c)}
}

// ask asks function g. The answer must be right, and leave the connection open.
func (c *keptConn) ask(n int) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	body := fmt.Sprintf(`{"input":%d}`, n)
	if _, err := fmt.Fprintf(c, "POST /g/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return err
	}
	r, err := http.ReadResponse(c.from, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var a prediction
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		return err
	}
	if r.StatusCode != 200 || r.Close || string(a.Output) != strconv.Itoa(n) {
		return fmt.Errorf("query %d: %d %s, close %v", n, r.StatusCode, a.Output, r.Close)
	}
	return nil
}

// Clients that keep their connections do not notice an upgrade, nor the next one: idle connections and those in use go to the new process,
// no answer closes one, and the old process ends although all of them are open.
func TestUpgradeKeepsConnections(t *testing.T) {
	t.Parallel()
	u := serveUpgradable(t, "--drain-timeout", "1m")
	var idle, busy []*keptConn
	for i := range 20 {
		c := u.keep()
		if i%4 > 0 { // the others have not sent anything yet
			if err := c.ask(i); err != nil {
				t.Fatal(err)
			}
		}
		idle = append(idle, c)
	}
	for range 4 {
		busy = append(busy, u.keep())
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	var asked atomic.Int64
	for _, c := range busy {
		asking.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.ask(n); err != nil {
					t.Errorf("a connection in use: %v", err)
					return
				}
				asked.Add(1)
			}
		})
	}
	halt := sync.OnceFunc(func() { close(stop); asking.Wait() })
	t.Cleanup(halt)
	more := func() {
		t.Helper()
		until := asked.Load() + 100
		u.await("more answers", func(context.Context) (bool, string) {
			return t.Failed() || asked.Load() >= until, fmt.Sprint(asked.Load())
		})
	}
	more()
	for i := range 2 {
		before := u.pid
		if r := u.upgrade()(); r.status != 0 || u.pid == before {
			t.Fatalf("upgrade %d: status %d %s%s", i, r.status, r.out, r.err)
		}
		if i == 0 {
			u.oldEnds()
		} else {
			u.await("the second process to end", func(context.Context) (bool, string) {
				return errors.Is(syscall.Kill(before, 0), syscall.ESRCH), ""
			})
		}
		more()
		for n, c := range idle {
			if n%2 == i { // the others stay idle, in the first upgrade
				continue
			}
			if err := c.ask(n); err != nil {
				t.Errorf("an idle connection after upgrade %d: %v", i, err)
			}
		}
	}
	halt()
	for n, c := range append(idle, busy...) {
		if err := c.ask(n); err != nil {
			t.Errorf("connection %d at the end: %v", n, err)
		}
	}
	t.Logf("%d answers on 4 connections", asked.Load())
}
