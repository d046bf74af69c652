package cache

// queueName says in which of the queues an entry is.
type queueName uint8

const (
	noQueue   queueName = iota // pending
	probation                  // has come recently and is not known to be worth keeping
	protected                  // was asked for again
	queueNames
)

// queue is a list of entries by age. blocks is what they hold together.
type queue struct {
	newest, oldest uint32
	blocks         int
}

// eviction decides who goes. Its parts belong to a shard, whose lock protects it.
//
// It is CLOCK (F. J. Corbató, "A Paging Experiment with the Multics System", 1968) with S3-FIFO's probation before it (J. Yang,
// Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023, algorithm 1). An
// entry comes into a short queue. If it has not been asked for again by the time it is the oldest there, it goes, and only its
// key's trace is kept; else it comes into the long queue, which is a clock: the hand takes the oldest, and gives it another round
// for each use. What comes again while its trace is still there goes to the long queue at once. So inputs that are seen once,
// which most are, pass through a tenth of the cache and leave the rest alone.
type eviction struct {
	queues [queueNames]queue
	quota  int      // blocks of probation, beyond which it is the first to lose something
	ghosts []uint32 // of keys that left probation unused, each in the one place that its key has; a later one replaces it
}

const (
	probationShare = 10 // one part in so many
	maxUses        = 3
	// maxHandSteps bounds how many entries an eviction passes over: after so many the next one goes, whatever its uses. It takes
	// a cache in which nearly everything is used all the time to come so far.
	maxHandSteps = 64
)

// admit puts an entry, which has its outputs now, into the queue where it begins.
func (s *shard) admit(i uint32, e *head) {
	place, tag := s.ghost(e)
	if *place == tag {
		*place = 0
		s.push(protected, i, e)
		return
	}
	s.push(probation, i, e)
}

// used notes a hit.
func (e *head) recordHit() { e.uses = min(e.uses+1, maxUses) }

// victim takes the entry that is to go out of its queue; nil if there is none.
func (s *shard) victim() (uint32, *head) {
	for steps := 0; ; steps++ {
		from := protected
		if s.queues[probation].blocks > s.quota || s.queues[protected].oldest == 0 {
			from = probation
		}
		i := s.queues[from].oldest
		if i == 0 {
			return 0, nil
		}
		e := s.at(i)
		s.unlink(e)
		switch {
		case e.uses == 0 || steps >= maxHandSteps:
			if from == probation {
				place, tag := s.ghost(e)
				*place = tag
			}
			return i, e
		case from == probation:
			e.uses = 0
		default:
			e.uses--
		}
		s.push(protected, i, e)
	}
}

// trace is where a key leaves a trace, and which.
func (s *shard) ghost(e *head) (place *uint32, tag uint32) {
	return &s.ghosts[e.key.Lo&uint64(len(s.ghosts)-1)], (uint32(e.key.Hi>>32) ^ e.model*0x9e3779b1) | 1
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
