// Package machine says on what a measurement was taken: a number without its machine means nothing later. It also reads how much
// CPU time another process has used, to the nanosecond.
//
// It reads /proc and asks the kernel's clocks; it changes nothing, and never names the host. Linux only; what cannot be read is "unknown".
package machine
