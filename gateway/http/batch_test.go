package http

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// corkedLane notes which queries had a cork.
type corkedLane struct {
	querytest.Lane
	corked chan bool
}

func (l *corkedLane) SubmitAll(items []*scheduler.Item, cork *driver.Cork) {
	l.corked <- cork != nil
	l.Lane.SubmitAll(items, nil)
}

// Only requests that pollers handle are corked: nothing would release the cork of others.
func TestWhichRequestsAreCorked(t *testing.T) {
	chunked := "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
	for _, c := range []struct {
		what, request string
		reply         ReplyMode
		corked        bool
	}{
		{"small", request("/f/predict", "x", "Content-Type: text/plain\r\n"), ReplyAsync, true},
		{"small, waiting", request("/f/predict", "x", "Content-Type: text/plain\r\n"), ReplyWait, false},
		{"the connection's last", request("/f/predict", "x", "Content-Type: text/plain\r\nConnection: close\r\n"), ReplyAsync, false},
		{"chunked", chunked, ReplyAsync, false},
		{"large", request("/f/predict", strings.Repeat("x", 100<<10), "Content-Type: text/plain\r\n"), ReplyAsync, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := &corkedLane{querytest.Lane{Submit: querytest.Echo}, make(chan bool, 1)}
			f := serve(t, querytest.Bytes, nil, func(f *fixture) { f.reply, f.fn.Candidates[0].Model.Lane = c.reply, l })
			nc, r := f.raw()
			defer nc.Close()
			if _, err := io.WriteString(nc, c.request); err != nil {
				t.Fatal(err)
			}
			if status, body := readAnswer(t, r); status != 200 {
				t.Fatalf("answered %d %s", status, body)
			}
			if corked := <-l.corked; corked != c.corked {
				t.Errorf("corked: %v, want %v", corked, c.corked)
			}
		})
	}
}

// occupied is a dialect whose routes claim that they never block: one occupies its poller, one panics.
type occupied struct {
	native.Dialect
	began, goOn chan struct{}
}

func (o occupied) Routes(*query.Path) []dialect.Route {
	return []dialect.Route{
		{Method: "POST", Path: "/occupy", NonBlocking: true, Serve: func(x dialect.Exchange) {
			o.began <- struct{}{}
			<-o.goOn
			x.Answer(&dialect.Answer{Status: 200})
		}},
		{Method: "POST", Path: "/broken", NonBlocking: true, Serve: func(dialect.Exchange) { panic("a defect") }},
	}
}

// echoReplica answers each batch before Send returns.
type echoReplica struct {
	l       *driver.Lane
	batches atomic.Int32
}

func (r *echoReplica) Send(b *api.Batch) error {
	r.batches.Add(1)
	for _, q := range b.Queries {
		q.Outputs = append(q.Outputs[:0], api.Value{Data: append([]byte(nil), q.Inputs[0].Data...)})
	}
	r.l.BatchDone(1, &api.BatchResult{ID: b.ID, EvalNanos: 1000})
	return nil
}

func (*echoReplica) Kill(string) {}

