// Package processes looks at a server as all the processes that belong to it: the program that was started, what it has started, and so on. It
// adds up their CPU time and their memory, and stops and continues them together.
//
// A server's processes are the descendants of the one that was started, and those that carry its mark in their environment: the first finds
// programs that overwrite their environment, the second those whose parent has ended. It reads /proc, so it is for Linux; it starts nothing.
package processes
