package measured

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

const (
	// lookEvery is how often versions are looked at, so that each is written at most once in this time.
	lookEvery = 30 * time.Second //xebec:limit interval between writes of a version's measured performance
	// storeWithin bounds a call to the store.
	storeWithin = 5 * time.Second
	// maxKept bounds the notes of this hardware.
	maxKept = 4096 //xebec:limit versions whose measured performance is kept
	// maxLabels bounds the labels that count. When there are more, the weight of all is halved.
	maxLabels = 20_000 //xebec:limit labels behind a version's accuracy; older ones fade
	// series is where the notes are.
	series = "measured"
)

// Version is a model version that is measured. Its methods must not call back.
type Version interface {
	ID() api.ModelID
	// Fingerprint names what its performance follows from; empty: that is not known yet.
	Fingerprint() string
	// Measured is what was measured of it in this process, or recalled.
	Measured() (profile *api.KnownProfile, labels uint64, losses float64)
	// Drifted compares what it has served with what it was validated with; nil: there is nothing to compare.
	Drifted() *api.DriftStatus
	// Recall gives it the profile of an earlier process.
	Recall(api.KnownProfile)
}

// Config is what a Keeper needs of the gateway.
type Config struct {
	// Notes is the store; nil: nothing outlives the gateway.
	Notes state.Notes
	// Hardware is that of this machine.
	Hardware string
	// Each calls do for every version that is declared. do calls no other part of the gateway but the version.
	Each func(do func(Version))
	// Mine reports whether this process may write: another one that has taken over has the notes. Nil: it may.
	Mine func() bool
	Log  *zap.Logger
}

// Keeper keeps what was measured of all versions.
type Keeper struct {
	cfg    Config
	suffix string // of the names of this hardware's notes

	writing sync.Mutex // held by what writes and reads the store

	mu        sync.Mutex
	read      bool // the notes have been read
	kept      map[api.ModelID]*entry
	elsewhere map[api.ModelID][]note // of other hardware, as they were read
	removed   map[api.ModelID]bool   // versions that were removed since the last look that reached the store
	looks     uint64
}

// entry is what is known of one version on this hardware.
type entry struct {
	note
	of          Version // whose counters are in the figures; nil: none of this process
	look        uint64  // the last in which it was declared
	labels      uint64  // of the version's counters: those that are in the note
	losses      float64
	judgedHere  bool // labels have come in this process
	driftedHere bool
	stored      bool // the store has a note of this name
	changed     bool // the note is to be stored
}

// New makes a Keeper that knows nothing yet.
func New(cfg Config) *Keeper {
	sum := sha256.Sum256([]byte(cfg.Hardware))
	return &Keeper{cfg: cfg, suffix: "/" + hex.EncodeToString(sum[:8]), kept: map[api.ModelID]*entry{}, elsewhere: map[api.ModelID][]note{}, removed: map[api.ModelID]bool{}}
}

// Begin reads the notes, and gives the versions that there are already what they had. Without a store it does nothing. It may be called again
// until it has read them.
func (k *Keeper) Begin(ctx context.Context) error {
	if k.cfg.Notes == nil {
		return nil
	}
	k.writing.Lock()
	err := k.readNotes(ctx)
	k.writing.Unlock()
	if err != nil {
		return err
	}
	k.cfg.Each(k.Recall)
	return nil
}

func (k *Keeper) readNotes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	k.mu.Lock()
	read := k.read
	k.mu.Unlock()
	if read {
		return nil
	}
	notes, err := k.cfg.Notes.ReadNotes(ctx, series)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = true
	now := time.Now()
	for _, stored := range notes {
		n, err := decode(stored.Data, now)
		if err == nil && !strings.HasPrefix(stored.Name, n.Model+"/") {
			err = errors.New("it is of another version than its name says")
		}
		id, bad := api.ParseModelRef(n.Model)
		if err = cmp.Or(err, bad); err != nil {
			k.cfg.Log.Debug("what was measured of a version is skipped", zap.String("note", stored.Name), zap.Error(err))
			continue
		}
		if n.Latency != nil {
			n.Latency.Kept = true
		}
		if n.Hardware != k.cfg.Hardware {
			k.elsewhere[id] = append(k.elsewhere[id], n)
			continue
		}
		if e := k.kept[id]; e == nil {
			k.kept[id] = &entry{note: n, stored: true}
		} else { // a version was measured before the store could be read
			e.stored = true
			if e.Fingerprint == n.Fingerprint || e.Fingerprint == "" {
				e.inherit(n)
			}
		}
	}
	return nil
}

// inherit adds what was kept to what this process has measured since.
func (e *entry) inherit(n note) {
	if e.Latency == nil {
		e.Latency = n.Latency
	}
	if e.Drift == nil {
		e.Drift = n.Drift
	}
	switch {
	case n.Judged == nil:
	case e.Judged == nil:
		e.Judged = n.Judged
	default:
		e.Judged.Labels += n.Judged.Labels
		e.Judged.Losses += n.Judged.Losses
	}
	e.changed = true
}

