package measured

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// version is a version whose figures a test sets.
type version struct {
	id       api.ModelID
	print    string
	profile  *api.KnownProfile
	labels   uint64
	losses   float64
	drift    *api.DriftStatus
	recalled int
}

func (v *version) ID() api.ModelID           { return v.id }
func (v *version) Fingerprint() string       { return v.print }
func (v *version) Drifted() *api.DriftStatus { return v.drift }
func (v *version) Watched() bool             { return v.drift != nil }
func (v *version) Measured() (*api.KnownProfile, uint64, float64) {
	return v.profile, v.labels, v.losses
}

func (v *version) Recall(p api.KnownProfile) {
	v.recalled++
	if v.profile == nil {
		p.Kept = true
		v.profile = &p
	}
}

func (v *version) measure(batches uint64) *version {
	v.profile = &api.KnownProfile{InterceptMicros: 2000, SlopeMicros: 100, P99Micros: 5000, Batches: batches, MeanBatch: 4, At: time.Now().UTC(), Sizes: []api.SizeTime{{From: 4, To: 7, Batches: batches, MeanMicros: 2400}}}
	return v
}

func named(name, version_, print string) *version {
	return &version{id: api.ModelID{Name: name, Version: version_}, print: print}
}

// process is a gateway with some versions.
type process struct {
	*Keeper
	t        *testing.T
	backend  state.Backend
	versions []*version
	mine     bool
}

func start(t *testing.T, path, hardware string, versions ...*version) *process {
	t.Helper()
	p := &process{t: t, versions: versions, mine: true}
	cfg := Config{Hardware: hardware, Log: zap.NewNop(), Mine: func() bool { return p.mine }, Each: func(do func(Version)) {
		for _, v := range p.versions {
			do(v)
		}
	}}
	if path != "" {
		backend, err := state.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Notes, p.backend = backend, backend
	}
	p.Keeper = New(cfg)
	if err := p.Begin(bg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	if p.backend == nil {
		return
	}
	p.Flush(bg)
	if err := p.backend.Close(); err != nil {
		p.t.Error(err)
	}
	p.backend = nil
}

// names are those of the notes in the store.
func (p *process) names() (names []string) {
	p.t.Helper()
	notes, err := p.backend.ReadNotes(bg, series)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, n := range notes {
		names = append(names, n.Name)
	}
	return names
}

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "state.db") }

func TestFiguresSurviveARestart(t *testing.T) {
	path := file(t)
	v := named("m", "1", "files").measure(40)
	v.labels, v.losses = 10, 2
	v.drift = &api.DriftStatus{Validated: 100, Served: 300, Input: 0.4, Features: []api.FeatureDrift{{Name: "x", PSI: 0.4, Validated: "1", Served: "2"}}}
	first := start(t, path, "this", v)
	if st := first.Status(v); st == nil || st.Accuracy.Labels != 10 || st.Accuracy.Kept || st.Latency.Kept || st.Drift.Kept {
		t.Fatalf("before the restart: %+v", st)
	}
	first.stop()

	again := named("m", "1", "files")
	second := start(t, path, "this", again)
	second.Recall(again)
	st := second.Status(again)
	if st == nil || st.Latency == nil || st.Accuracy == nil || st.Drift == nil {
		t.Fatalf("after the restart: %+v", st)
	}
	if l := st.Latency; !l.Kept || l.Batches != 40 || l.InterceptMicros != 2000 || len(l.Sizes) != 1 || !l.At.Equal(v.profile.At) {
		t.Errorf("times after the restart: %+v", l)
	}
	if a := st.Accuracy; !a.Kept || a.Labels != 10 || a.Accuracy != 0.8 || a.At.IsZero() {
		t.Errorf("accuracy after the restart: %+v", a)
	}
	if d := st.Drift; !d.Kept || d.Served != 300 || d.Input != 0.4 || len(d.Features) != 1 {
		t.Errorf("drift after the restart: %+v", d)
	}

	// New figures replace old times and are added to old labels.
	again.measure(16)
	again.labels, again.losses = 10, 0
	second.look(bg)
	second.look(bg)
	st = second.Status(again)
	if st.Latency.Batches != 16 || st.Latency.Kept || st.Accuracy.Labels != 20 || st.Accuracy.Accuracy != 0.9 || st.Accuracy.Kept || !st.Drift.Kept {
		t.Errorf("after new figures: %+v, %+v, %+v", st.Latency, st.Accuracy, st.Drift)
	}
	second.stop()
	third := start(t, path, "this", named("m", "1", "files"))
	if st := third.Status(third.versions[0]); st == nil || st.Accuracy.Labels != 20 || st.Latency.Batches != 16 {
		t.Errorf("after the second restart: %+v", st)
	}
}

