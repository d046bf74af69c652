package deployment

import (
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
)

// streams counts what becomes of the streams of a version. Versions that answer in single outputs have none.
type streams struct {
	outputs atomic.Uint64

	mu    sync.Mutex
	open  map[streamKey]struct{}
	ended api.StreamEnds
}

// streamKey is a stream's batch at its replica.
type streamKey struct{ replica, batch uint64 }

// more counts outputs after the first ones, as they come.
func (s *streams) more(outputs int) { s.outputs.Add(uint64(outputs)) }

// opened notes the first output of a stream.
func (s *streams) opened(replica, batch uint64) {
	s.outputs.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[streamKey{replica, batch}] = struct{}{}
}

// closed notes how a stream has ended. One whose only output comes with its end was never reported as opened; a query that ended without an
// output was no stream.
func (s *streams) closed(replica uint64, res *api.BatchResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := streamKey{replica, res.ID}
	_, open := s.open[k]
	delete(s.open, k)
	switch {
	case !open && res.Code == api.OK:
		s.outputs.Add(1)
		s.ended.Finished++
	case !open:
	case res.Withdrawn:
		s.ended.Left++
	case res.Code == api.OK:
		s.ended.Finished++
	default:
		s.ended.Failed++
	}
}

// lost ends the streams of a replica that is gone.
func (s *streams) lost(replica uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.open {
		if k.replica == replica {
			delete(s.open, k)
			s.ended.Lost++
		}
	}
}

func (s *streams) status() *api.StreamStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &api.StreamStatus{Open: len(s.open), Outputs: s.outputs.Load(), Ended: s.ended}
}

// StreamStatus is what became of the version's streams; nil if it has none.
func (d *Deployment) StreamStatus() *api.StreamStatus {
	if d.streams == nil {
		return nil
	}
	return d.streams.status()
}
