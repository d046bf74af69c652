package worker

import (
	"io"

	"github.com/xebec-serving/xebec/api"
)

// MaxLines bounds the open lines of a replica. A model that waits for more calls at a time than this lets some of them wait.
const MaxLines = 64 //xebec:limit connections of a replica on which its model calls others

// Line is a connection that a worker has opened to call a function of the gateway. What comes on it is the worker's word, but From is not: it
// is the replica that the connection was given to.
type Line struct {
	Conn io.ReadWriteCloser
	From Caller
	// Closed must be called once, when the connection has been closed.
	Closed func()
}

// Caller is a replica that makes calls.
type Caller interface {
	// Origin reports what is known of a query that the replica evaluates: query i of the batch with that number on the wire, or the whole batch
	// if i is negative. It returns false, and o is as Reset leaves it, if the batch is not outstanding. It does not block, and any goroutine may
	// call it.
	Origin(batch uint64, i int, o *api.Origin) bool
	// CalleeStarts tells the same queries, and those that they were made for: see [api.Identity]. It has no effect if the batch is not
	// outstanding.
	CalleeStarts(batch uint64, i int, nanos int64)
}
