// Package server runs a server under test as a child process: it starts the program, waits until it answers, says what it wrote
// last when it does not, and ends it, gently first.
//
// It does not know what the server is: the caller has the arguments, and the question that a ready server answers. Tail, which
// keeps what a process wrote last, serves for other children too.
package server
