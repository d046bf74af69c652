package containers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxQuiet is longer than the imports of a Python model take where the others leave some time over.
const maxQuiet = 15 * time.Second //xebec:limit start of a replica at the lowest CPU priority

// slot is the place of one wanted replica: a goroutine that launches it, waits for its end, waits for the delay, and
// launches it again. set.mu guards everything but set, ctx and cancel.
type slot struct {
	set *Set
	// ctx ends when the slot must stop.
	ctx    context.Context
	cancel context.CancelFunc

	stopped  bool
	state    State
	since    time.Time
	replica  uint64
	pid      int
	quiet    bool
	layers   []string // of isolation, and what is missing
	missing  []string
	restarts int
	failures int // consecutive
	lost     int // consecutive attempts that were lost, which are no failures
	next     time.Time
	attempt  *attempt // nil between launches

	lastExit      string
	lastExitAt    time.Time
	lastExitLines []string
}

// attempt is one launch of a slot.
type attempt struct {
	replica uint64
	ready   chan struct{} // closed by MarkReady
	kill    chan struct{} // closed by Kill
	wanted  chan struct{} // closed by Raise
	loud    chan struct{} // closed when it is not quiet, cannot be raised, or is gone
	// guarded by set.mu
	readyAt    time.Time
	killed     bool
	raise      bool   // Raise was called
	lower      func() // nil: it is lowered already, or cannot be
	killReason string
	killCause  Cause
	killError  error // why the runtime could not kill it
}

// outcome is how a launch ended.
type outcome struct {
	exit Exit
	// prepared: the owner's Prepare succeeded, so the owner must receive Exited.
	prepared bool
	// permanent: only a person can repair it.
	permanent bool
}

func newSlot(s *Set) *slot {
	sl := &slot{set: s, state: Starting, since: time.Now()}
	sl.ctx, sl.cancel = context.WithCancel(context.Background())
	return sl
}

func (sl *slot) setState(st State) {
	sl.state, sl.since = st, time.Now()
}

func (sl *slot) stopLocked() {
	sl.stopped = true
	sl.cancel()
}

// run is the slot's goroutine.
func (sl *slot) run() {
	defer sl.set.wg.Done()
	defer sl.set.remove(sl)
	sl.set.mu.Lock()
	next := sl.next
	sl.set.mu.Unlock()
	if !next.IsZero() {
		sl.wait(time.Until(next))
	}
	for sl.ctx.Err() == nil {
		l := sl.beginAttempt()
		sl.wait(sl.endAttempt(l, sl.launch(l)))
	}
}

// wait returns when the delay is over or the slot must stop.
func (sl *slot) wait(delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sl.ctx.Done():
	}
}

func (s *Set) remove(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots {
		if s.slots[i] == sl {
			s.slots = append(s.slots[:i], s.slots[i+1:]...)
			return
		}
	}
}

