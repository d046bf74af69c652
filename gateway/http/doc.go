// Package http is the gateway's HTTP edge: the listener, connections, limits, and the routes of dialects.
//
// # The way of a request
//
// server.go gives each route of each dialect to Hertz. A request that Hertz has read passes the framing check (framing.go) and becomes
// an [exchange]; the dialect parses its body into pooled memory and submits it. The handler returns then: nothing of Hertz's context
// or body is kept, and the connection may read ahead. A handler stays only while a query borrows a large body, or where it must write
// the answer itself: on connections that end with it, and while the gateway drains.
//
// The answer is written by whatever goroutine ended the last query (conn.go): the dialect has rendered it, write.go puts the head before
// it, and one non-blocking send on the connection's descriptor takes it away. Answers keep the order of requests: a later request of
// the same connection waits before it is submitted, until the answer before it has been written.
//
// # What all dialects share
//
// [Limits] bound what a client can make the gateway hold. Requests whose length two parsers could read differently are refused. Paths that
// no route has are answered in the shape of the dialect whose routes they resemble most, with the same status everywhere. /healthz and
// /readyz say whether the gateway lives and is ready.
//
// # The end
//
// Shutdown stops accepting, waits until every accepted request has its answer, and closes the connections. A client that goes away
// cancels what is still queued for it.
//
// # What it never does
//
// It knows no model, no JSON of a dialect and no policy. Hertz's types, and netpoll's, end here. It is not to be embedded: callers of the
// same process use query.Path.Do or dialect.Local.
package http
