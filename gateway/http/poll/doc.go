// Package poll reads many sockets with few goroutines.
//
// # Who has a socket
//
// Each [Socket] lies in the epoll set of one poller, once, edge-triggered, for its whole life in this process. A poller takes all events of a batch,
// reads each ready socket once into a buffer of its own, and passes the bytes to the socket's [Owner]. An idle socket has no goroutine,
// no buffer and one descriptor. The owner must not block; there are two ways to stop the poller from reading on:
//
//   - [Socket.Hold], until [Socket.Free]: an answer is to be written first, or a body needs memory. The kernel's buffer fills, and the
//     client has to wait. [Socket.Wake] lets any goroutine say that there is news.
//   - [Socket.Take], until [Socket.Give]: a goroutine has the socket and reads and writes it with methods that wait, those of
//     Hertz's network.Conn. So one slow or panicking handler stops nothing else.
//
// A goroutine waits on a channel that the poller signals, with a timer of its own. Sockets that no goroutine has share the poller's
// timing wheel: [Socket.Alarm]. Moving an alarm later costs nothing: the old one fires, and the owner sets it again.
//
// # How a socket leaves
//
// [Group.PassOn] gives sockets to another process: a poller offers each before it reads it, so that what has come stays in the kernel and
// goes along. The socket stays in the set until the other process has it ([Socket.Depart]), and goes on here if that one does not take it
// ([Socket.Reclaim]).
//
// # Batches
//
// What owners would do for one request, and can do for many at less cost, they leave in the poller's [Batch]. The poller flushes it when it
// has served a batch of events, and before that as soon as it has read much, so that nothing waits there for long.
//
// # How a poller sleeps
//
// The descriptor of the epoll set is itself in the Go runtime's poller. A poller that waited in epoll_wait would hold its P until sysmon
// takes it, and each wake-up would hand it back. This one is a parked goroutine. It asks epoll_wait without a timeout when the
// runtime says that there is something. A wake-up for an alarm, or by another goroutine, is a read deadline of that descriptor.
// While there is always more to read, the poller does not sleep: it reads in bounded rounds, and between two of them does what is due.
//
// With Config.BusyPoll a poller that expects an event within that time looks for it again and again before it parks (package
// api/busypoll). So a client that asks again at once finds it awake. A wake-up by another goroutine ends the spin.
//
// # Why not a library
//
// netpoll's Runner belongs to the process, its poller blocks with a P, and it cannot stop reading. gnet (v2) adopts connections by a
// duplicate of the descriptor, sleeps in epoll_wait with a P, and has no call that pauses the reading of a connection: it reads into
// buffers of its own that grow. What is left of either without these is about this package.
//
// # What it never does
//
// It knows no protocol, makes no answer, and decides no deadline.
package poll
