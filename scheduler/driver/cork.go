package driver

// corkedLanes bounds the lanes that wait for a cork. One more works them all.
const corkedLanes = 16

// Cork gathers the queries that one goroutine submits to any lanes: until Release they only lie in the lanes' intakes, and each lane is
// then worked once for all of them. A lane that another goroutine works meanwhile takes them earlier. The goroutine must release a cork that it has
// submitted with, soon, because queries of others in the same intakes wait for that too. The zero value is ready.
type Cork struct {
	lanes [corkedLanes]*Lane // whose intake was empty
	n     int
}

// add notes that the intake of a lane is to be emptied.
func (c *Cork) add(l *Lane) {
	if c.n > 0 && c.lanes[c.n-1] == l {
		return
	}
	if c.n == len(c.lanes) {
		c.Release()
	}
	c.lanes[c.n] = l
	c.n++
}

// Release works the lanes. If the owner of a query panics in it, another Release goes on with the lanes that are left.
func (c *Cork) Release() {
	for c.n > 0 {
		c.n--
		l := c.lanes[c.n]
		c.lanes[c.n] = nil
		l.work()
	}
}