// beginAttempt begins an attempt under a new number.
func (sl *slot) beginAttempt() *attempt {
	s := sl.set
	l := &attempt{ready: make(chan struct{}), kill: make(chan struct{}), wanted: make(chan struct{}), loud: make(chan struct{})}
	if s.cfg.NextReplica != nil {
		l.replica = s.cfg.NextReplica()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.NextReplica == nil {
		s.last++
		l.replica = s.last
	}
	s.cfg.Counts.launches.Add(1)
	if sl.replica != 0 {
		sl.restarts++
		s.cfg.Counts.restarts.Add(1)
	}
	sl.replica, sl.attempt, sl.next = l.replica, l, time.Time{}
	sl.setState(Starting)
	return l
}

// launch starts the replica and returns when it is gone.
func (sl *slot) launch(l *attempt) outcome {
	cfg := &sl.set.cfg
	env, err := cfg.Prepare(l.replica)
	if err != nil {
		return outcome{exit: notStarted(fmt.Errorf("its launch could not be prepared: %w", err))}
	}
	dir := cfg.Dir
	if cfg.Place != nil {
		if dir, err = cfg.Place(sl.ctx); err != nil {
			var p Permanent
			return outcome{
				exit: notStarted(fmt.Errorf("it could not be started: %w", err)), prepared: true,
				permanent: errors.As(err, &p) && p.Permanent(),
			}
		}
	}
	var secrets []string
	if cfg.Secrets != nil {
		if secrets, err = cfg.Secrets(l.replica); err != nil {
			return outcome{exit: notStarted(fmt.Errorf("it could not be started: %w", err)), prepared: true}
		}
	}
	pinned := ""
	if cfg.ImageDigest != nil {
		pinned = cfg.ImageDigest()
	}
	quiet := sl.set.wantsQuiet()
	stdout, stderr := sl.set.logs.Writer(l.replica, Stdout), sl.set.logs.Writer(l.replica, Stderr)
	inst, err := cfg.Runtime.Start(sl.ctx, Launch{
		Replica: l.replica, Model: cfg.Model, Dir: dir, Command: cfg.Command, Image: cfg.Image, ImageDigest: pinned, Preload: cfg.Preload,
		Env: slices.Concat(cfg.Env, secrets, env), Secret: names(secrets), Limits: cfg.Limits, Isolation: cfg.Isolation, Environment: cfg.Environment, Quiet: quiet, Stdout: stdout, Stderr: stderr,
	})
	var cut Interrupted
	if errors.As(err, &cut) && cut.Interrupted() {
		return outcome{exit: Exit{Code: -1, At: time.Now(), Reason: fmt.Sprintf("its launch was interrupted, which is no failure of the model: %v", err), Cause: Lost}, prepared: true}
	}
	if err != nil {
		var p Permanent
		return outcome{
			exit: notStarted(fmt.Errorf("it could not be started: %w", err)), prepared: true,
			permanent: errors.As(err, &p) && p.Permanent(),
		}
	}
	raiser, can := inst.(Raiser)
	if !quiet || !can {
		raiser = nil
	}
	var layers, missing []string
	if r, ok := inst.(IsolationReporter); ok {
		layers, missing = r.Isolation()
	}
	sl.set.mu.Lock()
	if in, can := inst.(Lowerer); can {
		l.lower = in.Lower
	}
	sl.layers, sl.missing = layers, missing
	sl.set.mu.Unlock()
	var image Image
	if r, ok := inst.(ImageReporter); ok {
		image = r.Image()
	}
	sl.started(l, inst.PID(), image, raiser != nil)
	sl.await(l, inst, raiser)
	_ = stdout.Close() // writers of the log cannot fail
	_ = stderr.Close()
	return outcome{exit: inst.Exit(), prepared: true}
}

// names are the names of "NAME=value" entries.
func names(env []string) (all []string) {
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		all = append(all, name)
	}
	return all
}

func notStarted(err error) Exit {
	return Exit{Code: -1, At: time.Now(), Reason: err.Error(), Cause: NotStarted}
}

func (sl *slot) started(l *attempt, pid int, image Image, quiet bool) {
	s := sl.set
	s.mu.Lock()
	sl.pid, sl.quiet = pid, quiet
	sl.setState(Running)
	if !l.readyAt.IsZero() { // the worker connected before the start was reported
		sl.setState(Ready)
	}
	s.mu.Unlock()
	s.logs.Add(l.replica, System, fmt.Sprintf("replica %d of %s started, process %d", l.replica, s.cfg.Model, pid))
	s.cfg.Event(Event{Kind: Started, Replica: l.replica, PID: pid, Image: image})
}

