// Package server runs a server under test as a child process. It starts the program, waits until it is ready, reports its last output if it
// does not get ready, and stops it with SIGTERM and then SIGKILL.
//
// It does not know the server: the caller passes the arguments and a readiness check. Tail, which keeps the last output of a process, works for
// other children, too.
package server
