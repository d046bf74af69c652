// Package accept makes listeners that outlive the errors of accept.
//
// A process that runs out of file descriptors gets an error from accept, and a server that returns it has ended although nothing is
// wrong with its port. So a [Listener] returns no error except after Close. What it does instead:
//
//   - Out of descriptors (EMFILE, ENFILE): the waiting connection must leave the kernel's queue, or accept is asked about it again at
//     once, and its client waits for an answer that will not come. The listener keeps one descriptor in reserve. It closes that one,
//     accepts the newest connection in its place, closes it, and opens the reserve again. Those that were accepted before stay.
//     The kernel looks for a descriptor before it looks for a connection, so the same error without a waiting connection is no failure.
//   - A connection that has gone before it was accepted (ECONNABORTED and the network's errors): it is forgotten.
//   - Anything else, and a reserve that another part of the process was faster to take: a pause, and another attempt.
//
// All of these are counted, and reported at most once in ten seconds.
//
// A listener may also bound how many of its connections are open at a time. A further one is closed, and counted likewise.
//
// Accept blocks, as servers with a goroutine for each connection expect. [Listener.Pollable] has the same behaviour for a server that
// polls the descriptor itself. A Listener is used in one of the two ways.
//
// A listener may pass a part of its connections to another process ([Share]), and that one's listener takes them ([Listener.Inherit]).
// The accepting process divides, and the other one does not accept beside it: two processes that accept from one socket would get what
// the scheduler gives each of them, and the connections that one of them has accepted end with it.
//
// Connections that are accepted and in use can go to another process as well: an [Outlet] passes on each with what its server knows of
// it, and an [Inlet] takes it. It belongs to the first process until the second one has said that it has it, so that none is lost where
// the second one has no room or ends. What comes is checked: it is a connection that such a port could have accepted, or it is refused.
//
// The package knows nothing of what is spoken on the connections.
package accept
