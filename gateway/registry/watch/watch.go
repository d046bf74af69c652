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

// Limits for a watched directory.
const (
	// MaxVersions is the most version directories that are examined: with more, the directory was probably named by
	// mistake.
	MaxVersions = 65536 //xebec:limit version directories in a watched directory
	// MaxTreeEntries and MaxTreeDepth bound how much of a version's directory is compared.
	MaxTreeEntries = 10_000 //xebec:limit files of a version that are compared to find out whether its copy is complete
	MaxTreeDepth   = 16     //xebec:limit nesting of these files
	// MaxProblems is the most problems in a report; one more gives the number of the others.
	MaxProblems = 256 //xebec:limit problems that are shown
	// maxListing bounds the entries of a directory of models or versions, which may have other entries.
	maxListing = 2 * MaxVersions
	// maxProblemBytes bounds the text of one problem, which may quote a whole broken file.
	maxProblemBytes = 4 << 10
)

const (
	defaultEvery = time.Second
	// quietFor is how long a tree must be unchanged for the first scan to accept it immediately: longer than any pause
	// during a copy.
	quietFor = 10 * time.Second //xebec:limit age of files that the first scan accepts at once
	// racyFor is longer than the resolution of any file system's times (two seconds on FAT).
	racyFor = 2 * time.Second
)

// Config configures a Watcher.
type Config struct {
	// Dir is the directory of the models' directories.
	Dir string
	// Every is the pause between scans in [Watcher.Run]; 1 s if it is not positive.
	Every time.Duration
	// Log receives problems that appear and disappear, from Run only; nil means no logging.
	Log *zap.Logger
}

// Report is the contents of a directory. Its maps, slices and specs are shared with later reports and must not be
// modified.
type Report struct {
	// Models has all usable versions by model name, oldest first (in the order of [api.CompareVersions]). Dir is the
	// version's directory, as an absolute path.
	Models map[string][]api.ModelSpec
	// Functions are those that the versions declare, by name. The consumer must check that their models exist.
	Functions []api.FunctionSpec
	// Problems are what prevents parts of the directory from being used, by model and version.
	Problems []Problem
	// Complete means that the directory could be read. Otherwise the report has its previous contents, and nothing
	// follows from what is missing.
	Complete bool
	// Settling means that some versions have been seen and will be judged in one of the next scans.
	Settling bool
}

// Problem is one thing that is wrong in the directory.
type Problem struct {
	// Name and Version are those of its path, or empty if it concerns more than one.
	Name, Version string
	// Message says where and what the problem is, what was expected and what to do. It begins with the path.
	Message string
}

// String returns the message.
func (p Problem) String() string { return p.Message }

// Watcher watches one directory. It is not safe for concurrent use.
type Watcher struct {
	dir         string
	every       time.Duration
	log         *zap.Logger
	now         func() time.Time
	seed        maphash.Seed
	maxVersions int // MaxVersions, except in tests

	scans    int
	nowNanos int64 // time of this scan
	// root is the directory's listing. wasFilled means that it ever had entries. problem is why it cannot be read.
	root       listing
	wasFilled  bool
	problem    string
	models     map[string]*model
	count      int // number of versions of all models
	excess     int // number of version directories beyond the limit, in this scan
	lastExcess int // and in the last one
	// owners maps functions to the models that declare them.
	owners map[string]string
	// dirty means that the next report may differ from last.
	dirty bool
	last  Report
	buf   []byte // for fingerprints
}

// New returns a Watcher for a directory, which need not exist yet.
func New(c Config) *Watcher {
	w := &Watcher{
		dir: filepath.Clean(c.Dir), every: c.Every, log: c.Log, now: time.Now, seed: maphash.MakeSeed(), maxVersions: MaxVersions,
		models: map[string]*model{}, owners: map[string]string{},
	}
	if abs, err := filepath.Abs(c.Dir); err == nil { // otherwise every scan reports the problem
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

// Scan scans once and reports the current contents.
func (w *Watcher) Scan() Report {
	report, _ := w.scan()
	return report
}

// scan also returns whether the report differs from the previous one.
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

// Run scans until ctx ends and calls report with the first report and with each that differs from the previous one. It
// returns between two scans.
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

// logChanges logs problems that have appeared or disappeared.
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

// setProblem replaces a problem's text.
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
