package declarations

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"go.uber.org/zap"
)

// A version is its bytes once it has served. One that never has may be declared again with other files: its author mends what keeps it
// from starting. So the store has a mark of each version that failed, loaded for long or was given up before it ever served. It is removed
// when a replica is ready after all; a version that starts at once costs the store nothing. A version without a mark counts as one that has
// served, unless this process knows it since its declaration.
//
// Where gateways share a store, only a mark counts: another gateway may serve what fails to start here. A gateway that has served a version
// removes a mark that another one makes. It cannot do so when it has ended before.

// kindUnserved is the kind of the marks in the store, which have the names of their models' objects.
const kindUnserved = "Unserved"

// marksAtOnce bounds the marks that one commit makes and removes.
const marksAtOnce = 1000 //xebec:limit marks of versions that have never served in one commit

func unservedKey(id api.ModelID) state.ObjectKey {
	return state.ObjectKey{Kind: kindUnserved, Name: id.String()}
}

// unservedMark is the mark as the store keeps it.
func unservedMark(id api.ModelID) state.Object {
	data, err := json.Marshal(map[string]string{"kind": kindUnserved, "name": id.Name, "version": id.Version})
	if err != nil {
		panic(err) // strings can be written
	}
	return state.Object{ObjectKey: unservedKey(id), Data: data}
}

// replaceable reports whether the version may be declared with other files, because it has never served.
func (d *Declarations) replaceable(s *versions.State, v *versions.Version) bool {
	return v.Source == versions.Applied && s.Unserved(v) && (!d.shared() || d.unserved[v.ID()])
}

// withoutMarks are the objects of the store that are not marks.
func withoutMarks(objects []state.Object) []state.Object {
	isMark := func(o state.Object) bool { return o.Kind == kindUnserved }
	if !slices.ContainsFunc(objects, isMark) {
		return objects
	}
	return slices.DeleteFunc(slices.Clone(objects), isMark)
}

// takeMarks takes in the marks of the store, after its models. complete says that there are no others.
func (d *Declarations) takeMarks(s *versions.State, objects []state.Object, complete bool) {
	was := map[api.ModelID]bool{}
	if complete {
		was = maps.Clone(d.unserved)
	}
	for _, o := range objects {
		id, err := api.ParseModelRef(o.Name)
		if o.Kind != kindUnserved || err != nil {
			continue
		}
		v := s.Version(id)
		if o.Data == nil {
			was[id] = true
			continue
		}
		delete(was, id)
		d.unserved[id] = true
		if v == nil || !s.MarkUnserved(v) {
			d.noteUnserved(id)
		}
	}
	for id := range was { // another gateway has removed the mark
		if d.ledger.isLost(unservedKey(id)) {
			continue
		}
		delete(d.unserved, id)
		if v := s.Version(id); v != nil {
			s.MarkServed(v)
		}
	}
}

// NoteUnserved has the mark of a version follow what became of it: it has failed before it ever served, or serves. It does not block, and is
// called with the catalog's lock held.
func (d *Declarations) NoteUnserved(id api.ModelID) {
	d.noteUnserved(id)
	d.storeMarks()
}

func (d *Declarations) noteUnserved(id api.ModelID) {
	d.marks.Lock()
	defer d.marks.Unlock()
	if d.marks.pending == nil {
		d.marks.pending = map[api.ModelID]bool{}
	}
	d.marks.pending[id] = true
}

// storeMarks stores in the background what was noted, one commit at a time. What the store does not take now is tried again with the next
// note, or when the store has been read.
func (d *Declarations) storeMarks() {
	if d.cfg.Background == nil || d.cfg.Store == nil {
		return
	}
	d.marks.Lock()
	begin := !d.marks.storing && len(d.marks.pending) > 0 && d.cfg.Life.Err() == nil
	d.marks.storing = d.marks.storing || begin
	d.marks.Unlock()
	if !begin {
		return
	}
	d.cfg.Background(func() {
		for {
			ids := d.takeNoted()
			if ids == nil {
				return
			}
			ctx := api.WithCaller(d.cfg.Life, api.Caller{Name: "unserved"})
			_, err := d.change(ctx, false, func(s *versions.State) (*edit, error) { return d.planMarks(s, ids), nil })
			if err == nil {
				continue
			}
			if ctx.Err() == nil {
				d.cfg.Log.Warn("it is not stored yet which versions have never served", zap.Int("versions", len(ids)), zap.Error(err))
			}
			for _, id := range ids {
				d.noteUnserved(id)
			}
			d.marks.Lock()
			d.marks.storing = false
			d.marks.Unlock()
			return
		}
	})
}

// takeNoted takes what was noted; nil: there is nothing, and the job has ended.
func (d *Declarations) takeNoted() (ids []api.ModelID) {
	d.marks.Lock()
	defer d.marks.Unlock()
	for id := range d.marks.pending {
		if ids = append(ids, id); len(ids) == marksAtOnce {
			break
		}
	}
	for _, id := range ids {
		delete(d.marks.pending, id)
	}
	d.marks.storing = len(ids) > 0
	return ids
}

// planMarks is the change of the marks of these versions.
func (d *Declarations) planMarks(s *versions.State, ids []api.ModelID) *edit {
	e := &edit{}
	for _, id := range ids {
		v := s.Version(id)
		wanted := v != nil && v.Source == versions.Applied && s.Unserved(v) && (d.unserved[id] || s.Failed(v))
		switch {
		case wanted && !d.unserved[id]:
			e.unserved = append(e.unserved, id)
		case !wanted && d.unserved[id]:
			e.drop = append(e.drop, unservedKey(id))
		}
	}
	e.install = func(s *versions.State) error {
		for _, id := range e.unserved {
			d.unserved[id] = true
		}
		for _, key := range e.drop {
			if id, err := api.ParseModelRef(key.Name); err == nil {
				delete(d.unserved, id)
			}
		}
		return nil
	}
	return e
}

// dropMark removes a version's mark with the version.
func (d *Declarations) dropMark(e *edit, id api.ModelID) {
	if d.unserved[id] {
		e.drop = append(e.drop, unservedKey(id))
	}
}
