// Package timer keeps many deadlines of which most are cancelled before they come: one per query in flight, one per
// lane. Setting, moving and stopping a timer cost the same with ten or a hundred thousand outstanding, and do not
// allocate: a [Timer] is a field of the object that waits.
//
// It is a hierarchical timing wheel (G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987,
// scheme 7). It owns no clock, no goroutine and no lock. Its user passes the time in and asks [Wheel.Next] when to do
// so again.
//
// # How the wheel is laid out
//
// Time is counted in ticks. A tick's number is split into digits of six bits, and each digit has a level of 64 slots. A
// timer lies in the level of the highest digit in which its tick differs from the tick that the wheel has reached, in
// the slot of its own digit there. So the next 64 ticks have one slot each, and distant timers are roughly sorted. When
// the wheel reaches the beginning of a slot above the lowest level, it moves the slot's timers to lower levels. So a
// timer is moved at most once per level, and not at all if it is stopped in time.
//
// Two things follow from "the highest digit that differs". First, everything in a lower level is due before anything in
// a higher one, and within a level slots never wrap around. So two bit scans find the earliest slot, however far away
// it is, and a jump over years costs no more than the timers that it passes. Second, with eight levels there is no
// horizon: from a tick of 33 µs upwards the digits cover all of [api.Nanos].
//
// # What it promises
//
//   - No timer expires before its time, nor more than a tick after it, provided that Advance is called when Next says
//     so.
//   - Timers come out by their ticks, and within a tick in the order in which they were set.
//   - Between the call of Advance and the Pop that returns a timer, the timer can still be stopped or moved.
//   - Time that goes back is ignored.
package timer
