package http

import "github.com/xebec-serving/xebec/gateway/query"

// batch is what the handlers that run on a poller have submitted since its last Flush. The lanes are then worked once for all of them.
type batch struct {
	query.Cork
	loop *loop
}

// Flush works the lanes. A defect of one query's answer keeps no other from being worked, and does not end the poller.
func (b *batch) Flush() {
	for !b.release() {
	}
}

func (b *batch) release() (done bool) {
	defer func() {
		if e := recover(); e != nil {
			b.loop.report(e)
		}
	}()
	b.Release()
	return true
}

// cork returns the cork of a request whose handler runs on the poller; nil: the handler has a goroutine.
func (c *conn) cork() *query.Cork {
	if !c.quick {
		return nil
	}
	return &c.Batch().(*batch).Cork
}
