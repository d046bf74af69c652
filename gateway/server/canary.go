package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

const (
	// lookEvery is how often a canary is compared with the old process, and looksAtLeast how often a short one.
	lookEvery    = time.Second
	looksAtLeast = 20
	// lookWithin bounds how long a canary may take to say what it has answered.
	lookWithin = 10 * time.Second //xebec:limit time for a canary to say what it has answered
	// moreTime is how often a canary with too few answers is given its time again.
	moreTime = 2 //xebec:limit times that a canary with too few answers is given `--canary-time` once more
	// returnWithin bounds, beside --drain-timeout, how long a process that was sent back is waited for. It is killed then.
	returnWithin = 20 * time.Second //xebec:limit time for a canary that was sent back to end, beside `--drain-timeout`
)

// samples are what this process has answered.
func (s *Server) samples() samples {
	all := samples{}
	s.path.Endpoints(func(name string, e *obs.Endpoint) {
		if r := e.Read(); !r.Empty() {
			all[name] = r.Sample()
		}
	})
	return all
}

// answerNew answers what the new process asks.
func (g *giver) answerNew(op string, body []byte) (any, error) {
	guest := g.guest
	if g.released.Load() {
		guest = nil // the new process takes the store; the one goroutine that receives must not wait for that
	}
	return g.answer(askWithin, guest, op, body)
}

// try gives the new process a share of the connections, and compares.
func (g *giver) try() {
	share, there, err := accept.NewShare(g.canary.Share)
	if err == nil {
		err = g.conn.Send(takeover.KindTry, nil, there)
		there.Close()
		if err != nil {
			_ = share.Close()
		}
	}
	if err != nil {
		g.log.Warn("a process cannot be tried", zap.Int("process", g.conn.PID()), zap.Error(err))
		g.conn.EndReceive() // its end follows
		return
	}
	g.log.Info("a process is tried with a share of the connections", zap.Int("process", g.conn.PID()), zap.Float64("share", g.canary.Share), zap.Duration("for", g.canary.Time()))
	g.askOther(g.conn)
	began := g.samples()
	g.share = share
	g.function.SetShare(share)
	ctx, cancel := context.WithCancel(g.life)
	g.endTrial = cancel
	g.trying.Go(func() {
		good, why, err := g.compare(ctx, newTrial(began))
		if err != nil {
			if ctx.Err() != nil || g.conn.Ended() {
				return // another event says why
			}
			why = fmt.Sprintf("it does not say what it has answered: %v", err)
		}
		g.verdict = why // run reads it after the event
		e := takeover.Bad
		if good {
			e = takeover.Good
		}
		select {
		case g.events <- e:
		case <-ctx.Done():
		}
	})
}

// compare looks at both processes until the time is over, or the new one fails too often.
func (g *giver) compare(ctx context.Context, t *trial) (good bool, why string, err error) {
	began := time.Now()
	look := time.NewTicker(min(lookEvery, g.canary.Time()/looksAtLeast))
	defer look.Stop()
	over := time.NewTimer(g.canary.Time())
	defer over.Stop()
	more := moreTime
	for last := false; ; {
		select {
		case <-look.C:
		case <-over.C:
			last = true
		case <-ctx.Done():
			return false, "", ctx.Err()
		}
		var new samples
		within, cancel := context.WithTimeout(ctx, lookWithin)
		err := g.conn.Call(within, opSamples, nil, &new)
		cancel()
		if err != nil {
			return false, "", err
		}
		t.look(g.samples(), new)
		all := t.answers()
		g.progress(takeover.Progress{
			PID: g.conn.PID(), Stage: takeover.StageCanary, Share: g.canary.Share, Seconds: g.canary.Seconds, Elapsed: time.Since(began).Seconds(),
			Passed: g.share.Passed(), Answers: all.Answers, Errors: all.Failed,
		})
		if last && all.Answers < minAnswers && more > 0 {
			more--
			last = false
			over.Reset(g.canary.Time())
			continue
		}
		if last {
			good, why := t.verdict()
			return good, why, nil
		}
		if why := t.failing(); why != "" {
			return false, why, nil
		}
	}
}

// progress tells the command that has started the new process, if one has.
func (g *giver) progress(step takeover.Progress) {
	g.succession.mu.Lock()
	p := g.succession.started
	g.succession.mu.Unlock()
	if p != nil {
		p.progress(step)
	}
}

// promoted notes that the canary is good. There may have been none.
func (g *giver) promoted() {
	if g.canary == nil {
		return
	}
	g.log.Info("the canary is good: it takes over", zap.Int("process", g.conn.PID()), zap.String("why", g.verdict))
	g.progress(takeover.Progress{PID: g.conn.PID(), Stage: takeover.StagePromoted, Reason: g.verdict})
}

// sendBack lets things be changed again, and lets the new process answer what it has.
func (g *giver) sendBack(why error) {
	g.sentBack = fmt.Errorf("the canary, process %d, is sent back, and the old process serves all: %w", g.conn.PID(), why)
	g.resume(why)
	g.log.Warn("the canary is sent back", zap.Int("process", g.conn.PID()), zap.Error(why))
	g.progress(takeover.Progress{PID: g.conn.PID(), Stage: takeover.StageSentBack, Reason: why.Error()})
}

// returned is the end of a takeover that has failed. A process that was sent back and does not end is killed.
func (g *giver) returned(e takeover.Event) {
	if g.sentBack != nil && e == takeover.Expired {
		if err := g.conn.Kill(); err != nil {
			g.log.Error("the canary that was sent back cannot be ended", zap.Error(err))
		}
	}
}

// endShare passes on no more connections, and ends the trial.
func (g *giver) endShare() {
	if g.share == nil {
		return
	}
	g.endTrial()
	g.trying.Wait()
	g.function.SetShare(nil)
	_ = g.share.Close()
	g.share = nil
}

// beTried serves what the old process passes on.
func (s *Server) beTried() error {
	b := s.before
	var from = <-b.share // it came with the message
	if s.function == nil {
		return errors.Join(errors.New("a canary needs a function port: leave --listen as it is in the old process"), from.Close())
	}
	if err := s.function.Inherit(from); err != nil {
		return err
	}
	if s.handover != nil {
		s.handover.PassOn(farStore{b.conn})
		s.beginLearned()
	}
	s.askOther(b.conn)
	s.log.Info("taking over: serving a share of the connections", zap.Int("from_process", b.conn.PID()), zap.Float64("share", s.cfg.Canary.Share), zap.Duration("for", s.cfg.Canary.Time()))
	return s.serveFunctions()
}

// comeBack ends a canary that is sent back: what it has is answered, connections close with their next answer, and the old process gets
// what was learned and remembered.
func (s *Server) comeBack() {
	ctx, cancel := s.awaitingClients(context.Background())
	defer cancel()
	s.http.CloseAfterAnswers()
	if err := s.http.AwaitClosed(ctx); err != nil {
		s.log.Info("closing the connections that are left", zap.Error(err))
		last, cancel := context.WithTimeout(context.Background(), lastOfCanary)
		defer cancel()
		s.http.CloseQuiet(last)
	}
	s.endCanary()
	s.passOn(s.before.conn)
}

// endCanary ends the function port of a process that has not taken over; it may have none.
func (s *Server) endCanary() {
	if s.before == nil || s.http == nil || !s.ending.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastOfCanary)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn(err.Error())
	}
	_ = s.function.Close()
	s.ports.Wait()
}

// lastOfCanary bounds the end of a canary's port, after its connections have been waited for.
const lastOfCanary = 5 * time.Second //xebec:limit time for the last answers of a canary that was sent back
