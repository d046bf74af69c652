package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

const (
	// askAwaitedEvery is how often the old process asks what the new one waits for.
	askAwaitedEvery = time.Second
	// maxAwaited and maxAwaitedBytes bound what the new process says that it waits for.
	maxAwaited      = 20  //xebec:limit models that an upgrade waits for and that are shown by name
	maxAwaitedBytes = 300 // of each: a reference, and two numbers
)

// upgradeSteps says for people where a machine of a takeover is. A state without a step keeps the step before it.
var upgradeSteps = map[takeover.State]api.UpgradeStep{
	takeover.Preparing: api.UpgradePreparing, takeover.Loading: api.UpgradeLoading, takeover.LoadingAlone: api.UpgradeLoading,
	takeover.Trying: api.UpgradeCanary, takeover.Returning: api.UpgradeReturning, takeover.Releasing: api.UpgradeCommitting,
	takeover.Committing: api.UpgradeCommitting, takeover.Taking: api.UpgradeCommitting, takeover.Accepting: api.UpgradeCommitting,
	takeover.Served: api.UpgradeFinishing,
}

// underWay is the upgrade that this process is part of, for people. Its zero value is none.
type underWay struct {
	mu     sync.Mutex
	status *api.UpgradeStatus // nil: none
}

// begin notes an upgrade with another process. canary may be nil.
func (u *underWay) begin(role api.UpgradeRole, peer int, canary *takeover.Canary) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status = &api.UpgradeStatus{Role: role, Peer: peer, Since: time.Now(), Step: api.UpgradePreparing}
	if canary != nil {
		u.status.Share = canary.Share
	}
}

// at notes where the machine is.
func (u *underWay) at(state takeover.State) {
	step, ok := upgradeSteps[state]
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status == nil || !ok || u.status.Step == step {
		return
	}
	u.status.Step = step
	u.status.Awaited = nil
	if step == api.UpgradeFinishing && u.status.Role == api.UpgradeCanaryProcess {
		u.status.Role = api.UpgradeNew // it has been promoted
	}
}

// shownAwaited is what people are shown of what the new process waits for. It comes from another process, and is bounded here.
func shownAwaited(awaited []string) []string {
	shown := make([]string, 0, min(len(awaited), maxAwaited+1))
	for i, a := range awaited {
		if i == maxAwaited {
			shown = append(shown, fmt.Sprintf("%d more", len(awaited)-i))
			break
		}
		shown = append(shown, a[:min(len(a), maxAwaitedBytes)])
	}
	return shown
}

// await notes what the new process waits for.
func (u *underWay) await(shown []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status != nil && u.status.Step == api.UpgradeLoading {
		u.status.Awaited = shown
	}
}

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status = nil
}

// Upgrade is the upgrade that this process is part of; nil: none is under way.
func (s *Server) Upgrade() *api.UpgradeStatus {
	u := &s.underWay
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status == nil {
		return nil
	}
	st := *u.status
	st.Awaited = slices.Clone(st.Awaited)
	return &st
}

// askAwaited asks the new process what it waits for, while it loads, and tells the command when that changes.
func (g *giver) askAwaited() {
	look := time.NewTicker(askAwaitedEvery)
	defer look.Stop()
	told := ""
	for {
		ctx, cancel := context.WithTimeout(g.life, askWithin)
		var awaited []string
		if err := g.conn.Call(ctx, opAwaited, nil, &awaited); err == nil {
			shown := shownAwaited(awaited)
			if text := strings.Join(shown, ", "); text != "" && text != told {
				told = text
				g.progress(takeover.Progress{PID: g.conn.PID(), Stage: takeover.StageLoading, Reason: text})
			}
			g.underWay.await(shown)
		}
		cancel()
		select {
		case <-look.C:
		case <-g.loaded:
			return
		case <-g.decided:
			return
		case <-g.life.Done():
			return
		}
	}
}

// awaited is what this process, which takes over, has not loaded yet: notLoaded, as a list.
func (s *Server) awaited() []string {
	missing := s.capacity.Missing()
	if ok, why := s.status.Loaded(); !ok && len(missing) == 0 {
		missing = append(missing, why)
	}
	if more := len(missing) - maxAwaited; more > 0 {
		missing = append(missing[:maxAwaited], fmt.Sprintf("%d more", more))
	}
	return missing
}