func TestOtherFilesStartFromNothing(t *testing.T) {
	path := file(t)
	v := named("m", "1", "files").measure(40)
	v.labels = 10
	first := start(t, path, "this", v)
	first.stop()
	other := named("m", "1", "other files")
	second := start(t, path, "this", other)
	second.Recall(other)
	if st := second.Status(other); st != nil || other.recalled > 0 {
		t.Errorf("a version of other files has %+v, and was given a profile %d times", st, other.recalled)
	}
	second.look(bg)
	if names := second.names(); len(names) != 0 {
		t.Errorf("the store keeps notes of files that are gone: %q", names)
	}
	// Before the files are known, nothing is said and nothing is lost.
	path = file(t)
	first = start(t, path, "this", named("m", "1", "files").measure(40))
	first.stop()
	unknown := named("m", "1", "")
	third := start(t, path, "this", unknown)
	third.look(bg)
	if st := third.Status(unknown); st != nil || len(third.names()) != 1 {
		t.Errorf("a version of unknown files has %+v, and the store has %q", st, third.names())
	}
	unknown.print = "files"
	third.look(bg)
	if st := third.Status(unknown); st == nil || st.Latency.Batches != 40 || unknown.recalled == 0 {
		t.Errorf("once its files are known, the version has %+v", st)
	}
}

func TestTimesOfOtherHardwareAreShownAndNotUsed(t *testing.T) {
	path := file(t)
	v := named("m", "1", "files").measure(40)
	first := start(t, path, "fast GPU", v)
	first.stop()
	here := named("m", "1", "files")
	second := start(t, path, "slow CPU", here)
	second.Recall(here)
	second.look(bg)
	st := second.Status(here)
	if st == nil || st.Latency != nil || here.recalled > 0 || len(st.Elsewhere) != 1 || st.Elsewhere[0].Hardware != "fast GPU" || st.Elsewhere[0].Latency.Batches != 40 {
		t.Fatalf("on other hardware: %+v", st)
	}
	here.measure(20)
	second.look(bg)
	if names := second.names(); len(names) != 2 {
		t.Errorf("two kinds of hardware have the notes %q", names)
	}
	second.stop()
	third := start(t, path, "fast GPU", named("m", "1", "files"))
	if st := third.Status(third.versions[0]); st.Latency.Batches != 40 || len(st.Elsewhere) != 1 || st.Elsewhere[0].Latency.Batches != 20 {
		t.Errorf("back on the first hardware: %+v", st)
	}
}

func TestARemovedVersionIsForgotten(t *testing.T) {
	path := file(t)
	one, two := named("m", "1", "files").measure(40), named("m", "10", "files").measure(40)
	first := start(t, path, "other", one, two)
	first.stop()
	one, two = named("m", "1", "files").measure(40), named("m", "10", "files").measure(40)
	p := start(t, path, "this", one, two)
	p.look(bg)
	if names := p.names(); len(names) != 4 {
		t.Fatalf("the notes are %q", names)
	}
	p.versions = p.versions[1:]
	p.look(bg)
	if names := p.names(); len(names) != 4 {
		t.Errorf("a version that nothing was said of lost its notes: %q", names)
	}
	p.Removed(one.id)
	p.look(bg)
	if names := p.names(); len(names) != 2 || !strings.HasPrefix(names[0], "m@10/") || !strings.HasPrefix(names[1], "m@10/") {
		t.Errorf("after the removal of m@1 the notes are %q", names)
	}
	p.Removed(two.id) // and it is declared again with the same files before the next look
	p.look(bg)
	if names := p.names(); len(names) != 2 {
		t.Errorf("a version that was declared again has the notes %q", names)
	}
	// Right after a restart, before the first look.
	p.stop()
	p = start(t, path, "this", named("m", "10", "files"))
	p.versions = nil
	p.Removed(two.id)
	p.look(bg)
	if names := p.names(); len(names) != 0 {
		t.Errorf("a version that was removed before the first look has the notes %q", names)
	}
}