// await returns when the replica is gone: by itself, because it was asked, because it was killed, or because it was not
// ready in time. With a raiser it raises the replica when it is ready and the owner wants it to answer, when it starves, or when it has been
// quiet for maxQuiet or half of its time: on a busy machine the lowest priority may get no time at all, and being quiet must not make
// the replica late.
func (sl *slot) await(l *attempt, inst Instance, raiser Raiser) {
	within := time.Duration(sl.set.readyWithin.Load())
	quietly := min(within/2, maxQuiet)
	late, enough := time.NewTimer(within), time.NewTimer(quietly)
	defer late.Stop()
	defer enough.Stop()
	sample := time.NewTicker(StarvedEvery)
	defer sample.Stop()
	var hunger Starvation
	starves := func() bool {
		p, ok := inst.(Progresser)
		return ok && hunger.Starved(p.Progress())
	}
	if raiser == nil {
		sample.Stop()
	} else {
		starves() // the first sample
	}
	raised := make(chan error, 1)
	raise := func() {
		enough.Stop()
		sample.Stop()
		if raiser != nil {
			go func(r Raiser) { raised <- r.Raise() }(raiser) // Raise returns when the instance ends
		}
		raiser = nil
	}
	loud := sync.OnceFunc(func() { close(l.loud) })
	defer loud()
	if raiser == nil {
		loud()
	}
	ready := l.ready
	var wanted <-chan struct{} // once it is ready
	for {
		select {
		case <-inst.Exited():
			return
		case <-ready:
			late.Stop()
			ready, wanted = nil, l.wanted
			if raiser == nil || !sl.set.cfg.Quiet() {
				wanted = nil
				raise()
			}
			continue
		case <-wanted:
			wanted = nil
			raise()
			continue
		case <-sample.C:
			if raiser != nil && starves() {
				sl.set.logs.Add(l.replica, System, fmt.Sprintf("replica %d got hardly any processor time within %v of loading quietly and gets full priority",
					l.replica, StarvedEvery))
				raise()
			}
			continue
		case <-enough.C:
			if raiser != nil && ready != nil {
				sl.set.logs.Add(l.replica, System, fmt.Sprintf("replica %d was not ready within %v of loading quietly and gets full priority",
					l.replica, quietly))
			}
			raise()
			continue
		case err := <-raised:
			sl.raised(l, err)
			loud()
			continue
		case <-late.C:
			select {
			case <-l.ready: // both have happened
				continue
			default:
			}
			sl.set.Kill(l.replica, Unready, fmt.Sprintf("it was not ready within %v", within))
		case <-l.kill:
		case <-sl.ctx.Done():
			sl.stopping()
			if sl.endsWithinGrace(l, inst) {
				return
			}
		}
		sl.stopping()
		if err := inst.Signal(false); err != nil {
			sl.set.mu.Lock()
			l.killError = err
			sl.set.mu.Unlock()
			sl.set.logs.Add(l.replica, System, fmt.Sprintf("replica %d: %v", l.replica, err))
		}
		<-inst.Exited()
		return
	}
}

// wantsQuiet asks the owner whether a launch should be quiet.
func (s *Set) wantsQuiet() bool {
	s.mu.Lock()
	quietDisabled := s.quietDisabled
	s.mu.Unlock()
	return !quietDisabled && s.cfg.Quiet != nil && s.cfg.Quiet()
}

// raised handles the result of Raise. A replica that cannot be raised keeps running: slow answers are better than none,
// and the owner may decide otherwise.
func (sl *slot) raised(l *attempt, err error) {
	s := sl.set
	s.mu.Lock()
	sl.quiet = err != nil
	s.quietDisabled = s.quietDisabled || err != nil
	pid := sl.pid
	s.mu.Unlock()
	if err == nil {
		return
	}
	reason := fmt.Sprintf("it was started quietly and stays at the lowest CPU priority until it is restarted: %v", err)
	s.logs.Add(l.replica, System, fmt.Sprintf("replica %d: %s", l.replica, reason))
	s.cfg.Event(Event{Kind: NotRaised, Replica: l.replica, PID: pid, Reason: reason})
}

func (sl *slot) stopping() {
	sl.set.mu.Lock()
	defer sl.set.mu.Unlock()
	if sl.state != Stopping {
		sl.setState(Stopping)
	}
}

// endsWithinGrace sends SIGTERM and reports whether the replica ends within the grace period, or later if it holds streams until then and the
// set goes on.
func (sl *slot) endsWithinGrace(l *attempt, inst Instance) bool {
	if err := inst.Signal(true); err != nil {
		sl.set.logs.Add(l.replica, System, fmt.Sprintf("replica %d: %v", l.replica, err))
	}
	grace := time.NewTimer(sl.set.cfg.Grace)
	defer grace.Stop()
	for {
		select {
		case <-inst.Exited():
			return true
		case <-grace.C:
			if sl.holds(l) {
				grace.Reset(sl.set.cfg.Grace)
				continue
			}
			sl.set.logs.Add(l.replica, System, fmt.Sprintf("replica %d did not end within %v of SIGTERM and is killed", l.replica, sl.set.cfg.Grace))
		case <-sl.set.hard:
		case <-l.kill:
		}
		return false
	}
}

