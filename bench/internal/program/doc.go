// Package program is the frame of the measuring programs: a context that ends with Ctrl-C, one line on stderr and status 1 for
// an error, flags and nothing but flags, and files that must be there before a long measurement begins.
//
// What the flags are is each program's own business; so is what it prints.
package program
