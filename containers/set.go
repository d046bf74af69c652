package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
)

const (
	// MaxReplicas bounds the replicas of one model version on one host. Each is a process with segments of its own.
	MaxReplicas = 1024
	// DefaultGrace is how long a replica may take to end after SIGTERM: enough for a batch or two, and a flush.
	DefaultGrace = 10 * time.Second
	// DefaultReadyWithin bounds the time from start to ready.
	DefaultReadyWithin = api.DefaultStartTimeout
	// failedAfter is the number of consecutive failures after which a replica's state is Failed rather than BackingOff.
	failedAfter = 3 //xebec:limit failures in a row after which a replica counts as failed
	// killWait is how long Close waits for a process after SIGKILL. Only one that hangs in the kernel takes longer.
	killWait = 10 * time.Second
)

// Config describes the replicas of one model version. Model and Runtime are required, and a Command or an Image.
type Config struct {
	Model   api.ModelID
	Runtime Runtime
	// Dir, Command, Image, Preload, Env, Limits and Isolation go into every [Launch].
	Dir       string
	Command   []string
	Image     string
	Preload   []string
	Env       []string
	Limits    Limits
	Isolation Isolation
	// ImageDigest, if not nil, is asked before each launch for its [Launch].ImageDigest. It must not block.
	ImageDigest func() string
	// Environment goes into every Launch too.
	Environment bool
	// Prepare is called before each launch with its replica number. It returns what to add to Env: the address of the
	// gateway and a one-time token. Each Prepare that returned no error is followed by exactly one event Exited.
	Prepare func(replica uint64) (env []string, err error)
	// Place, if not nil, is called before each launch, after Prepare. It returns the directory that the launch has instead of Dir. It may
	// take as long as copying a model. With an error the launch fails.
	Place func(ctx context.Context) (dir string, err error)
	// Secrets, if not nil, is called before each launch, after Prepare. It returns variables whose values are secret, "NAME=value"
	// each. They go behind Env, and before what Prepare returned. With an error the launch fails.
	Secrets func(replica uint64) (env []string, err error)
	// Event receives what happens to replicas: one call at a time and in order for one replica, concurrent calls for
	// several. It may call the Set's methods other than Close, and must not block.
	Event func(Event)
	// Quiet is asked before each launch whether other replicas serve, of any model, and this one is not to answer before it is
	// ready. If so, the launch is [Launch.Quiet] until the replica is ready and Quiet says no; when its answer becomes no
	// the owner calls [Set.Raise]. It must not block. If nil, no launch is quiet.
	Quiet func() bool
	// Holding, if not nil, says how many queries a replica holds that may last: streams. SetCount then ends replicas that hold fewer first,
	// and one that it ends has Grace again as long as it holds any. ending says that the replica is one of those: it should get no more.
	Holding func(replica uint64, ending bool) int
	// Served, if not nil, says whether a replica that has ended had answered a batch. Its end is then its first failure again. The owner
	// may lock.
	Served func(replica uint64) bool
	// NextReplica numbers the launches; nil counts from 1. Numbers are never reused.
	NextReplica func() uint64
	// Logs receives the output of all replicas; nil makes one, which Close closes.
	Logs *Logs
	// Counts counts launches and exits; nil makes one.
	Counts *Counts
	// Zero values mean DefaultBackoff, DefaultGrace, DefaultReadyWithin and math/rand.
	Backoff     Backoff
	Grace       time.Duration
	ReadyWithin time.Duration
	Rand        func() float64
}

// EventKind says what happened.
type EventKind uint8

// Started comes when a replica's process runs; its worker may have connected before. Exited comes when the replica is
// gone or could not be started. NotRaised comes between them, at most once, if a replica that was started quietly
// cannot get its full priority. It serves, but is slow beside others until it is restarted. The Set's later launches
// are not quiet.
const (
	Started EventKind = iota + 1
	Exited
	NotRaised
)

// Event is something that happened to one replica.
type Event struct {
	Kind    EventKind
	Replica uint64
	PID     int // 0 in Exited if the replica never started
	// Image is what the replica's image is; set in Started, if the Instance is an [ImageReporter].
	Image Image
	// Reason is Exit in words, with the reason of a Kill; for NotRaised it says why. Exit and the rest are set in
	// Exited only.
	Reason string
	Exit   Exit
	// Asked says that the owner no longer wants the replica, which is not restarted. Otherwise Next is when the next
	// attempt is made.
	Asked bool
	Next  time.Time
}

