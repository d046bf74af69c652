// Package machine describes the machine on which a measurement was taken, because a number without its machine means nothing later. It also
// reads the CPU time of other processes, to the nanosecond, and starts processes on chosen processors.
//
// It reads /proc and the kernel's clocks, and never names the host. Linux only. What cannot be read is "unknown".
package machine
