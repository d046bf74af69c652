package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// maxZygotes bounds the zygotes of a host: each holds its libraries' memory (50 to 500 MiB) whether or not anything
	// is forked from it. Models with the same environment share one, and few hosts have more than a handful of
	// environments.
	maxZygotes = 8 //xebec:limit zygotes
	// maxRemembered bounds the records of zygotes that do not run: when they failed, and when they may be tried again.
	maxRemembered = 64
	// zygoteIdle is how long a zygote must have been unused before it is ended to make room. Otherwise nine
	// environments that take turns would make each launch wait for a new zygote.
	zygoteIdle = time.Minute //xebec:limit idle time after which a zygote may be replaced by another
	// zygoteWait is the age of an importing zygote at which launches stop waiting for it. Until then a process of its
	// own would not be faster, because it would import the same from the beginning.
	zygoteWait = 30 * time.Second //xebec:limit age of a zygote, still importing, at which launches stop waiting for it
)

// zygoteBackoff is how soon the next launch tries a failed zygote again: soon after a crash, and within minutes for
// modules that could not be imported and may have been repaired.
var zygoteBackoff = containers.Backoff{First: time.Second, Max: 5 * time.Minute, Healthy: time.Minute}

// zygotes is a Runtime's set of zygotes, at most one for each spec. It decides which ones run; zygote.go has what a
// single one does.
type zygotes struct {
	environ []string
	// wait and backoff are zygoteWait and zygoteBackoff, except in tests.
	wait    time.Duration
	backoff containers.Backoff

	mu      sync.Mutex
	byKey   map[string]*place
	closed  bool
	running sync.WaitGroup // the zygotes' goroutines
}

// place is the entry of one spec: a zygote, or the record of one that failed.
type place struct {
	spec   zygoteSpec
	zygote *zygote // nil: none runs
	// wanted: launches from it are announced. users is the number of launches that wait for it or fork from it now;
	// used is when the last of them was done.
	wanted bool
	users  int
	used   time.Time
	// failures is the number of failures in a row, and err the last one. No attempt is made until next.
	failures int
	err      error
	next     time.Time
}

func newZygotes(environ []string) *zygotes {
	return &zygotes{environ: environ, wait: zygoteWait, backoff: zygoteBackoff, byKey: map[string]*place{}}
}

// fork starts a launch by a fork of the spec's zygote, which it starts if there is none.
func (zs *zygotes) fork(ctx context.Context, k *link, s zygoteSpec, path string, l containers.Launch) (*instance, error) {
	zs.mu.Lock()
	p, err := zs.hold(k, s, time.Now())
	if err != nil {
		zs.mu.Unlock()
		return nil, err
	}
	z := p.zygote
	p.users++
	zs.mu.Unlock()
	defer func() {
		zs.mu.Lock()
		defer zs.mu.Unlock()
		p.users--
		p.used = time.Now()
	}()
	if !l.Quiet {
		z.urgentOnce.Do(func() { close(z.urgent) })
	}
	if err := zs.await(ctx, z); err != nil {
		return nil, err
	}
	return z.fork(ctx, zs.environ, path, l)
}

// await waits until the zygote can fork, or returns why the launch should not wait.
func (zs *zygotes) await(ctx context.Context, z *zygote) (err error) {
	late := time.NewTimer(time.Until(z.born.Add(zs.wait)))
	defer late.Stop()
	select {
	case <-z.ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = fmt.Errorf("its zygote has been importing for %v", zs.wait)
	}
	select {
	case <-z.ready: // ready takes precedence
		err = z.err
	default:
	}
	return err
}

// hold returns the place of a spec with a zygote in it, which may not be ready yet. The caller holds zs.mu.
func (zs *zygotes) hold(k *link, s zygoteSpec, now time.Time) (*place, error) {
	if zs.closed {
		return nil, errRuntimeClosed
	}
	key := s.key()
	p := zs.byKey[key]
	if p == nil {
		p = &place{spec: s}
	}
	if p.zygote != nil && p.zygote.link != k { // its reaper is gone, and so is the zygote
		zs.end(p, p.zygote, errors.New("its zygote has ended with its reaper"))
	}
	if p.zygote != nil {
		return p, nil
	}
	if now.Before(p.next) {
		return nil, fmt.Errorf("%w; the next attempt may be made in %v", p.err, p.next.Sub(now).Round(time.Second))
	}
	if !zs.makeRoom(now) {
		return nil, fmt.Errorf("there are %d zygotes, and none of them has been idle for %v", maxZygotes, zygoteIdle)
	}
	zs.byKey[key] = p
	p.used = now
	zs.forget(p)
	zs.start(k, p, now)
	return p, nil
}

