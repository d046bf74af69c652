// Package meter measures what the client of a gRPC connection has sent of messages that are not complete, and how fast the rest of each comes. The gRPC library
// bounds messages and streams, but neither their memory over all connections nor their time: a client that sends the beginnings of large messages and
// stops would hold memory for as long as it likes.
//
// A [Meter] sees the bytes of both directions of one connection, and follows no more of HTTP/2 than it needs: heads of frames, the five bytes before each
// message, and which frames end a stream. It reads no header fields and refuses nothing: malformed frames are for the library to refuse, which closes the
// connection then. It is a state machine without a lock and a clock: bytes and the time go in.
package meter