// holds reports whether an ending replica may stay for its streams.
func (sl *slot) holds(l *attempt) bool {
	s := sl.set
	if s.cfg.Holding == nil {
		return false
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return !closed && s.cfg.Holding(l.replica, true) > 0
}

// sigKill is SIGKILL's number.
const sigKill = 9

// endAttempt ends an attempt, tells the owner and returns the delay until the next one.
func (sl *slot) endAttempt(l *attempt, out outcome) time.Duration {
	s := sl.set
	lines := stderrOf(s.logs, l.replica)
	served := s.cfg.Served != nil && s.cfg.Served(l.replica) // without the lock, because the owner may lock

	s.mu.Lock()
	asked := sl.stopped
	healthy := l.healthy(out.exit.At)
	if served {
		healthy = max(healthy, s.cfg.Backoff.Healthy)
	}
	s.cfg.Counts.exits[l.cause(out.exit, asked)].Add(1)
	ev := Event{Kind: Exited, Replica: l.replica, PID: sl.pid, Exit: out.exit, Asked: asked, Reason: out.exit.String()}
	switch {
	case l.killed && out.exit.Signal == sigKill:
		ev.Reason = "killed: " + l.killReason
	case l.killed: // it ended before the kill, and how it ended says more
		ev.Reason += " (before it was killed: " + l.killReason + ")"
	case asked && out.exit.Reason == "" && out.exit.Signal == sigKill:
		ev.Reason = "killed: it had not ended when it was asked to"
	case !asked && out.exit.Reason == "" && out.exit.Code == 0:
		ev.Reason += ", although it was not asked to end"
		if l.readyAt.IsZero() {
			ev.Reason += ", and has not served: the last line of its program must be xebec.serve(predict), or in Go xebec.Serve(predict)"
		}
	}
	sl.attempt, sl.pid, sl.quiet = nil, 0, false
	sl.layers, sl.missing = nil, nil
	sl.lastExit, sl.lastExitAt, sl.lastExitLines = ev.Reason, out.exit.At, lines
	var delay time.Duration
	if asked {
		sl.setState(Stopping)
		if healthy > 0 && healthy >= s.cfg.Backoff.Healthy {
			s.failures = 0
		}
	} else {
		delay = sl.failed(healthy, out)
		ev.Next = sl.next
	}
	s.mu.Unlock()

	what := fmt.Sprintf("replica %d of %s: %s", l.replica, s.cfg.Model, ev.Reason)
	if !asked {
		what += fmt.Sprintf("; next attempt in %v", delay.Round(time.Millisecond))
	}
	s.logs.Add(l.replica, System, what)
	if out.prepared {
		s.cfg.Event(ev)
	}
	return delay
}

// healthy is how long the attempt's replica had been ready; 0: it never was. The caller holds set.mu.
func (l *attempt) healthy(end time.Time) time.Duration {
	if l.readyAt.IsZero() {
		return 0
	}
	return max(1, end.Sub(l.readyAt))
}

// failed counts the failure and computes the next attempt. A replica that was lost with a part of the runtime says
// nothing about its model: that is no failure, and has a delay of its own so that it cannot repeat without a pause. The
// caller holds set.mu.
func (sl *slot) failed(healthy time.Duration, out outcome) (delay time.Duration) {
	cfg := &sl.set.cfg
	u := cfg.Rand()
	sl.setState(BackingOff)
	if out.exit.cause() == Lost {
		sl.lost, delay = cfg.Backoff.After(sl.lost, healthy, u)
		sl.next = time.Now().Add(delay)
		return delay
	}
	sl.lost = 0
	sl.failures, delay = cfg.Backoff.After(sl.failures, healthy, u)
	if out.permanent {
		half := cfg.Backoff.Max / 2
		delay = half + time.Duration(u*float64(cfg.Backoff.Max-half))
	}
	if out.permanent || sl.failures >= failedAfter {
		sl.setState(Failed)
	}
	sl.next = time.Now().Add(delay)
	sl.set.failures, sl.set.next = sl.failures, sl.next
	return delay
}

// stderrOf returns the last lines that a replica wrote to stderr.
func stderrOf(logs *Logs, replica uint64) []string {
	var text []string
	for _, line := range logs.tail(lastLines, func(l *Line) bool { return l.Replica == replica && l.Stream == Stderr }) {
		text = append(text, line.Text)
	}
	return text
}