// The requests that come while a poller is busy share a batch, and each is answered, although handlers among them panic, and others are for
// goroutines.
func TestRequestsOfABatch(t *testing.T) {
	clock := driver.NewClock()
	t.Cleanup(clock.Close)
	lane := driver.NewLane(scheduler.DefaultConfig(), clock)
	lane.AddFunction(1)
	lane.AddFunction(1)
	replica := &echoReplica{l: lane}
	lane.AddReplica(1, replica, 0)
	o := occupied{began: make(chan struct{}), goOn: make(chan struct{})}
	f := serve(t, querytest.Bytes, nil, func(f *fixture) {
		f.fn.Candidates[0].Model.Lane, f.dialects, f.now = lane, []dialect.Dialect{o}, clock.Now
	})
	connect := func() (net.Conn, *bufio.Reader) { // to a poller, which has it when it answers
		nc, r := f.raw()
		io.WriteString(nc, request("/f/predict", "first", "Content-Type: text/plain\r\n"))
		if status, body := readAnswer(t, r); status != 200 {
			t.Fatalf("the first request is answered %d %s", status, body)
		}
		return nc, r
	}
	pollers := max(1, runtime.GOMAXPROCS(0)/2)
	var conns []net.Conn
	var readers []*bufio.Reader
	for range 13 * pollers {
		nc, r := connect()
		conns, readers = append(conns, nc), append(readers, r)
	}
	occupying, before := readers[:pollers], replica.batches.Load() // one connection of each poller: they take turns
	for _, nc := range conns[:pollers] {
		if _, err := io.WriteString(nc, request("/occupy", "x")); err != nil {
			t.Fatal(err)
		}
		<-o.began
	}
	type asked struct {
		r      *bufio.Reader
		status int
		has    string // in its body
	}
	var all []asked
	for i := range 12 * pollers {
		nc, r := conns[pollers+i], readers[pollers+i]
		text := request("/f/predict", fmt.Sprint(i), "Content-Type: text/plain\r\n")
		status, has := 200, fmt.Sprintf(`"output":{"b64":%q}`, base64.StdEncoding.EncodeToString([]byte(fmt.Sprint(i))))
		switch i / pollers {
		case 3:
			text, status, has = request("/broken", "x"), 500, "internal"
		case 5: // for a goroutine
			text = request("/f/predict", fmt.Sprint(i), "Content-Type: text/plain\r\nExpect: 100-continue\r\n")
		case 7: // the second is read when the first has been answered
			text += request("/f/predict", fmt.Sprint(i), "Content-Type: text/plain\r\n")
		}
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatal(err)
		}
		all = append(all, asked{r, status, has})
	}
	for range pollers {
		o.goOn <- struct{}{}
	}
	for _, r := range occupying {
		if status, _ := readAnswer(t, r); status != 200 {
			t.Errorf("the connection of a busy poller is answered %d", status)
		}
	}
	for i, a := range all {
		status, body := readAnswer(t, a.r)
		if status == 100 {
			status, body = readAnswer(t, a.r)
		}
		if status != a.status || !strings.Contains(body, a.has) {
			t.Errorf("request %d is answered %d %s, want %d and %s", i, status, body, a.status, a.has)
		}
		if i/pollers == 7 {
			if status, body := readAnswer(t, a.r); status != a.status || !strings.Contains(body, a.has) {
				t.Errorf("the second request %d is answered %d %s", i, status, body)
			}
		}
	}
	// A poller reads its ten small requests in one batch. Those for goroutines and the second ones may come alone.
	if n, most := int(replica.batches.Load()-before), 3*pollers; n > most {
		t.Errorf("%d batches, want %d at most", n, most)
	}
}

// A query whose answer cannot be made costs its client, and not the poller that releases the cork.
func TestADefectInABatch(t *testing.T) {
	panics := make(chan Panic, 1)
	b := &batch{loop: &loop{Edge: &Edge{Panicked: func(p Panic) { panics <- p }}}}
	clock := driver.NewClock()
	t.Cleanup(clock.Close)
	lane := driver.NewLane(scheduler.DefaultConfig(), clock) // without a replica, it answers a query that is late at once
	lane.AddFunction(1)
	it := new(scheduler.Item)
	it.Owner = defective{}
	it.Query = api.Query{Arrived: clock.Now(), Deadline: 1, Expires: 1}
	lane.SubmitAll([]*scheduler.Item{it}, &b.Cork)
	b.Flush()
	if p := <-panics; p.Value != "a defect" {
		t.Errorf("reported %v", p.Value)
	}
}

type defective struct{}

func (defective) Answered(*scheduler.Item, api.Code) { panic("a defect") }
func (defective) Released(*scheduler.Item, api.Code) {}
