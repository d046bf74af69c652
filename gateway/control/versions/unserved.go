package versions

import (
	"time"

	"github.com/xebec-serving/xebec/gateway/registry"
)

// lateAfter is when a version that loads is noted as one that has not served: a restart must know that it may hang.
const lateAfter = 3 * time.Second

// Unserved reports whether the version is known to have never served: since it was declared callers could not reach a replica of it. A
// replica that is only warmed up and validated answers no caller.
func (s *State) Unserved(v *Version) bool { return v.unserved && !v.hasServed() }

// MarkUnserved says that the version has never served, as far as its declaration and the store tell. It reports whether that is true here.
func (s *State) MarkUnserved(v *Version) bool {
	v.unserved = true
	return !v.hasServed()
}

// MarkServed says that the version has served, here or elsewhere.
func (s *State) MarkServed(v *Version) { v.unserved = false }

// Failed reports whether the version cannot serve as it is: a start has failed, takes long or was given up, or it was rejected.
func (s *State) Failed(v *Version) bool {
	switch v.State {
	case registry.Rejected:
		return true
	case registry.Loading:
		return v.Failing() || v.Ready() == 0 && time.Since(v.since) >= lateAfter
	case registry.Draining, registry.Declared:
		return v.Failing() || v.tried
	}
	return v.Failing()
}

// hasServed reports whether callers could reach a replica of the version.
func (v *Version) hasServed() bool {
	return v.served || v.EverReady() && (!v.qualifies() || v.State == registry.Available)
}

// noteServed tells when a version that has never served has failed, and when it serves after all.
func (s *State) noteServed(v *Version) {
	first := !v.served && v.hasServed()
	v.served = v.served || first
	if !v.unserved || s.c.cfg.Unserved == nil {
		return
	}
	switch {
	case first:
		s.c.cfg.Unserved(v.ID())
	case !v.served && !v.noted && s.Failed(v):
		v.noted = true
		s.c.cfg.Unserved(v.ID())
	}
}