func TestOnlyWhatHasChangedIsWritten(t *testing.T) {
	v := named("m", "1", "files").measure(40)
	p := start(t, file(t), "this", v, named("idle", "1", "files"))
	notes := &counting{Notes: p.backend}
	p.cfg.Notes = notes
	for range 3 {
		p.look(bg)
	}
	if notes.puts != 1 || len(p.kept) != 1 {
		t.Errorf("three looks at one figure write %d times, and %d versions are kept", notes.puts, len(p.kept))
	}
	v.measure(41)
	notes.err = os.ErrClosed
	p.look(bg)
	notes.err = nil
	p.look(bg)
	p.look(bg)
	if notes.puts != 3 {
		t.Errorf("a figure that the store took at the second attempt was written %d times more", notes.puts-1)
	}
	v.measure(42)
	p.mine = false
	p.look(bg)
	if notes.puts != 3 {
		t.Error("a process that was replaced writes")
	}
}

type counting struct {
	state.Notes
	puts int
	err  error
}

func (c *counting) PutNotes(ctx context.Context, series string, notes []state.Note, keep int) error {
	c.puts++
	if c.err != nil {
		return c.err
	}
	return c.Notes.PutNotes(ctx, series, notes, keep)
}

// TestFiguresFromBeforeTheStoreIsRead: a new process measures while the old one has the store.
func TestFiguresFromBeforeTheStoreIsRead(t *testing.T) {
	path := file(t)
	v := named("m", "1", "files").measure(40)
	v.labels, v.losses = 10, 5
	old := start(t, path, "this", v)
	old.stop()
	next := named("m", "1", "files")
	p := start(t, "", "this", next)
	next.labels, next.losses = 10, 0
	p.look(bg)
	backend, err := state.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p.cfg.Notes, p.backend = backend, backend
	if err := p.Begin(bg); err != nil {
		t.Fatal(err)
	}
	if st := p.Status(next); st.Accuracy.Labels != 20 || st.Accuracy.Accuracy != 0.75 || next.profile == nil || next.profile.Batches != 40 {
		t.Errorf("once the store is read: %+v, and the profile %+v", st.Accuracy, next.profile)
	}
}

func TestOldLabelsFade(t *testing.T) {
	v := named("m", "1", "files")
	p := start(t, "", "this", v)
	v.labels, v.losses = maxLabels, maxLabels // all wrong
	p.look(bg)
	v.labels += maxLabels // all right
	p.look(bg)
	v.labels += maxLabels / 2
	p.look(bg)
	if a := p.Status(v).Accuracy; a.Labels > maxLabels || a.Accuracy < 0.6 { // two thirds, as the first ones count half
		t.Errorf("after as many right ones again, and half as many: %+v", a)
	}
}

func TestTheOldestAreEvicted(t *testing.T) {
	p := start(t, "", "this")
	for i := range maxKept + 3 {
		v := named("m", fmt.Sprint(i+1), "files").measure(16)
		v.profile.At = time.Unix(int64(1000+i), 0)
		p.versions = append(p.versions, v)
	}
	p.look(bg)
	if len(p.kept) != maxKept || p.kept[p.versions[2].id] != nil || p.kept[p.versions[3].id] == nil {
		t.Errorf("%d versions are kept", len(p.kept))
	}
}

