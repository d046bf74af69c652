package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

const (
	// pollInterval is how often a waiting command polls. What it waits for takes seconds.
	pollInterval = 200 * time.Millisecond
	// quietTime is how long a command may be silent.
	quietTime = time.Second
	// unreadWithin is how long a change waits for a gateway that has just started. A store that is away longer needs an operator.
	unreadWithin = 10 * time.Second
)

// waitOptions are the flags of commands that wait for replicas.
type waitOptions struct {
	wait    bool
	timeout time.Duration
}

func (w *waitOptions) flags(cmd *cobra.Command, byDefault bool) {
	cmd.Flags().BoolVar(&w.wait, "wait", byDefault, "wait until every declared model is ready or has failed, for at most --timeout; true or false, such as --wait=false")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 2*time.Minute, "longest wait, such as 30s or 5m")
}

// waitFor waits until the declared models are ready. If one of them fails, it fails with the reason.
func (c *cli) waitFor(ctx context.Context, changes []api.Change, w waitOptions) error {
	if !w.wait {
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(w.timeout, cancel)
	defer late.Stop()
	p := progress{c: c, began: c.now(), building: func() { late.Reset(w.timeout) }}
	for _, ch := range changes {
		if ch.Kind != api.KindModel || ch.Action == api.Deleted {
			continue
		}
		if err := c.waitForModel(waiting, changeID(ch), &p); err != nil {
			if ctx.Err() == nil && waiting.Err() != nil {
				return fmt.Errorf("model %s is not ready after %s (--timeout); the gateway keeps trying: %q shows its status", changeID(ch), w.timeout, "xebec describe model "+ch.Name)
			}
			return err
		}
	}
	return nil
}

// waitForModel waits until a version has its replicas and may serve, which includes its validation. It does not wait
// for a version that is not to be loaded, such as one that is older than the newest.
func (c *cli) waitForModel(ctx context.Context, id api.ModelID, p *progress) error {
	return c.until(ctx, func() (bool, error) {
		m, may, err := c.judge(ctx, id, p)
		if err != nil {
			return false, err
		}
		if m.Version.Phase == api.PhaseDeclared && !m.Version.Aspired {
			fmt.Fprintf(c.err, "model %s is declared and not loaded: its traffic rules want other versions (%q shows them)\n", id, "xebec describe model "+id.Name)
			return true, nil
		}
		return may && answersNow(m), nil
	})
}

// onceRead makes a change, and makes it again while the gateway refuses it because it has not read everything that is declared.
func (c *cli) onceRead(ctx context.Context, change func() error) (err error) {
	waiting, cancel := context.WithTimeout(ctx, unreadWithin)
	defer cancel()
	p := progress{c: c, began: c.now()}
	waited := c.until(waiting, func() (bool, error) {
		err = change()
		var refused *remoteError
		if !errors.As(err, &refused) || refused.unread == "" {
			return true, nil
		}
		p.report("waiting until the gateway has read what is declared: " + c.clean(refused.unread))
		return false, nil
	})
	if waited != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// until polls until done returns true or an error, or ctx ends.
func (c *cli) until(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(c.pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// judge reports whether a version may serve, and its progress. It fails if the version will not serve without a change.
func (c *cli) judge(ctx context.Context, id api.ModelID, p *progress) (m *api.ModelStatus, may bool, err error) {
	models, err := c.models(ctx, id.Name)
	if err != nil {
		return nil, false, err
	}
	m = findVersion(models, id)
	if m == nil {
		return nil, false, fmt.Errorf("model %s does not exist, or was deleted", id)
	}
	if line := building(m); line != "" {
		p.report(c.clean(fmt.Sprintf("model %s is %s: %s", id, m.Version.Phase, line)))
		if p.building != nil {
			p.building() // the time of a build does not count
		}
	} else {
		p.report(fmt.Sprintf("model %s is %s, %s", id, m.Version.Phase, readyOf(m)))
	}
	switch {
	case m.Version.Phase == api.PhaseRejected:
		reason := m.Version.Reason
		if reason == "" {
			reason = "it did not pass its validation"
		}
		return nil, false, errors.New(c.cleanLines(fmt.Sprintf("model %s cannot serve: %s; %q shows the details", id, reason, "xebec describe model "+id.Name)))
	case m.State == api.ModelFailed:
		return nil, false, c.failure(m)
	case m.Version.Phase == api.PhaseDeclared && m.Version.Reason != "":
		return nil, false, errors.New(c.cleanLines(fmt.Sprintf("model %s is not loaded: %s", id, m.Version.Reason)))
	}
	return m, m.Version.Phase == api.PhaseAvailable, nil
}

// building is what the installer of a version's environment says, while it runs and there is no replica yet.
func building(m *api.ModelStatus) string {
	if len(m.Logs) == 0 || m.State == api.ModelReady || m.State == api.ModelFailed {
		return ""
	}
	if last := m.Logs[len(m.Logs)-1].Text; strings.HasPrefix(last, containers.EnvironmentPrefix) {
		return last
	}
	return ""
}

// failure says why a model has no replica. It prints the last lines of output, and returns how the last process ended.
func (c *cli) failure(m *api.ModelStatus) error {
	const lastLines = 10
	reason := "no replica came up"
	for _, r := range m.Replicas {
		if r.LastExit != "" {
			reason = r.LastExit
		}
	}
	logs := slices.DeleteFunc(slices.Clone(m.Logs), func(line api.LogLine) bool { return repeats(reason, line.Text) })
	for _, line := range logs[max(0, len(logs)-lastLines):] {
		fmt.Fprintln(c.err, c.logText(line))
	}
	return fmt.Errorf("model %s has failed: %s; the gateway keeps trying: %q shows more of its output", m.Spec.ID(), reason, "xebec logs "+m.Spec.Name)
}

// repeats reports whether a line of a model's log says what the reason says. A reason with several lines has those of the installer, and the
// gateway has written it to the log as a whole.
func repeats(reason, line string) bool {
	if !strings.Contains(reason, "\n") {
		return false
	}
	said, installer := strings.CutPrefix(line, containers.EnvironmentPrefix)
	return strings.Contains(line, reason) || installer && strings.Contains(reason, said)
}

func findVersion(models []api.ModelStatus, id api.ModelID) *api.ModelStatus {
	for i := range models {
		if models[i].Spec.ID() == id {
			return &models[i]
		}
	}
	return nil
}

// progress says on stderr what a command waits for, after quietTime and whenever it changes.
type progress struct {
	c     *cli
	began time.Time
	said  string
	// building, if not nil, is called while an environment is built.
	building func()
}

// report returns whether it has said the state, now or before.
func (p *progress) report(state string) bool {
	waited := p.c.now().Sub(p.began)
	if state == p.said || waited < quietTime {
		return state == p.said
	}
	p.said = state
	fmt.Fprintf(p.c.err, "%s (after %s)\n", state, waited.Round(time.Second))
	return true
}
