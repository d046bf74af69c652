package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	minTopEvery  = 100 * time.Millisecond
	maxTopEvery  = time.Hour
	maxTopFrames = 1_000_000
	// defaultTopRows is what a person reads of a table that does not scroll.
	defaultTopRows = 20
)

// topOptions are the flags of "xebec top".
type topOptions struct {
	every  time.Duration
	frames int
	rows   int
	format string
}

func (c *cli) topCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch functions, models and the gateway live",
		Long: `Watch functions, models and the gateway live: queries a second and latencies of the last seconds, errors, shares, queues, batches.

On a terminal the view is refreshed until you press q. Keys: f functions, m models (or Tab), s sorts by queries, p99 or name, / shows
only names with what you type (Enter ends it, Esc shows all again), arrows, PgUp, PgDn, Home and End scroll.

Elsewhere, and with -n or -o json, so many views are printed one after the other, each of the time since the one before.`,
		Example: `  xebec top
  xebec top -n 1
  xebec top -n 60 -o json > minute.jsonl`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.format != formatTable && o.format != formatJSON:
				return usagef("-o %s: expected table or json", o.format)
			case o.every < minTopEvery || o.every > maxTopEvery:
				return usagef("--every %s: expected %s to %s", o.every, minTopEvery, maxTopEvery)
			case o.frames < 1 || o.frames > maxTopFrames:
				return usagef("-n %d: expected 1 to %d", o.frames, maxTopFrames)
			case o.rows < 0:
				return usagef("--rows %d: expected 0, for all, or more", o.rows)
			}
			if !cmd.Flags().Changed("count") && o.format == formatTable && isTerminal(c.out) && c.getenv("TERM") != "dumb" {
				// Without a terminal to read keys from (a job in the background of nothing) there are frames, as anywhere else.
				if t, err := openTerminal(); err == nil {
					return c.topLive(cmd.Context(), t, o.every)
				}
			}
			return c.topFrames(cmd.Context(), o)
		},
	}
	cmd.Flags().DurationVar(&o.every, "every", time.Second, "how often the gateway is asked")
	cmd.Flags().IntVarP(&o.frames, "count", "n", 1, "print so many views, and end")
	cmd.Flags().IntVar(&o.rows, "rows", defaultTopRows, "how many rows of a table are printed; 0: all")
	cmd.Flags().StringVarP(&o.format, "output", "o", formatTable, "what to print: table, json (one object a view, with all rows)")
	return cmd
}

// topFrames prints views. The first one has a poll before it too, for the sake of what only a difference tells.
func (c *cli) topFrames(ctx context.Context, o topOptions) error {
	before, err := c.topPoll(ctx)
	if err != nil {
		return err
	}
	for n := range o.frames {
		if !pause(ctx, o.every) {
			return nil // interrupted: that is how one ends it early
		}
		now, err := c.topPoll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		frame := frameOf(before, now)
		before = now
		var text string
		if o.format == formatJSON {
			object, err := json.Marshal(frame)
			if err != nil {
				return err
			}
			text = string(object) + "\n"
		} else {
			if n > 0 {
				text = "\n"
			}
			text += topView{}.text(frame, o.rows)
		}
		if _, err := io.WriteString(c.out, text); err != nil {
			return err
		}
	}
	return nil
}

// pause waits, and reports whether it was not interrupted.
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

// topPolled is what became of a poll.
type topPolled struct {
	snapshot *topSnapshot
	err      error
}

// topLive shows the view until its person has seen enough, ctx ends, or the terminal has gone. It closes the terminal.
func (c *cli) topLive(ctx context.Context, t *terminal, every time.Duration) error {
	defer t.f.Close()
	first, err := c.topPoll(ctx) // what is wrong from the start is said as any command says it
	if err != nil {
		return err
	}
	// Signals are caught before the terminal is held: one that came between would leave it so.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGHUP)
	defer signal.Stop(signals)
	defer t.release()
	if err := t.hold(); err != nil {
		return fmt.Errorf("the terminal cannot be used: %w; try -n 1", err)
	}
	var reading sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	polls, keys := make(chan topPolled), make(chan []topKey)
	reading.Go(func() { c.topPolls(ctx, every, polls) })
	reading.Go(func() { t.read(ctx, keys) })
	defer reading.Wait()
	defer t.f.Close() // ends the read
	defer t.release()
	defer stop()

	s := &topScreen{terminal: t, before: first, frame: frameOf(nil, first), view: topView{colour: c.getenv("NO_COLOR") == ""}}
	for {
		if err := s.draw(); err != nil {
			return nil // nobody sees it any more
		}
		select {
		case <-ctx.Done():
			return nil
		case p := <-polls:
			s.polled(p)
		case pressed, ok := <-keys:
			if !ok || s.pressed(pressed) {
				return nil
			}
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				return nil
			}
			if sig == syscall.SIGTSTP {
				if err := t.suspend(); err != nil {
					return err
				}
			}
		}
	}
}

// topPolls polls until ctx ends. A poll that takes longer than every puts the next one off.
func (c *cli) topPolls(ctx context.Context, every time.Duration, polls chan<- topPolled) {
	for pause(ctx, every) {
		s, err := c.topPoll(ctx)
		select {
		case polls <- topPolled{s, err}:
		case <-ctx.Done():
		}
	}
}

// read hands on keys until the terminal is closed, and then closes the channel.
func (t *terminal) read(ctx context.Context, keys chan<- []topKey) {
	defer close(keys)
	var k keyReader
	buffer := make([]byte, 256)
	for {
		n, err := t.f.Read(buffer)
		if err != nil {
			return
		}
		select {
		case keys <- k.feed(buffer[:n]):
		case <-ctx.Done():
			return
		}
	}
}

// suspend leaves the terminal to the shell until the program is continued. Stopping takes effect when the kernel comes to it, perhaps
// after Kill has returned: only the signal to continue says that it is over.
func (t *terminal) suspend() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	t.release()
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-continued
	return t.hold()
}

// topScreen is the live view's state.
type topScreen struct {
	terminal *terminal
	before   *topSnapshot
	frame    *topFrame
	view     topView
}

// polled takes in a poll. When it failed the last figures stay, and the view says so: gateways are restarted.
func (s *topScreen) polled(p topPolled) {
	if p.err != nil {
		s.view.problem, _, _ = strings.Cut(p.err.Error(), "\n")
		return
	}
	s.view.problem = ""
	s.frame, s.before = frameOf(s.before, p.snapshot), p.snapshot
}

func (s *topScreen) pressed(keys []topKey) (quit bool) {
	_, height := s.terminal.size()
	for _, k := range keys {
		if s.view, quit = s.view.press(k, s.view.rows(s.frame), s.view.page(height)); quit {
			return true
		}
	}
	return false
}

// draw draws over what is there, in one write, so that nothing flickers; the lines are as many as the screen has.
func (s *topScreen) draw() error {
	width, height := s.terminal.size()
	frame := s.view.render(s.frame, width, height)
	// A line is cleared before it is written: after a full one the cursor stands on its last character.
	_, err := io.WriteString(s.terminal.f, toTheTop+clearLine+strings.ReplaceAll(frame, "\n", "\r\n"+clearLine))
	return err
}