// count returns the number of running zygotes. The caller holds zs.mu.
func (zs *zygotes) count() (n int) {
	for _, p := range zs.byKey {
		if p.zygote != nil {
			n++
		}
	}
	return n
}

// makeRoom ends a zygote if there are maxZygotes: the one that has been idle longest, preferring those without
// announced launches. It returns false if none is idle. The caller holds zs.mu.
func (zs *zygotes) makeRoom(now time.Time) bool {
	if zs.count() < maxZygotes {
		return true
	}
	var worst *place
	for _, p := range zs.byKey {
		if p.zygote == nil || p.users > 0 || now.Sub(p.used) < zygoteIdle {
			continue
		}
		if worst == nil || worst.wanted && !p.wanted || worst.wanted == p.wanted && p.used.Before(worst.used) {
			worst = p
		}
	}
	if worst == nil {
		return false
	}
	zs.end(worst, worst.zygote, nil)
	return true
}

// forget drops the least recently used place without a zygote if there are too many. The caller holds zs.mu.
func (zs *zygotes) forget(but *place) {
	if len(zs.byKey) <= maxRemembered {
		return
	}
	var oldest *place
	for _, p := range zs.byKey {
		if p != but && p.zygote == nil && (oldest == nil || p.used.Before(oldest.used)) {
			oldest = p
		}
	}
	delete(zs.byKey, oldest.spec.key()) // there is one: at most maxZygotes have a zygote
}

// start starts a place's zygote. The caller holds zs.mu.
func (zs *zygotes) start(k *link, p *place, now time.Time) {
	ctx, cancel := context.WithCancel(context.Background())
	z := &zygote{link: k, born: now, cancel: cancel, ready: make(chan struct{}), words: &stderrHead{}, turn: make(chan struct{}, 1), urgent: make(chan struct{})}
	z.broken = func(err error) {
		zs.mu.Lock()
		defer zs.mu.Unlock()
		zs.end(p, z, err)
	}
	p.zygote = z
	zs.running.Go(func() {
		z.broken(z.run(ctx, zs.environ, p.spec))
	})
}

// end ends a zygote, and removes it from its place if it is still there. With an error it counts as a failure; without
// one the zygote is not needed. The caller holds zs.mu.
func (zs *zygotes) end(p *place, z *zygote, err error) {
	z.cancel()
	if p.zygote != z {
		return
	}
	p.zygote = nil
	if err == nil {
		p.failures, p.next = 0, time.Time{}
		return
	}
	now := time.Now()
	var healthy, delay time.Duration
	select {
	case <-z.ready:
		if z.err == nil {
			healthy = max(1, now.Sub(z.since))
		}
	default:
	}
	p.failures, delay = zs.backoff.After(p.failures, healthy, rand.Float64())
	p.err, p.next = err, now.Add(delay)
	if healthy >= zs.backoff.Healthy {
		p.next = now // it was healthy for long enough, so try again at once
	}
}

// want sets which zygotes are needed. Missing ones are started while there is room. Those not needed are ended, and
// their records dropped.
func (zs *zygotes) want(k *link, specs []zygoteSpec) {
	zs.mu.Lock()
	defer zs.mu.Unlock()
	wanted := make(map[string]bool, len(specs))
	for _, s := range specs {
		wanted[s.key()] = true
	}
	for key, p := range zs.byKey {
		p.wanted = wanted[key]
		if p.wanted || p.users > 0 { // one in use is ended by the next call, or to make room
			continue
		}
		if p.zygote != nil {
			zs.end(p, p.zygote, nil)
		}
		delete(zs.byKey, key)
	}
	now := time.Now()
	for _, s := range specs {
		if p := zs.byKey[s.key()]; (p == nil || p.zygote == nil) && zs.count() >= maxZygotes {
			continue // the first launch makes room
		}
		if p, err := zs.hold(k, s, now); err == nil { // a launch will report why not
			p.wanted = true
		}
	}
}

// pids returns the processes of the zygotes that can fork, maxZygotes at most.
func (zs *zygotes) pids() (pids []int) {
	zs.mu.Lock()
	defer zs.mu.Unlock()
	for _, p := range zs.byKey {
		if p.zygote == nil {
			continue
		}
		select {
		case <-p.zygote.ready:
			if p.zygote.err == nil {
				pids = append(pids, p.zygote.in.PID())
			}
		default: // it is still importing, so its memory is not known yet
		}
	}
	return pids
}

// close ends all zygotes. They are gone when running is done, for which their link may have to be closed.
func (zs *zygotes) close() {
	zs.mu.Lock()
	zs.closed = true
	for _, p := range zs.byKey {
		if p.zygote != nil {
			zs.end(p, p.zygote, nil)
		}
	}
	zs.mu.Unlock()
}
