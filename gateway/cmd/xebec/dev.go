package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

const (
	// saveEvery is how often dev looks for changed files.
	saveEvery = 100 * time.Millisecond
	// maxWatchedFiles bounds what dev looks at.
	maxWatchedFiles = 10_000 //xebec:limit files of a directory that `xebec dev` watches
	// restless is how soon after a start a change may be the model's own, and howOften it then counts as that.
	restless = 2 * time.Second
	howOften = 3
)

func (c *cli) devCommand() *cobra.Command {
	o := benchOptions{listen: "127.0.0.1:0"}
	cmd := &cobra.Command{
		Use:   "dev DIR",
		Short: "Serve a model directory while you write it, and start the model again when a file changes",
		Long: `Serve the model of a directory while you write it. A gateway of its own answers on a free port, or on --listen, and keeps nothing. The
model runs in the directory itself, in front of you: its prints appear at once, its exceptions with their tracebacks, and breakpoint() works,
because no deadline ends a query before 10 minutes. When a file of the directory changes, the model is started again. Python models are
forked from a process that has imported their libraries, so that this takes milliseconds.

If the directory has a requirements.txt or a pyproject.toml, the model runs in an environment with what it asks for, which is built once, as a gateway
does, and again when the file changes.

dev differs from a deployed model in this: one replica, without isolation and limits, with your environment variables; no cache, no default output, no
warm-up, no validation.`,
		Example: `  xebec dev ./digits-svm
  xebec dev ./digits-svm --listen 127.0.0.1:8000`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.listen, err = hostPort("--listen", o.listen); err != nil {
				return err
			}
			o.stdout = c.out
			return c.dev(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().StringVar(&o.listen, "listen", o.listen, "address to serve the function at; port 0 is a free one")
	pythonFlag(cmd, &o)
	return cmd
}

func (c *cli) dev(ctx context.Context, dir string, o benchOptions) (err error) {
	if _, err := manifest.LoadModelDir(dir); err != nil {
		return err
	}
	b, err := c.newBench(ctx, dir, o)
	if err != nil {
		return err
	}
	defer keepTerminal(file(c.in))()
	defer func() {
		if bad := b.close(); err == nil {
			err = bad
		}
	}()
	d := &developing{bench: b, shown: dir, watch: watchedFiles{dir: b.dir}}
	d.files, _ = d.watch.look()
	set, err := b.load()
	if err != nil {
		return err
	}
	if err := b.declare(ctx, set); err != nil {
		return err
	}
	d.begin()
	looks, saves := time.NewTicker(benchPoll), time.NewTicker(saveEvery)
	defer looks.Stop()
	defer saves.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
			err = d.look(ctx)
		case <-saves.C:
			err = d.saved(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// keepTerminal returns a function that puts a terminal back into its present state, which a debugger that was killed has changed.
func keepTerminal(f *os.File) (restore func()) {
	if f == nil {
		return func() {}
	}
	return terminal.Keep(f)
}

// developing is a bench whose files change.
type developing struct {
	*bench
	shown string // the directory as it was typed
	watch watchedFiles
	files map[string]fileState

	began     time.Time // of the present start
	announced uint64    // the last replica that was announced
	greeted   bool
	lastError time.Time
	own       map[string]int // how often a file has changed right after a start
	unsettled []string       // changed in the last look
}

func (d *developing) begin() { d.began = time.Now() }

// look says when the model is ready, and what a model that is no Python failed with: one in Python says so itself.
func (d *developing) look(ctx context.Context) error {
	if d.set == nil {
		return nil
	}
	r, err := d.replica(ctx)
	if err != nil || r == nil {
		return err
	}
	if r.State == api.ReplicaReady && r.ID != d.announced {
		d.announced = r.ID
		d.announce(time.Since(d.began))
	}
	if r.LastErrorAt.After(d.lastError) && !strings.HasPrefix(filepath.Base(d.set.Models[0].Run.Command[0]), "python") {
		d.lastError = r.LastErrorAt
		d.say("%s", r.LastError)
	}
	return nil
}

func (d *developing) announce(took time.Duration) {
	m := &d.set.Models[0]
	if d.greeted {
		d.say("%s is ready after %s", m.Name, took.Round(time.Millisecond))
		return
	}
	d.greeted = true
	url := "http://" + d.gateway.Listen() + "/" + d.function() + "/predict"
	d.say("%s serves at %s. It is started again when a file in %s changes; Ctrl-C ends it. Try:", m.Name, url, d.shown)
	request, why := sampleRequest(m)
	switch {
	case len(m.Inputs) == 1 && m.Inputs[0].Media != "":
		fmt.Fprintf(d.c.err, "  curl %s -H 'Content-Type: %s' --data-binary @FILE\n", url, m.Inputs[0].Media)
	case why != "":
		fmt.Fprintf(d.c.err, "  curl %s --data-binary @FILE    # {\"input\": …}: %s\n", url, why)
	default:
		fmt.Fprintf(d.c.err, "  curl %s -d '%s'\n", url, request)
	}
}

// saved starts the model again if files have changed.
func (d *developing) saved(ctx context.Context) error {
	files, err := d.watch.look()
	if err != nil {
		return nil // a file has gone while it was looked at: the next look sees that
	}
	changed := changes(d.files, files)
	d.files = files
	for _, path := range changed {
		if !d.isOwn(path) && !slices.Contains(d.unsettled, path) {
			d.unsettled = append(d.unsettled, path)
		}
	}
	if len(changed) > 0 || len(d.unsettled) == 0 {
		return nil // an editor may write a file in several steps
	}
	changed, d.unsettled = d.unsettled, nil
	if slices.Contains(changed, manifest.ModelFile) || d.set == nil {
		set, err := d.load()
		if err != nil {
			d.say("%v", err)
			return nil
		}
		if d.set == nil || !reflect.DeepEqual(set.Models, d.set.Models) || !reflect.DeepEqual(set.Functions, d.set.Functions) {
			d.say("%s has changed", manifest.ModelFile)
			d.begin()
			d.greeted = false
			if err := d.declare(ctx, set); err != nil {
				d.say("%v", err)
			}
			return nil
		}
	}
	d.say("%s has changed", strings.Join(changed, ", "))
	d.begin()
	d.runtime.Restart()
	return nil
}

// isOwn reports whether a file seems to be written by the model at each of its starts. Sources are written by people.
func (d *developing) isOwn(path string) bool {
	if slices.Contains(sourceEnds, filepath.Ext(path)) || time.Since(d.began) > restless {
		delete(d.own, path)
		return false
	}
	if d.own == nil {
		d.own = map[string]int{}
	}
	if d.own[path]++; d.own[path] == howOften {
		d.say("%s changes at each start: it is not watched any more", path)
	}
	if d.own[path] >= howOften {
		d.watch.ignored = append(d.watch.ignored, path)
		return true
	}
	return false
}

// fileState is what changes with a file.
type fileState struct {
	size     int64
	modified time.Time
}

// watchedFiles are the files of a directory that a model may be made of.
type watchedFiles struct {
	dir     string
	known   map[string]bool // those of the first look
	ignored []string
}

// sourceEnds are the ends of names of files that are watched although they were not there at the first look. A model may write others.
var sourceEnds = []string{".py", ".yaml", ".yml", ".toml", ".go"}

// look returns the files by their paths in the directory.
func (w *watchedFiles) look() (map[string]fileState, error) {
	files := map[string]fileState{}
	err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case path == w.dir:
			return nil
		case e.IsDir() && (strings.HasPrefix(name, ".") || name == "__pycache__" || name == "node_modules"):
			return filepath.SkipDir
		case e.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~"):
			return nil
		case len(files) == maxWatchedFiles:
			return filepath.SkipAll
		}
		relative, err := filepath.Rel(w.dir, path)
		if err != nil || slices.Contains(w.ignored, relative) || w.known != nil && !w.known[relative] && relative != containers.RequirementsFile && !slices.Contains(sourceEnds, filepath.Ext(name)) {
			return err
		}
		info, err := e.Info()
		if err == nil {
			files[relative] = fileState{info.Size(), info.ModTime()}
		}
		return err
	})
	if err == nil && w.known == nil {
		w.known = make(map[string]bool, len(files))
		for path := range files {
			w.known[path] = true
		}
	}
	return files, err
}

// changes are the paths that differ, sorted.
func changes(before, after map[string]fileState) (all []string) {
	for path, state := range after {
		if before[path] != state {
			all = append(all, path)
		}
	}
	for path := range before {
		if _, still := after[path]; !still {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}
