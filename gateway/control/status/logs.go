package status

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
)

// Logs hands the last lines of a model's replicas to emit, and with Follow those that come.
func (r *Reader) Logs(ctx context.Context, q api.LogQuery, emit func(api.LogLine) error) error {
	var of []*deployment.Deployment
	s := r.cfg.Catalog.Lock()
	for id, v := range s.Versions() {
		if id.Name == q.Model && (q.Version == "" || q.Version == id.Version) {
			of = append(of, v.Deployment)
		}
	}
	r.cfg.Catalog.Unlock()
	if len(of) == 0 {
		ref := declarations.RefString(api.ModelID{Name: q.Model, Version: q.Version})
		if why := r.cfg.Declarations.Unread(); why != "" {
			return api.Errorf(api.Unavailable, "model %s is not known yet: %s", ref, why)
		}
		return api.Errorf(api.NotFound, "no model %s", ref)
	}
	for _, l := range lastLines(of, q.Lines) {
		if err := emit(l); err != nil {
			return err
		}
	}
	if !q.Follow {
		return nil
	}
	return follow(ctx, of, emit)
}

// lastLines merges the logs of several versions by time.
func lastLines(of []*deployment.Deployment, n int) []api.LogLine {
	var all []api.LogLine
	for _, d := range of {
		for _, l := range d.Logs().Tail(n) {
			all = append(all, logLine(d.ID().Version, l))
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Time.Before(all[j].Time) })
	if len(all) > n {
		all = all[len(all)-n:]
	}
	return all
}

func logLine(version string, l containers.Line) api.LogLine {
	stream := l.Stream.String()
	if l.Stream == containers.System {
		stream = "gateway"
	}
	return api.LogLine{Time: l.At, Version: version, Replica: l.Replica, Stream: stream, Text: l.Text}
}

// follow reads each version's log in a goroutine and hands everything to emit, one line at a time.
func follow(ctx context.Context, of []*deployment.Deployment, emit func(api.LogLine) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []api.LogLine)
	for _, d := range of {
		go func() {
			f := d.Logs().Follow(0)
			for {
				got, lost, err := f.Next(ctx)
				var out []api.LogLine
				if lost > 0 {
					out = append(out, api.LogLine{
						Time: time.Now(), Version: d.ID().Version, Stream: "gateway", Text: fmt.Sprintf("%d lines came faster than they could be read and are lost here", lost),
					})
				}
				for _, l := range got {
					out = append(out, logLine(d.ID().Version, l))
				}
				select {
				case lines <- out:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	for open := len(of); open > 0; {
		select {
		case out := <-lines:
			if out == nil {
				open--
			}
			for _, l := range out {
				if err := emit(l); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
