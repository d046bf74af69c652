package autoscale

const (
	// The stable window has windowBuckets buckets, the panic window rushBuckets, a tenth. One bucket is the shortest
	// burst that is examined: a second of a minute.
	windowBuckets = 60
	rushBuckets   = windowBuckets / 10
)

// window counts arrivals in each sixtieth of the stable window. The bucket at index at is still open. The oldest of the
// others ended at most a stable window ago.
type window struct {
	counts      [windowBuckets + 1]float64
	at          int
	lengthNanos int64 // of a bucket
	intoNanos   int64 // how much of the open bucket has passed
	seenNanos   int64 // how long arrivals have been observed, at most what the buckets hold
}

// span sets the stable window. If it changes, the mean is kept.
func (w *window) span(nanos int64) {
	length := nanos / windowBuckets
	if length == w.lengthNanos {
		return
	}
	count, over := w.last(windowBuckets)
	seen := w.seenNanos
	*w = window{lengthNanos: length, seenNanos: min(seen, windowBuckets*length)}
	if over == 0 {
		return
	}
	for i := int64(1); i <= windowBuckets && i*length <= w.seenNanos; i++ {
		w.counts[windowBuckets+1-i] = count / float64(over) * float64(length)
	}
}

// add records n arrivals, spread evenly over the last nanos.
func (w *window) add(n float64, nanos int64) {
	if nanos <= 0 {
		w.counts[w.at] += n
		return
	}
	each := n / float64(nanos)
	w.seenNanos = min(int64(len(w.counts))*w.lengthNanos, w.seenNanos+nanos)
	for left := min(nanos, int64(len(w.counts))*w.lengthNanos); left > 0; {
		step := min(left, w.lengthNanos-w.intoNanos)
		w.counts[w.at] += each * float64(step)
		w.intoNanos += step
		left -= step
		if w.intoNanos == w.lengthNanos {
			w.at = (w.at + 1) % len(w.counts)
			w.counts[w.at] = 0
			w.intoNanos = 0
		}
	}
}

// last returns the arrivals in the last closed buckets, as many as given, and the open one, and their duration, which
// is shorter if the window has not observed for that long.
func (w *window) last(buckets int) (count float64, nanos int64) {
	nanos = min(w.seenNanos, int64(buckets)*w.lengthNanos+w.intoNanos)
	from := w.at - buckets
	if from < 0 {
		for _, n := range w.counts[from+len(w.counts):] {
			count += n
		}
		from = 0
	}
	for _, n := range w.counts[from : w.at+1] {
		count += n
	}
	return count, nanos
}

// burst returns the largest number of arrivals in the open and the last closed bucket.
func (w *window) burst() float64 {
	before := w.at - 1
	if before < 0 {
		before = len(w.counts) - 1
	}
	return max(w.counts[w.at], w.counts[before])
}

// quarters returns the arrivals in each of the last four groups of closed buckets, the oldest first. ok: that
// much has been observed.
func (w *window) quarters(buckets int) (q [4]float64, ok bool) {
	if w.seenNanos < 4*int64(buckets)*w.lengthNanos {
		return q, false
	}
	i := w.at - 4*buckets
	if i < 0 {
		i += len(w.counts)
	}
	for k := range q {
		for range buckets {
			q[k] += w.counts[i]
			if i++; i == len(w.counts) {
				i = 0
			}
		}
	}
	return q, true
}

// heldSlots divides the time that a maximum is held: it is held for up to a sixteenth longer than asked for, never
// less.
const heldSlots = 16

// maximum is the largest value put within the span.
type maximum struct {
	most        [heldSlots + 1]float64
	at          int
	lengthNanos int64
	intoNanos   int64
}

// span sets how long a value is held. The current maximum is held again from now on.
func (m *maximum) span(nanos int64) {
	length := max(1, nanos/heldSlots)
	if length == m.lengthNanos {
		return
	}
	most := m.value()
	*m = maximum{lengthNanos: length}
	m.most[0] = most
}

// pass advances the time.
func (m *maximum) pass(nanos int64) {
	m.intoNanos += nanos
	for range len(m.most) {
		if m.intoNanos < m.lengthNanos {
			return
		}
		m.intoNanos -= m.lengthNanos
		m.at = (m.at + 1) % len(m.most)
		m.most[m.at] = 0
	}
	m.intoNanos = 0 // longer than everything that was held
}

func (m *maximum) put(v float64) { m.most[m.at] = max(m.most[m.at], v) }

func (m *maximum) value() float64 {
	v := 0.0
	for _, x := range m.most {
		v = max(v, x)
	}
	return v
}