// whole is a note with all parts.
func whole(t testing.TB) []byte {
	t.Helper()
	v := named("m", "1", "files").measure(40)
	data, err := note{Model: "m@1", Fingerprint: "f", Hardware: "this", Latency: v.profile, Judged: &judged{10, 2, time.Now()}, Drift: &api.MeasuredDrift{
		DriftStatus: api.DriftStatus{Validated: 1, Served: 2, Input: 0.1, Features: []api.FeatureDrift{{Name: "x", PSI: 0.1, Validated: "a", Served: "b"}}}, At: time.Now(),
	}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNotesThatCannotBe(t *testing.T) {
	now := time.Now()
	if n, err := decode(whole(t), now); err != nil || n.empty() {
		t.Fatalf("a whole note is %+v, %v", n, err)
	}
	for name, edit := range map[string]func(m map[string]any){
		"another format":  func(m map[string]any) { m["format"] = 2 },
		"no format":       func(m map[string]any) { delete(m, "format") },
		"a negative time": func(m map[string]any) { m["latency"].(map[string]any)["slope_micros"] = -1 },
		"no time at all": func(m map[string]any) {
			m["latency"].(map[string]any)["slope_micros"], m["latency"].(map[string]any)["intercept_micros"] = 0, 0
		},
		"an endless time":    func(m map[string]any) { m["latency"].(map[string]any)["intercept_micros"] = 1e300 },
		"no batches":         func(m map[string]any) { m["latency"].(map[string]any)["batches"] = 0 },
		"the future":         func(m map[string]any) { m["latency"].(map[string]any)["at"] = "2999-01-01T00:00:00Z" },
		"no date":            func(m map[string]any) { delete(m["judged"].(map[string]any), "at") },
		"more losses":        func(m map[string]any) { m["judged"].(map[string]any)["losses"] = 11 },
		"control characters": func(m map[string]any) { m["hardware"] = "a\x1b[2J" },
		"a long text":        func(m map[string]any) { m["model"] = strings.Repeat("m", maxText+1) },
		"sizes in disorder": func(m map[string]any) {
			m["latency"].(map[string]any)["sizes"] = []any{map[string]any{"from": 4, "to": 3}}
		},
		"many features": func(m map[string]any) {
			m["drift"].(map[string]any)["features"] = make([]map[string]any, maxFeatures+1)
		},
		"a hostile feature": func(m map[string]any) { m["drift"].(map[string]any)["features"] = []any{map[string]any{"name": "\n"}} },
		"a negative index":  func(m map[string]any) { m["drift"].(map[string]any)["input"] = -0.1 },
		"too many bytes":    func(m map[string]any) { m["more"] = strings.Repeat("x", maxNoteBytes) },
		"another type":      func(m map[string]any) { m["judged"] = "none" },
	} {
		var m map[string]any
		if err := json.Unmarshal(whole(t), &m); err != nil {
			t.Fatal(err)
		}
		edit(m)
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := decode(data, now); err == nil || !n.empty() {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// TestBadNotesAreSkipped: and the others are read.
func TestBadNotesAreSkipped(t *testing.T) {
	path := file(t)
	backend, err := state.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	good := bytes.ReplaceAll(whole(t), []byte(`"fingerprint":"f"`), []byte(`"fingerprint":"files"`))
	suffix := New(Config{Hardware: "this"}).suffix
	for name, data := range map[string][]byte{"m@1" + suffix: good, "m@2" + suffix: good, "a@1/x": []byte("{"), "b@1/x": []byte(`{"format":7,"anything":[]}`)} {
		if err := backend.PutNotes(bg, series, []state.Note{{Name: name, Data: data}}, 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := backend.Close(); err != nil {
		t.Fatal(err)
	}
	one, two := named("m", "1", "files"), named("m", "2", "files")
	p := start(t, path, "this", one, two)
	if p.Status(one) == nil || p.Status(two) != nil { // that of m@2 says that it is of m@1
		t.Errorf("m@1 has %+v, m@2 has %+v", p.Status(one), p.Status(two))
	}
}

func FuzzNote(f *testing.F) {
	f.Add(whole(f))
	f.Add([]byte(`{"format":1,"latency":{"batches":1,"slope_micros":1,"at":"2020-01-01T00:00:00Z","sizes":[{"from":1,"to":1}]}}`))
	now := time.Now()
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := decode(data, now)
		if err != nil {
			return
		}
		again, err := n.encode()
		if err != nil {
			t.Fatalf("%+v cannot be stored again: %v", n, err)
		}
		if _, err := decode(again, now); err != nil {
			t.Fatalf("%s cannot be read again: %v", again, err)
		}
	})
}

func TestHardware(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if h := hardware(proc, 1); !strings.HasSuffix(h, ", 1 core") || strings.HasPrefix(h, ",") {
		t.Errorf("a machine that says nothing is %q", h)
	}
	write("cpuinfo", "processor\t: 0\nmodel name\t: A  fast\x1b CPU\n\nmodel name\t: second\n")
	for i := range 2 {
		write(fmt.Sprintf("driver/nvidia/gpus/%d/information", i), "Model: \t\t NVIDIA H200\nIRQ: 1\n")
	}
	if h := hardware(proc, 4); h != "A fast CPU, 4 cores; NVIDIA H200" {
		t.Errorf("the machine is %q", h)
	}
}
