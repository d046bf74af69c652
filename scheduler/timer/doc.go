// Package timer keeps a great many deadlines of which most are withdrawn before they come: one for each query in flight,
// one for each lane. Setting, moving and stopping a timer cost the same whether ten or a hundred thousand are outstanding,
// and nothing is allocated: a [Timer] is a field of whatever waits.
//
// It is a hierarchical timing wheel (G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme
// 7). It owns no clock, no goroutine and no lock: it is told the time, and its user asks [Wheel.Next] when to tell it
// again.
//
// # How the wheel is laid out
//
// Time is counted in ticks. A tick's number is cut into digits of six bits; each digit has a level of 64 slots. A timer
// lies in the level of the highest digit in which its tick differs from the tick that the wheel has reached, in the slot
// of its own digit there: the next 64 ticks lie one to a slot, and what is far away lies roughly sorted. When the wheel
// reaches the beginning of a slot above the lowest level, the slot's timers are placed anew, each in a lower level. So a
// timer is moved at most once for each level, and not at all if it is stopped in time.
//
// Two things follow from "the highest digit that differs". Everything in a lower level is due before anything in a higher
// one, and within a level slots never wrap around: the earliest slot is found with two bit scans, however far away it
// is, and a jump over years costs no more than the timers that it passes. And with eight levels there is no horizon:
// from a tick of 33 µs upwards the digits cover all of [api.Nanos].
//
// # What it promises
//
//   - No timer expires before its time, nor more than a tick after it, given that Advance is called when Next says so.
//   - Timers come out by their ticks, and within a tick in the order in which they were set.
//   - Between the call of Advance and the Pop that hands a timer out, the timer can still be stopped or moved.
//   - Time that goes back is ignored.
package timer