// Set keeps the wanted number of replicas of one model version running. The package documentation has its promises.
type Set struct {
	cfg      Config
	logs     *Logs
	ownsLogs bool

	// hard is closed when Close runs out of time: grace periods end at once.
	hard     chan struct{}
	hardOnce sync.Once
	wg       sync.WaitGroup // one per slot

	readyWithin atomic.Int64 // nanoseconds

	mu            sync.Mutex
	slots         []*slot
	last          uint64 // the last replica number, if the Set counts
	closed        bool
	quietDisabled bool // a replica could not be raised, so no more launches are quiet
	// Failures outlive the slot that they happened to: a model that crashes, and was briefly not wanted, must not
	// restart at once.
	failures int // consecutive failures of the slot that failed last
	next     time.Time
}

// NewSet returns a set without replicas; SetCount starts them.
func NewSet(cfg Config) (*Set, error) {
	if cfg.Runtime == nil {
		return nil, fmt.Errorf("replicas of %s: no runtime to start them with", cfg.Model)
	}
	if cfg.Image == "" && (len(cfg.Command) == 0 || cfg.Command[0] == "") {
		return nil, fmt.Errorf("replicas of %s: the command is empty: expected the program that serves the model and its arguments", cfg.Model)
	}
	if cfg.Backoff == (Backoff{}) {
		cfg.Backoff = DefaultBackoff
	}
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Prepare == nil {
		cfg.Prepare = func(uint64) ([]string, error) { return nil, nil }
	}
	if cfg.Event == nil {
		cfg.Event = func(Event) {}
	}
	if cfg.Counts == nil {
		cfg.Counts = new(Counts)
	}
	s := &Set{cfg: cfg, logs: cfg.Logs, hard: make(chan struct{})}
	s.SetReadyWithin(cfg.ReadyWithin)
	if s.logs == nil {
		s.logs, s.ownsLogs = NewLogs(), true
	}
	return s, nil
}

// SetReadyWithin changes how long a replica that starts from now on may take until it is ready; 0 means DefaultReadyWithin.
func (s *Set) SetReadyWithin(d time.Duration) {
	if d <= 0 {
		d = DefaultReadyWithin
	}
	s.readyWithin.Store(int64(d))
}

// Len is the number of replicas in any state. Replicas that are ending count until they are gone, which is when their
// event Exited comes.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, sl := range s.slots {
		if !sl.stopped || sl.attempt != nil {
			n++
		}
	}
	return n
}

// Logs is where the replicas' output goes.
func (s *Set) Logs() *Logs { return s.logs }

// errClosed is returned by a closed Set.
var errClosed = errors.New("the model version's replicas have been stopped")

