// Package loadgen sends HTTP/1.1 requests to one server and says how it answered. It is the measuring instrument of bench/ and
// of the command bench/cmd/loadgen.
//
// It promises three things to whoever reads its numbers:
//
//   - It is cheap. Requests are rendered before the run; a thread owns its connections and an epoll instance, so that a
//     request costs a write, a read and a share of an epoll_wait. On a small machine generator and server share the cores, and
//     what the generator takes the server cannot have.
//   - It does not omit in coordination with the server. In an open loop ([Options.Rate] > 0) requests are due at times that a
//     [Schedule] fixed beforehand, and latency counts from the time a request was due, whether or not a connection was free
//     then. A server that stalls for a second is charged for every request of that second. In a closed loop each connection
//     sends when its last answer is in: good for the throughput and CPU of a saturated server, not for its latency under a given load.
//   - It looks at the answers. Every response has its status counted and its body compared with what the request expects; a
//     run with wrong answers says so in [Result.Wrong] and shows the first of them.
//
// It never follows redirects, speaks TLS, chunked encoding or HTTP/2, or retries: a request that fails is counted as failed.
// Linux only. Read parse.go for what of HTTP it understands, schedule.go for arrivals, loop.go for the event loop.
package loadgen
