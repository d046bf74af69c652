package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

// Watch passes count frames to each, one every interval. It polls once more before the first, because rates need two
// polls. It returns nil when ctx ends: that is how a user ends it early.
func Watch(ctx context.Context, poll Poller, every time.Duration, count int, each func(*Frame) error) error {
	before, err := poll(ctx)
	if err != nil {
		return err
	}
	for range count {
		if !pause(ctx, every) {
			return nil
		}
		now, err := poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(Compare(before, now)); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// pause reports whether the time passed without an interruption.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// ErrTerminal is in the error of [Live] when the terminal cannot be drawn on. Printing frames still works.
var ErrTerminal = errors.New("cannot use the terminal")

// Live shows the view on a terminal until the user quits, ctx ends or the terminal hangs up. It owns the terminal and
// closes it. An error of the first poll is returned before the screen changes; later ones are shown.
func Live(ctx context.Context, poll Poller, t *terminal.Terminal, every time.Duration, colour bool) error {
	defer t.Close()
	first, err := poll(ctx)
	if err != nil {
		return err
	}
	// Catch the signals before holding the terminal: a signal in between would leave the terminal held.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := t.Hold(); err != nil {
		return fmt.Errorf("%w: %w", ErrTerminal, err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	polls, keys := make(chan polled), make(chan []terminal.Key)
	running.Go(func() { pollEvery(ctx, poll, every, polls) })
	running.Go(func() { t.ReadKeys(ctx, keys) })
	defer running.Wait()
	defer t.Close() // ends ReadKeys
	defer stop()

	s := &screen{terminal: t, before: first, frame: Compare(nil, first), view: view{colour: colour}}
	for {
		if err := s.draw(); err != nil {
			return nil // the terminal hung up
		}
		select {
		case <-ctx.Done():
			return nil
		case p := <-polls:
			s.update(p)
		case pressed, ok := <-keys:
			if !ok || s.press(pressed) {
				return nil
			}
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				return nil
			}
			if sig == syscall.SIGTSTP {
				if err := t.Suspend(); err != nil {
					return err
				}
			}
		}
	}
}

// polled is the result of a poll.
type polled struct {
	snapshot *Snapshot
	err      error
}

// pollEvery polls until ctx ends. A slow poll delays the next one.
func pollEvery(ctx context.Context, poll Poller, every time.Duration, polls chan<- polled) {
	for pause(ctx, every) {
		s, err := poll(ctx)
		select {
		case polls <- polled{s, err}:
		case <-ctx.Done():
		}
	}
}

// screen is the state of the live view.
type screen struct {
	terminal *terminal.Terminal
	before   *Snapshot
	frame    *Frame
	view     view
}

// update shows a poll. If it failed, the last figures stay and the view says why: gateways get restarted.
func (s *screen) update(p polled) {
	if p.err != nil {
		s.view.problem, _, _ = strings.Cut(p.err.Error(), "\n")
		return
	}
	s.view.problem = ""
	s.frame, s.before = Compare(s.before, p.snapshot), p.snapshot
}

func (s *screen) press(keys []terminal.Key) (quit bool) {
	_, height := s.terminal.Size()
	for _, k := range keys {
		if s.view, quit = s.view.press(k, s.view.rows(s.frame), s.view.page(height)); quit {
			return true
		}
	}
	return false
}

func (s *screen) draw() error {
	width, height := s.terminal.Size()
	return s.terminal.Draw(s.view.render(s.frame, width, height))
}