// SetCount changes how many replicas are wanted and returns at once. It ends surplus replicas: first those that do not
// run, then those that are not ready, then those that hold least ([Config].Holding), then the newest.
func (s *Set) SetCount(n int) error {
	if n < 0 || n > MaxReplicas {
		return fmt.Errorf("%d replicas of %s: expected 0 to %d", n, s.cfg.Model, MaxReplicas)
	}
	holding := s.holding(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	wanted := s.wantedLocked()
	for ; wanted > n; wanted-- {
		s.leastUsefulLocked(holding).stopLocked()
	}
	for ; wanted < n; wanted++ {
		sl := newSlot(s)
		s.inheritBackoffLocked(sl)
		s.slots = append(s.slots, sl)
		s.wg.Add(1)
		go sl.run()
	}
	return nil
}

func (s *Set) wantedLocked() int {
	wanted := 0
	for _, sl := range s.slots {
		if !sl.stopped {
			wanted++
		}
	}
	return wanted
}

// holding asks what the replicas hold, if some of them are to end. The owner may lock, so this is done without the lock.
func (s *Set) holding(n int) map[uint64]int {
	if s.cfg.Holding == nil {
		return nil
	}
	s.mu.Lock()
	var ready []uint64
	if s.wantedLocked() > n {
		for _, sl := range s.slots {
			if !sl.stopped && sl.state == Ready {
				ready = append(ready, sl.replica)
			}
		}
	}
	s.mu.Unlock()
	holding := make(map[uint64]int, len(ready))
	for _, replica := range ready {
		holding[replica] = s.cfg.Holding(replica, false)
	}
	return holding
}

// inheritBackoffLocked lets a new slot continue with the failures of the previous one, unless they are long ago or
// another replica is ready.
func (s *Set) inheritBackoffLocked(sl *slot) {
	for _, other := range s.slots {
		if other.state == Ready {
			return
		}
	}
	if s.failures == 0 || time.Since(s.next) > s.cfg.Backoff.Max {
		s.failures = 0
		return
	}
	sl.failures = s.failures
	if time.Now().Before(s.next) {
		sl.next = s.next
		sl.setState(BackingOff)
		if s.failures >= failedAfter {
			sl.setState(Failed)
		}
	}
}

// leastUsefulLocked picks the slot whose loss costs least. At least one slot is not stopped.
func (s *Set) leastUsefulLocked(holding map[uint64]int) *slot {
	rank := func(st State) int {
		switch st {
		case Ready:
			return 2
		case Running, Starting:
			return 1
		}
		return 0
	}
	var worst *slot
	for _, sl := range s.slots {
		if sl.stopped {
			continue
		}
		if worst == nil || cmp.Or(cmp.Compare(rank(sl.state), rank(worst.state)), cmp.Compare(holding[sl.replica], holding[worst.replica]), worst.since.Compare(sl.since)) <= 0 {
			worst = sl
		}
	}
	return worst
}

// MarkReady says that the replica's worker takes batches. A replica that was started quietly now gets its full
// priority; MarkReady does not wait for that. It ignores replicas that are gone or ending.
func (s *Set) MarkReady(replica uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.find(replica)
	if sl == nil || !sl.attempt.readyAt.IsZero() {
		return
	}
	sl.attempt.readyAt = time.Now()
	close(sl.attempt.ready)
	if sl.state == Running {
		sl.setState(Ready)
	}
}

// Kill ends a replica at once, because it hangs or broke the protocol. The cause is for counting, the reason for
// operators. The replica is restarted with back-off, as after a crash. Kill ignores replicas that are gone.
func (s *Set) Kill(replica uint64, cause Cause, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.find(replica)
	if sl == nil || sl.attempt.killed {
		return
	}
	sl.attempt.killed, sl.attempt.killReason = true, reason
	if !sl.stopped { // otherwise it ends because it is not wanted, and this only hastens it
		sl.attempt.killCause = cause
	}
	close(sl.attempt.kill)
}

// Raise ends the quiet time of the replicas that are ready: they are to answer now. Those that still load stay quiet until they
// are ready. Config.Quiet must say no before. The function that it returns waits until those that are ready have been raised, or
// ctx ends.
func (s *Set) Raise() (wait func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready []<-chan struct{}
	for _, sl := range s.slots {
		l := sl.attempt
		if l == nil {
			continue
		}
		if !l.raise {
			l.raise = true
			close(l.wanted)
		}
		if !l.readyAt.IsZero() {
			ready = append(ready, l.loud)
		}
	}
	return func(ctx context.Context) {
		for _, loud := range ready {
			select {
			case <-loud:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Lower says that a replica has nothing more to answer and only has to end: it gets the lowest CPU priority, if the runtime can do that,
// because taking a program apart may take longer than a batch. It does not wait.
func (s *Set) Lower(replica uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.find(replica); sl != nil && sl.attempt.lower != nil {
		go sl.attempt.lower()
		sl.attempt.lower = nil
	}
}

func (s *Set) find(replica uint64) *slot {
	for _, sl := range s.slots {
		if sl.attempt != nil && sl.attempt.replica == replica {
			return sl
		}
	}
	return nil
}

// Close asks every replica to end, kills those that are left after the grace period, or at once when ctx is done, and
// returns when all are gone. The error names replicas that survived.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for _, sl := range s.slots {
		sl.stopLocked()
	}
	s.mu.Unlock()

	gone := make(chan struct{})
	go func() { s.wg.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-ctx.Done():
		s.hardOnce.Do(func() { close(s.hard) })
		timer := time.NewTimer(killWait)
		defer timer.Stop()
		select {
		case <-gone:
		case <-timer.C:
			return s.stuck()
		}
	}
	if s.ownsLogs {
		s.logs.Close()
	}
	return nil
}

// stuck says for every replica that is left why it is, as far as that is known.
func (s *Set) stuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, sl := range s.slots {
		name := fmt.Sprintf("replica %d of %s", sl.replica, s.cfg.Model)
		switch {
		case sl.attempt != nil && sl.attempt.killError != nil:
			errs = append(errs, fmt.Errorf("%s (pid %d) could not be killed within %v: %w", name, sl.pid, killWait, sl.attempt.killError))
		case sl.state == Starting:
			errs = append(errs, fmt.Errorf("%s was being started, and the start was not abandoned within %v: its log says what it waits for", name, killWait))
		default:
			errs = append(errs, fmt.Errorf("%s (pid %d) has not ended %v after SIGKILL: it hangs in the kernel; look at its device or file system",
				name, sl.pid, killWait))
		}
	}
	return errors.Join(errs...)
}
