// Package procfs parses the files of /proc that the parts of containers read: the state of a process, where hierarchies
// of control groups are mounted, and which groups a process is in.
//
// It takes bytes and opens no file: its callers bound what they read, and some read below a root of their own. The text
// comes from the kernel, but contains names that a process may choose: parsers return false, or leave a line out, and
// never panic.
package procfs
