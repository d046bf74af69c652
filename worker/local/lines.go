package local

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
)

// lines gives a worker connections on which it calls other functions (section 7 of the protocol). The worker asks on a socket of its own, so
// that an answer never waits for what the worker does with batches.
type lines struct {
	ask  *net.UnixConn // the gateway's end of the socket on which the worker asks; nil: the model calls no others
	open atomic.Int32
}

// What is said on that socket, a byte each.
const (
	lineWanted  = 1 // worker: a line, please
	lineGiven   = 1 // gateway: its descriptor comes with this byte
	lineRefused = 0 // gateway: as many as there may be are open, or there is no descriptor left
)

// sendLines sends LINES, and begins to give lines.
func (r *Replica) sendLines(c *net.UnixConn) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return fmt.Errorf("make the socket on which the worker asks for lines: %w", err)
	}
	defer theirs.Close()
	if _, _, err := c.WriteMsgUnix(wire.AppendLines(nil), unix.UnixRights(int(theirs.Fd())), nil); err != nil {
		ours.Close()
		return fmt.Errorf("send LINES: %w", err)
	}
	r.lines.ask = ours
	r.hub.wg.Go(r.giveLines)
	return nil
}

// socketPair makes a connection. The gateway keeps one end, in the runtime's poller, and the worker gets the other one, which blocks.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	own := os.NewFile(uintptr(fds[0]), "line")
	defer own.Close() // FileConn duplicates it
	theirs = os.NewFile(uintptr(fds[1]), "line of a worker")
	conn, err := net.FileConn(own)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// giveLines answers the worker until the socket ends, or the worker says what it must not say. It has no effect on anything else then.
func (r *Replica) giveLines() {
	defer r.lines.ask.Close()
	var asked [worker.MaxLines]byte
	for {
		n, err := r.lines.ask.Read(asked[:])
		if err != nil || len(bytes.Trim(asked[:n], string(rune(lineWanted)))) > 0 {
			return
		}
		for range n {
			if r.giveLine() != nil {
				return
			}
		}
	}
}

// giveLine answers one request for a line.
func (r *Replica) giveLine() error {
	if r.lines.open.Add(1) > worker.MaxLines {
		return r.refuseLine()
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return r.refuseLine()
	}
	defer theirs.Close()
	if _, _, err := r.lines.ask.WriteMsgUnix([]byte{lineGiven}, unix.UnixRights(int(theirs.Fd())), nil); err != nil {
		ours.Close()
		return err
	}
	r.exp.Lines(worker.Line{Conn: ours, From: r, Closed: func() { r.lines.open.Add(-1) }})
	return nil
}

func (r *Replica) refuseLine() error {
	r.lines.open.Add(-1)
	_, err := r.lines.ask.Write([]byte{lineRefused})
	return err
}

// closeLines ends what sendLines has begun. Lines end with the worker's process, which has their other ends.
func (r *Replica) closeLines() {
	if r.lines.ask != nil {
		r.lines.ask.Close()
	}
}

// Origin implements [worker.Caller]. The worker chooses the numbers, but what they stand for is in the gateway's own table.
func (r *Replica) Origin(batch uint64, i int, o *api.Origin) bool {
	o.Reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	queries := r.evaluated(batch, i)
	for k, q := range queries {
		if o.Deadline = max(o.Deadline, q.Deadline); q.Deadline == api.Never {
			o.Deadline = api.Never
		}
		switch {
		case k == 0:
			o.Context = append(o.Context, q.Context...)
			if q.Call != nil {
				o.Call.Set(q.Call)
			}
		case !bytes.Equal(o.Context, q.Context):
			o.Context = o.Context[:0]
		}
		if k > 0 && q.Call != nil {
			o.Call.Chain = api.JoinChains(o.Call.Chain, q.Call.Chain)
		}
	}
	if o.Deadline == api.Never {
		o.Deadline = 0
	}
	return len(queries) > 0
}

// evaluated returns query i of an outstanding batch, or with i below 0 all of them. The lock is held.
func (r *Replica) evaluated(batch uint64, i int) []*api.Query {
	if batch == 0 { // that of batches that have not been sent
		return nil
	}
	e := r.find(batch)
	if e == nil || e.kind != wire.KindPredict {
		return nil
	}
	queries := e.batch.Queries // nothing changes them before the batch is done, and it has left the table then
	if i >= 0 {
		i = min(i, len(queries)-1) // padding is copies of the last one
		queries = queries[i : i+1]
	}
	return queries
}

// CalleeStarts implements [worker.Caller].
func (r *Replica) CalleeStarts(batch uint64, i int, nanos int64) {
	for _, c := range r.tellStarting(batch, i, nanos) {
		c.Replica.CalleeStarts(c.Batch, c.Query, nanos) // without the lock: the causes' replicas have locks of their own
	}
}

// tellStarting tells the queries, and returns their causes.
func (r *Replica) tellStarting(batch uint64, i int, nanos int64) (causes []api.Cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.evaluated(batch, i) {
		if q.Call == nil {
			continue
		}
		if q.Call.Starting != nil {
			q.Call.Starting.CalleeStarts(nanos)
		}
		if q.Call.Cause.Replica != nil {
			causes = append(causes, q.Call.Cause)
		}
	}
	return causes
}
