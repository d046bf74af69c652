package sim

import "github.com/xebec-serving/xebec/api"

// eventKind says what happens when an event's time has come.
type eventKind uint8

const (
	// queryArrives: source b of function a has a query.
	queryArrives eventKind = iota
	// clientSends: a client of the closed loop of source b of function a sends its next query.
	clientSends
	// callerLeaves: the caller of call b has gone.
	callerLeaves
	// answerSeen: the answer to batch b of a replica has been seen.
	answerSeen
	// firstSeen: the first output of stream b of a replica has been seen.
	firstSeen
	// callerLeavesStream: the caller of stream b of a replica has gone.
	callerLeavesStream
	// streamsSilent: the transport has found a replica silent in the middle of a stream.
	streamsSilent
	// replicaUp: the replica of a place has started.
	replicaUp
	// faultStrikes: fault b of a place.
	faultStrikes
	// deathSeen: the end of a replica has been seen.
	deathSeen
	// wake: the clock wakes engine a.
	wake
	// epochEnds: a plan is due.
	epochEnds
	// scaleTick: the scaler of model a runs.
	scaleTick
	// secondEnds: the series of all scaled models get a point.
	secondEnds
)

// event is an entry of the world's event queue.
type event struct {
	at   api.Nanos
	seq  uint64 // events of one moment happen in the order in which they were scheduled
	kind eventKind
	a    int
	b    uint64
	r    *replica
	p    *place
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventQueue is a binary heap of events, earliest first.
type eventQueue struct {
	heap []event
	seq  uint64
}

func (g *eventQueue) push(e event) {
	e.seq = g.seq
	g.seq++
	g.heap = append(g.heap, e)
	h := g.heap
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(&h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (g *eventQueue) pop() event {
	h := g.heap
	first := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	g.heap = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return first
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&h[i]) {
			return first
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
