package versions

import (
	"context"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

// The first batch of a replica is often slow: libraries allocate, compile and start threads in it. A version that takes over under
// load would make every query wait for it. So a version that is to take over first evaluates a few queries that
// the serving one has answered while it loaded: a rehearsal. It proves nothing, and nothing of it decides whether the version serves.

const (
	// rehearseMost is the number of queries of the last round of a rehearsal: as many as Ask has in the queue at a time.
	rehearseMost = 64
	// rehearseEnough is how long rounds at full priority go on, each with twice as many queries as the one before.
	rehearseEnough = 250 * time.Millisecond
	rehearseWithin = 5 * time.Second //xebec:limit time for the warm-up with recent queries; what is slower takes over without it
)

// collectFor begins to collect queries for a version that loads, if it is to take over from one whose queries it can answer.
func (s *State) collectFor(f *Family, v *Version) {
	v.recent.Stop()
	v.recent = nil
	if serving := f.Versions[f.Serving]; s.takesOver(f, v) && v.Spec().WarmsUpWithRecent() && v.Spec().SameSignature(serving.Spec()) {
		v.recent = query.Collect(serving.Model())
	}
}

// rehearse makes a loaded version evaluate recent queries, and moves it on whatever comes of it.
func (s *State) rehearse(v *Version, recent [][]api.Value) {
	c := s.c
	v.qualifying++
	attempt := v.qualifying
	ctx, cancel := context.WithTimeout(c.cfg.Life, rehearseWithin)
	v.unqualify = cancel
	each := max(1, v.Ready())
	c.cfg.Background(func() {
		defer cancel()
		status := api.RehearsalStatus{At: time.Now(), Replicas: each, Recent: len(recent)}
		path := c.cfg.Path
		ask := func(ask func(context.Context, *query.Model, [][]api.Value, time.Duration) ([]query.Answer, error), n int) error {
			queries := make([][]api.Value, n)
			for i := range queries {
				queries[i] = recent[(status.Evaluated+i)%len(recent)]
			}
			answers, err := ask(ctx, v.Model(), queries, rehearseWithin)
			status.Evaluated += len(answers)
			for i := range answers {
				if answers[i].Code != api.OK {
					status.Failed++
				}
			}
			return err
		}
		err := ask(path.WarmUp, each) // while it is quiet
		v.Raise(ctx)
		for n, raised := each, time.Now(); err == nil && n <= rehearseMost && time.Since(raised) < rehearseEnough; n *= 2 {
			err = ask(path.Ask, n)
		}
		status.TookMS = time.Since(status.At).Milliseconds()
		if err != nil {
			status.Reason = err.Error()
		}
		s := c.Lock()
		defer c.Unlock()
		if v.State != registry.Validating || v.qualifying != attempt || s.versions[v.ID()] != v || s.stopping {
			return
		}
		v.rehearsal = &status
		c.cfg.Log.Info("version rehearsed with recent queries", zap.Stringer("model", v.ID()), zap.Int("queries", status.Evaluated), zap.Int("failed", status.Failed), zap.Int64("took_ms", status.TookMS))
		v.ForgetErrors()
		s.move(v, registry.Available, "")
		s.touch(v.ID().Name)
		c.kick()
	})
}
