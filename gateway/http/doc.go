// Package http is the gateway's HTTP edge: the listener, connections, limits, and the routes of dialects.
//
// # The way of a request
//
// server.go registers each route of each dialect with Hertz. Connections in clear text belong to the pollers of package poll
// (transport.go, conn.go): few goroutines read all of them, and package http1 says what was read. Framing, limits and deadlines are
// decided there. If a small request is complete and its route never blocks, its handler runs on the poller (quick.go), from the memory
// that the poller has read into. Everything that may block gets a goroutine, which has the connection until its requests are answered
// and reads it with calls that wait (edge.go, receive.go). Connections with TLS and those of the admin port have such a goroutine for
// all their life: [Edge] is Hertz's HTTP/1.1 there, since encryption reads and writes for itself, and the admin port has few clients and
// handlers that block.
//
// A large raw body is received where its model's worker reads it, if the model has room for it (laid.go): the dialect's Reserve finds the
// place when the head has come. Nothing copies the body. Up to 1 MiB its handler runs on the poller, too, and its query gives the place back.
// While other bodies have all places it waits unread for a moment (places.go).
//
// Any other body lies in memory of [Bodies], the one budget of both ports, and is read straight to its place; large ones are mapped and given
// back to the system soon after. A complete request passes Hertz's middlewares and becomes an [exchange]; the dialect parses its
// body into pooled memory and submits it. The handler then returns. It keeps nothing of Hertz's context or body, and the
// poller does not read on until the answer has been written. A handler stays only while a query borrows a large body, or if it must write
// the answer itself: on connections that close after the answer, and while the gateway drains.
//
// The goroutine that ended the last query writes the answer (conn.go): the dialect has rendered it, write.go prepends the
// head, and one non-blocking send on the connection's descriptor writes it. Answers keep the order of requests: a later
// request of the same connection is submitted only after the previous answer has been written.
//
// A body of known length that finds no room in clear text waits for it, in the order of arrival (waiting.go): the poller does not read its
// connection, the kernel's buffer fills, and the client has to wait. It gets 503 only when it has waited for a second, or too many wait.
//
// # What all dialects share
//
// [Limits] bound what clients can make the gateway hold. Requests that two parsers could read differently are refused
// in the dialect's own shape, counted by [Refusals], and end their connection. Unknown paths are answered in the format of
// the dialect whose routes they resemble most, with the same status in all dialects. /healthz and /readyz say whether the gateway is alive and ready.
//
// # What every request and answer has
//
// The first middleware (middleware.go) is the same on the admin port. It reads the fields that are for no dialect in one
// pass over the header (identity.go): X-Request-Id, the trace context, Accept-Encoding and Content-Encoding. A body with
// content codings is decoded before a dialect sees it (encoding.go, package coding). An answer names its request, and is
// compressed if it is large and the client asks; a goroutine of its own does that where the goroutine that ended the query
// writes the answer. HEAD, OPTIONS and other methods are in methods.go.
//
// # Answers in parts
//
// A dialect may render an answer in parts, as its model makes them (parts.go). On a connection of the pollers each part is sent without blocking, as
// a chunk; a goroutine writes what the socket does not take, and the dialect hears of room when that is done, so what waits for a client is at most two parts.
// With TLS, in HTTP/2 and while draining, the handler writes, and waits for parts.
//
// # Web pages
//
// A browser sends requests for any page to any port. guard.go refuses those of pages that may not use the gateway; a
// function's cors (cors.go) says which may, and answers tell the browser so. Requests of programs are told by two missing
// headers.
//
// # Handlers that panic
//
// A panic in a handler is a defect, and costs one request and its connection, on both ports (panic.go): the client gets 500 in the port's
// format, an answer that has begun is cut off, and the operator gets the stack. The memory of the request's body is not used again, because
// queries of the request may still read it. A panic on the goroutine that ends a query ends the process.
//
// # Lines
//
// A server without a listener serves lines (lines.go): connections that the gateway has given to models which call others. [Server.AddLine] takes
// each with its [dialect.Caller], which the dialect finds by [dialect.Line]. All that bounds clients bounds models, apart from them: such a server
// has limits and [Bodies] of its own.
//
// # The end
//
// Where another process takes over, HandOver moves the connections in clear text to it (handover.go), each between two requests: a
// poller sends the descriptor instead of reading it, so what the client has sent by then goes along. The other process counts the
// connection against its own limit before it answers that it has it, and until then it is this one's. Connections with TLS or HTTP/2, and
// all where that process takes none, close with their next answer.
//
// Shutdown stops accepting, waits until every accepted request is answered, and closes the connections. Answers sent meanwhile close theirs;
// a connection without an answer is closed when it has been silent for a second, and nothing of a request has come on it. When a client
// disconnects, its queued queries are cancelled.
//
// # What it never does
//
// It knows no models, no policies and no dialect's JSON. No package behind it sees a type of Hertz. Programs
// do not embed it: callers in the same process use query.Path.Do or dialect.Local.
package http