// Recall gives a version the profile that was kept of it, if its fingerprint is the same. It is called with each new version, also with one that
// is not declared in the end, and does not block.
func (k *Keeper) Recall(v Version) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.kept[v.ID()]; e != nil && e.Latency != nil && e.Fingerprint == v.Fingerprint() {
		v.Recall(*e.Latency)
	}
}

// Removed says that a version is declared no more. It is called with locks of the caller held, and does not block. If the version
// is not declared again until the next look, its notes are deleted.
func (k *Keeper) Removed(id api.ModelID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed[id] = true
}

// bind makes the entry one of the version, which may be another one of the same name. The caller holds k.mu.
func (k *Keeper) bind(e *entry, v Version) {
	print := v.Fingerprint()
	if e.of == v && (e.Fingerprint == print || print == "") {
		if e.Latency != nil && e.Latency.Kept {
			v.Recall(*e.Latency)
		}
		return
	}
	if print == "" {
		return // its files are not known yet: the next look asks again
	}
	if e.of != v {
		e.of, e.labels, e.losses, e.judgedHere, e.driftedHere = v, 0, 0, false, false
	}
	if e.Fingerprint != print {
		if !e.empty() {
			e.changed = true
		}
		e.note = note{Model: v.ID().String(), Fingerprint: print, Hardware: k.cfg.Hardware}
	}
	if e.Latency != nil {
		v.Recall(*e.Latency)
	}
}

// Run looks at the versions until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := k.Begin(ctx); err != nil {
				k.cfg.Log.Debug("what was measured of versions cannot be read yet", zap.Error(err))
			}
			k.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Flush is a look at the end of the gateway, while it has its versions still, or before it hands the store over.
func (k *Keeper) Flush(ctx context.Context) { k.look(ctx) }

// look takes in what was measured, and stores what has changed. What the store does not take is tried again at the next look.
func (k *Keeper) look(ctx context.Context) {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	k.looks++
	k.mu.Unlock()
	var drifting []Version
	k.cfg.Each(func(v Version) {
		if k.takeIn(v, time.Now()) {
			drifting = append(drifting, v)
		}
	})
	for _, v := range drifting { // without the caller's locks: it takes a while
		if d := v.Drifted(); d != nil {
			k.takeDrift(v, d, time.Now())
		}
	}
	gone := k.sweep()
	if k.cfg.Notes == nil || k.cfg.Mine != nil && !k.cfg.Mine() {
		return
	}
	if err := k.store(ctx, gone); err != nil {
		k.cfg.Log.Debug("what was measured of versions is stored later", zap.Error(err))
	}
}

// takeIn takes in what was measured of a version, and reports whether its drift is to be asked.
func (k *Keeper) takeIn(v Version, now time.Time) (drifts bool) {
	profile, labels, losses := v.Measured()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.kept[v.ID()]
	if e == nil {
		if profile == nil && labels == 0 && !watched(v) {
			return false
		}
		e = &entry{}
		k.kept[v.ID()] = e
	}
	e.look = k.looks
	k.bind(e, v)
	if e.of != v {
		return false
	}
	if profile != nil && !profile.Kept && (e.Latency == nil || e.Latency.Kept || e.Latency.Batches != profile.Batches || !e.Latency.At.Equal(profile.At)) {
		e.Latency, e.changed = profile, true
	}
	e.fold(labels, losses, now)
	return watched(v)
}

// watched versions may drift.
func watched(v Version) bool {
	w, ok := v.(interface{ Watched() bool })
	return ok && w.Watched()
}

// fold adds the labels that have come since the last time.
func (e *entry) fold(labels uint64, losses float64, now time.Time) {
	n, sum := float64(labels-min(labels, e.labels)), losses-e.losses
	if n == 0 {
		return
	}
	if e.Judged == nil {
		e.Judged = new(judged)
	}
	j := *e.Judged // what Status has returned is not changed
	j.Labels, j.At = j.Labels+n, now.UTC()
	j.Losses = min(max(j.Losses+sum, 0), j.Labels)
	for j.Labels > maxLabels {
		j.Labels, j.Losses = j.Labels/2, j.Losses/2
	}
	e.Judged, e.labels, e.losses, e.judgedHere, e.changed = &j, labels, losses, true, true
}

func (k *Keeper) takeDrift(v Version, d *api.DriftStatus, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.kept[v.ID()]
	if e == nil || e.of != v {
		return
	}
	if e.driftedHere && e.Drift.Served == d.Served {
		return // no query since
	}
	e.Drift, e.driftedHere, e.changed = &api.MeasuredDrift{DriftStatus: *d, At: now.UTC()}, true, true
}

