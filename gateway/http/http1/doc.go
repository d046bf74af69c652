// Package http1 parses HTTP/1.1 requests (RFC 9112) as a state machine: bytes and the time go in, events come out.
//
// # The caller's duties, in order
//
// Begin starts a connection. The caller then passes what it has read to [Parser.Next] until Next has consumed all of it.
// Next returns at most one event a call: the head, a span of the body, the end of the request, or a failure. After Head the
// caller may look at [Parser.Head]; the body's spans follow, which are slices of the caller's own input: the parser never
// holds a byte of a body, so a caller may read a large body straight to its place. After End the caller answers the request and
// calls [Parser.Again]; until then Next consumes nothing. After Fail the caller answers with the failure's status, closes the
// connection, and calls nothing more: what follows in the input is never read as a request.
//
// [Parser.Deadline] says until when the next bytes must have come; if they have not, [Parser.Expire] says why the connection
// ends. A failure with status 0 closes without an answer, since there is no request to answer.
//
// # What it promises
//
// Events do not depend on how the input is cut: any split of the same bytes gives the same head, the same body and the same
// failure. All that it holds is bounded by [Limits]. A head that two parsers could read differently is refused, never
// interpreted. In the steady state it allocates nothing.
//
// # What it never does
//
// It reads nothing, has no clock, no lock and no goroutine. It decodes neither the path nor the body, and knows no route.
package http1
