package watch

import (
	"context"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
)

// Limits of a watched directory.
const (
	// MaxVersions is how many version directories are looked at: beyond, a directory was named by mistake.
	MaxVersions = 65536
	// MaxTreeEntries and MaxTreeDepth bound what is compared of a version's directory.
	MaxTreeEntries = 10_000
	MaxTreeDepth   = 16
	// MaxProblems is how many problems a report has; one more says how many there are beside them.
	MaxProblems = 256
	// maxListing bounds what is read of a directory of models or of versions: beside the versions there can be other things.
	maxListing = 2 * MaxVersions
	// maxProblemBytes bounds the text of one problem, which can be that of a whole broken file.
	maxProblemBytes = 4 << 10
)

const (
	defaultEvery = time.Second
	// quietFor is how long nobody has touched a tree that the first scan takes at once: longer than any pause of a copy that goes on.
	quietFor = 10 * time.Second
	// racyFor is longer than the grain of any file system's times (FAT's is two seconds).
	racyFor = 2 * time.Second
)

// Config says what is watched.
type Config struct {
	// Dir is the directory of the models' directories.
	Dir string
	// Every is the pause between two scans of [Watcher.Run]; 1 s when it is not positive.
	Every time.Duration
	// Log is told of problems that come and go, by Run only; nil: nobody is.
	Log *zap.Logger
}

// Report is what a directory has. Its maps, slices and specs are shared with later reports: they are for reading.
type Report struct {
	// Models are all versions that can be used, by the model's name, oldest first (the order of [api.CompareVersions]). Dir is the
	// version's directory, an absolute path.
	Models map[string][]api.ModelSpec
	// Functions are those that the versions declare, by name. What they need may not be in the directory: that is for the reader to check.
	Functions []api.FunctionSpec
	// Problems are what keeps something from being as it lies there, by model and version.
	Problems []Problem
	// Complete says that the directory could be read. Otherwise the rest is what it had when it could be, and nothing may be concluded from
	// what is missing.
	Complete bool
	// Settling says that there are versions which have been seen and will be judged at one of the next looks.
	Settling bool
}

// Problem is one thing in the directory that is not as it should be.
type Problem struct {
	// Name and Version are those of its path; empty where it is about more than one.
	Name, Version string
	// Message says where, what, what was expected and what to do. It begins with the path.
	Message string
}

// String is the message.
func (p Problem) String() string { return p.Message }

// Watcher looks at one directory. It is for one goroutine.
type Watcher struct {
	dir         string
	every       time.Duration
	log         *zap.Logger
	now         func() time.Time
	seed        maphash.Seed
	maxVersions int // versions: MaxVersions

	scans    int
	nowNanos int64 // of this scan
	// root is the directory's listing, filled whether it ever had anything in it; problem says why it cannot be read.
	root       listing
	wasFilled  bool
	problem    string
	models     map[string]*model
	count      int // versions of all models
	excess     int // version directories that were too many, in this scan
	lastExcess int // and in the last one
	// owners are the models whose functions were reported.
	owners map[string]string
	// dirty: the next report may differ from last.
	dirty bool
	last  Report
	buf   []byte // of fingerprints
}

// New watches a directory, which need not be there yet.
func New(c Config) *Watcher {
	w := &Watcher{
		dir: filepath.Clean(c.Dir), every: c.Every, log: c.Log, now: time.Now, seed: maphash.MakeSeed(), maxVersions: MaxVersions,
		models: map[string]*model{}, owners: map[string]string{},
	}
	if abs, err := filepath.Abs(c.Dir); err == nil { // else every scan will say what is wrong
		w.dir = abs
	}
	if w.every <= 0 {
		w.every = defaultEvery
	}
	if w.log == nil {
		w.log = zap.NewNop()
	}
	return w
}

// Scan looks once and says what there is now.
func (w *Watcher) Scan() Report {
	report, _ := w.scan()
	return report
}

// scan also says whether the report differs from the one before.
func (w *Watcher) scan() (report Report, changed bool) {
	w.nowNanos = w.now().UnixNano()
	w.scans++
	w.excess = 0
	w.scanRoot()
	if w.excess != w.lastExcess {
		w.lastExcess, w.dirty = w.excess, true
	}
	if !w.dirty && w.scans > 1 {
		return w.last, false
	}
	w.dirty = false
	report = w.build()
	changed = w.scans == 1 || !reflect.DeepEqual(report, w.last)
	w.last = report
	return report, changed
}

// Run scans until ctx ends and hands over the first report and each that differs from the one before. It returns between two scans.
func (w *Watcher) Run(ctx context.Context, report func(Report)) {
	var before []Problem
	pause := time.NewTimer(w.every)
	defer pause.Stop()
	for ctx.Err() == nil {
		r, changed := w.scan()
		if changed && ctx.Err() == nil {
			w.logChanges(before, r.Problems)
			before = r.Problems
			report(r)
		}
		pause.Reset(w.every)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// tell logs the problems that have come and gone.
func (w *Watcher) logChanges(before, after []Problem) {
	known := make(map[Problem]bool, len(before))
	for _, p := range before {
		known[p] = true
	}
	for _, p := range after {
		if !known[p] {
			w.log.Warn("watched models: problem",
				zap.String("model", p.Name), zap.String("version", p.Version), zap.String("problem", p.Message))
		}
		delete(known, p)
	}
	for _, p := range before {
		if known[p] {
			w.log.Info("watched models: problem resolved",
				zap.String("model", p.Name), zap.String("version", p.Version), zap.String("problem", p.Message))
		}
	}
}

// say replaces a problem's text.
func (w *Watcher) setProblem(problem *string, format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if len(text) > maxProblemBytes {
		text = strings.ToValidUTF8(text[:maxProblemBytes], "") + "…"
	}
	if *problem != text {
		*problem = text
		w.dirty = true
	}
}