// sweep forgets the versions that were removed, and of too many those with the oldest figures. It returns those whose notes are to be deleted.
func (k *Keeper) sweep() (gone []api.ModelID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.removed {
		if e := k.kept[id]; e != nil && e.look == k.looks { // it was declared again
			delete(k.removed, id)
			continue
		}
		delete(k.kept, id)
		delete(k.elsewhere, id)
		gone = append(gone, id)
	}
	if k.cfg.Notes == nil {
		clear(k.removed)
	}
	if over := len(k.kept) - maxKept; over > 0 {
		all := make([]api.ModelID, 0, len(k.kept))
		for id := range k.kept {
			all = append(all, id)
		}
		slices.SortFunc(all, func(a, b api.ModelID) int { return k.kept[a].at().Compare(k.kept[b].at()) })
		for _, id := range all[:over] {
			delete(k.kept, id)
		}
		gone = append(gone, all[:over]...)
	}
	return gone
}

// store stores what has changed, and deletes the notes of versions that are gone, of all hardware.
func (k *Keeper) store(ctx context.Context, gone []api.ModelID) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	var notes []state.Note
	var of []*entry
	k.mu.Lock()
	if !k.read {
		k.mu.Unlock()
		return errors.New("its notes have not been read")
	}
	for id, e := range k.kept {
		if !e.changed || e.empty() && !e.stored {
			continue
		}
		n := state.Note{Name: id.String() + k.suffix}
		if !e.empty() { // else the note is deleted: it was of other files
			data, err := e.encode()
			if err != nil {
				k.cfg.Log.Warn("what was measured of a version is not kept", zap.Stringer("model", id), zap.Error(err))
				e.changed = false
				continue
			}
			n.Data = data
		}
		notes, of = append(notes, n), append(of, e)
		e.changed = false
	}
	k.mu.Unlock()
	var known []string // of versions that are gone
	for _, id := range gone {
		known = append(known, id.String())
	}
	err := k.put(ctx, notes)
	k.mu.Lock()
	for i, e := range of {
		if err != nil {
			e.changed = true
		} else {
			e.stored = len(notes[i].Data) > 0
		}
	}
	k.mu.Unlock()
	if err != nil || len(gone) == 0 {
		return err
	}
	stored, err := k.cfg.Notes.ReadNotes(ctx, series)
	if err != nil {
		return err
	}
	var dropped []state.Note
	for _, n := range stored {
		if model, _, ok := cutLast(n.Name, "/"); ok && slices.Contains(known, model) {
			dropped = append(dropped, state.Note{Name: n.Name})
		}
	}
	if err := k.put(ctx, dropped); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range gone {
		delete(k.removed, id)
	}
	return nil
}

// put writes some notes at a time.
func (k *Keeper) put(ctx context.Context, notes []state.Note) error {
	for some := range slices.Chunk(notes, 256) {
		if err := k.cfg.Notes.PutNotes(ctx, series, some, state.MaxNotes); err != nil {
			return err
		}
	}
	return nil
}

// cutLast cuts s around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// Status is what is known of a version now; nil: nothing.
func (k *Keeper) Status(v Version) *api.MeasuredStatus {
	profile, labels, losses := v.Measured()
	drift := v.Drifted()
	now := time.Now()
	out := &api.MeasuredStatus{Model: v.ID().String(), Hardware: k.cfg.Hardware, Latency: profile}
	if drift != nil {
		out.Drift = &api.MeasuredDrift{DriftStatus: *drift, At: now.UTC()}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.kept[v.ID()]; e == nil {
		if labels > 0 {
			out.Accuracy = accuracyOf(&judged{float64(labels), losses, now.UTC()}, true)
		}
	} else if k.bind(e, v); e.of == v {
		e.fold(labels, losses, now)
		if e.Judged != nil {
			out.Accuracy = accuracyOf(e.Judged, e.judgedHere)
		}
		if out.Latency == nil {
			out.Latency = e.Latency // it was recalled just now
		}
		if out.Drift == nil && e.Drift != nil {
			d := *e.Drift
			d.Kept = !e.driftedHere
			out.Drift = &d
		}
	}
	for _, n := range k.elsewhere[v.ID()] {
		if n.Latency != nil && n.Fingerprint == v.Fingerprint() {
			out.Elsewhere = append(out.Elsewhere, api.MeasuredElsewhere{Hardware: n.Hardware, Latency: *n.Latency})
		}
	}
	if out.Latency == nil && out.Accuracy == nil && out.Drift == nil && len(out.Elsewhere) == 0 {
		return nil
	}
	return out
}

// Judged is what an earlier process knew of a version from feedback, and when the last came. Zero: nothing, or there has been feedback since.
func (k *Keeper) Judged(v Version) (labels, losses float64, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.kept[v.ID()]
	if e == nil || e.Judged == nil || e.judgedHere || e.Fingerprint != v.Fingerprint() {
		return 0, 0, at
	}
	return e.Judged.Labels, e.Judged.Losses, e.Judged.At
}

func accuracyOf(j *judged, here bool) *api.MeasuredAccuracy {
	return &api.MeasuredAccuracy{Labels: uint64(math.Round(j.Labels)), Accuracy: 1 - j.Losses/max(j.Labels, 1), At: j.At, Kept: !here}
}
