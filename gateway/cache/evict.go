package cache

// queueName is the queue that an entry is in.
type queueName uint8

const (
	noQueue   queueName = iota // on its way
	probation                  // recently added, not used again yet
	protected                  // used again
	queueNames
)

// queue is a list of entries by age. blocks is the number of blocks that they hold.
type queue struct {
	newest, oldest uint32
	blocks         int
}

// eviction selects entries to evict. It is part of a shard, whose lock protects it.
//
// It is CLOCK (F. J. Corbató, "A Paging Experiment with the Multics System", 1968) preceded by S3-FIFO's probation (J.
// Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023,
// algorithm 1). A new entry goes to a short queue. If it has not been used again when it is the oldest there, it is
// evicted, and only a ghost of its key is kept. Otherwise it goes to the long queue, which is a clock: the hand takes
// the oldest entry and gives it another round for each use. An entry that returns while its ghost exists goes directly
// to the long queue. Inputs that are seen once, as most are, thus pass through a tenth of the cache and leave the rest
// alone.
type eviction struct {
	queues [queueNames]queue
	quota  int // blocks of probation; above this, probation evicts first
}

const (
	probationShare = 10 // probation's part of the blocks is 1/probationShare
	maxUses        = 3
	// maxHandSteps bounds how many entries an eviction passes over; then it evicts the next one whatever its uses. Only
	// a cache in which nearly every entry is used all the time reaches it.
	maxHandSteps = 64
)

// recordHit counts a use.
func (e *head) recordHit() { e.uses = min(e.uses+1, maxUses) }

// victim removes the entry to evict from its queue and returns it, and whether it leaves a ghost; nil if there is none.
func (s *shard) victim() (i uint32, e *head, ghost bool) {
	for steps := 0; ; steps++ {
		from := protected
		if s.queues[probation].blocks > s.quota || s.queues[protected].oldest == 0 {
			from = probation
		}
		i = s.queues[from].oldest
		if i == 0 {
			return 0, nil, false
		}
		e = s.at(i)
		s.unlink(e)
		switch {
		case e.uses == 0 || steps >= maxHandSteps:
			return i, e, from == probation
		case from == probation:
			e.uses = 0
		default:
			e.uses--
		}
		s.push(protected, i, e)
	}
}

func (s *shard) push(name queueName, i uint32, e *head) {
	q := &s.queues[name]
	e.in, e.newer, e.older = name, 0, q.newest
	if q.newest != 0 {
		s.at(q.newest).newer = i
	} else {
		q.oldest = i
	}
	q.newest = i
	q.blocks += e.blocks()
}

func (s *shard) unlink(e *head) {
	q := &s.queues[e.in]
	if e.newer != 0 {
		s.at(e.newer).older = e.older
	} else {
		q.newest = e.older
	}
	if e.older != 0 {
		s.at(e.older).newer = e.newer
	} else {
		q.oldest = e.newer
	}
	q.blocks -= e.blocks()
	e.in = noQueue
}
