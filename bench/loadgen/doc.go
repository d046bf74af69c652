// Package loadgen sends HTTP/1.1 requests to one server and measures the answers. It is the load generator of bench/ and of the command
// bench/cmd/loadgen.
//
// It has three properties:
//
//   - It is cheap. Requests are rendered before the run; a thread owns its connections and an epoll instance, so that a
//     request costs a write, a read and a share of an epoll_wait. On a small machine generator and server share the cores, so the
//     generator must leave them to the server.
//   - It avoids coordinated omission. In an open loop ([Options.Rate] > 0) requests are due at times that a
//     [Schedule] fixed beforehand, and latency counts from the time a request was due, even if no connection was free
//     then. A server that stalls for a second is charged for every request of that second. In a closed loop each connection
//     sends the next request when it has the answer to the last one: good for the throughput and CPU of a saturated server, not for its latency under a given load.
//   - It checks the answers. It counts the status of every response and compares its body with what the request expects. [Result.Wrong]
//     counts wrong answers, and the result shows the first of them.
//
// It does not follow redirects or retry, and does not support TLS, chunked encoding or HTTP/2. Linux only. Read parse.go for the supported part of
// HTTP, schedule.go for arrivals, loop.go for the event loop.
package loadgen
