package watch

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// versionModel is the expected state of a version.
type versionModel struct {
	// there: the directory exists; marked: it has a marker; kind, max and venv describe its manifest.
	there, marked bool
	kind          kindOfManifest
	max           int
	venv          bool
	// changed: something in the tree changed since the last scan; manifestChanged: the manifest changed.
	changed, manifestChanged bool
	// same: number of consecutive unchanged scans while waiting; sameManifest: after being accepted.
	same, sameManifest int
	missed             int

	accepted     bool
	acceptedMax  int
	acceptedVenv bool
}

type kindOfManifest int

const (
	noManifest kindOfManifest = iota
	broken
	valid
)

func (b *versionModel) touch(manifest bool) {
	b.changed = true
	b.manifestChanged = b.manifestChanged || manifest
}

// scan applies a scan to the expected state. It returns false when the version is dropped.
func (b *versionModel) scan() bool {
	if !b.there {
		b.missed++
		if !b.accepted || b.missed >= 2 {
			return false
		}
		return true
	}
	b.missed = 0
	if b.marked {
		b.same, b.sameManifest, b.changed, b.manifestChanged = 0, 0, false, false
		return true
	}
	if b.changed {
		b.same = 0
	}
	if b.manifestChanged {
		b.sameManifest = 0
	}
	b.changed, b.manifestChanged = false, false
	b.same++
	b.sameManifest++
	switch {
	case b.kind != valid:
	case !b.accepted && b.same >= 2:
		b.accepted, b.acceptedMax, b.acceptedVenv = true, b.max, b.venv
		b.sameManifest = 2
	case b.accepted && b.sameManifest >= 2 && b.venv == b.acceptedVenv:
		b.acceptedMax = b.max
	}
	return true
}

// TestAgainstModel: for any changes to the versions of a directory, each scan reports what the package comment
// promises.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "watch")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		d := newDisk(t, dir)
		w := New(Config{Dir: dir})
		if rapid.Bool().Draw(t, "times are old enough") { // the times are old enough for what was read to be final
			w.now = func() time.Time { return time.Now().Add(time.Hour) }
		}
		d.mkdir("digits")
		w.Scan()
		world := map[string]*versionModel{}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"1", "2", "10"}).Draw(t, "version")
			b := world[name]
			path := "digits/" + name
			switch op := rapid.SampledFrom([]string{"scan", "scan", "scan", "scan", "mkdir", "manifest", "manifest", "break", "lose", "mark", "unmark", "file", "remove", "deploy", "away"}).Draw(t, "do"); {
			case op == "scan":
				for v, b := range world {
					if !b.scan() {
						if b.there {
							t.Fatal("an existing version was forgotten")
						}
						delete(world, v)
					}
				}
				expect(t, d, w.Scan(), world)
			case op == "deploy" && (b == nil || !b.there):
				max := rapid.IntRange(1, 9).Draw(t, "max")
				d.version("digits", name, fmt.Sprintf("batching: {max: %d}", max))
				b = ensureVersion(world, name)
				b.kind, b.max, b.venv = valid, max, false
			case op == "mkdir" && (b == nil || !b.there):
				d.mkdir(path)
				b = ensureVersion(world, name)
				b.kind = noManifest
			case b == nil || !b.there:
			case op == "manifest":
				b.kind, b.max, b.venv = valid, rapid.IntRange(1, 9).Draw(t, "max"), rapid.Bool().Draw(t, "venv")
				more := []string{fmt.Sprintf("batching: {max: %d}", b.max)}
				if b.venv {
					more = append(more, "python: venv")
				}
				d.write(path+"/xebec.yaml", manifestOf("digits", name, more...))
				b.touch(true)
			case op == "break":
				d.write(path+"/xebec.yaml", "name: [")
				b.kind = broken
				b.touch(true)
			case op == "lose" && b.kind != noManifest:
				d.remove(path + "/xebec.yaml")
				b.kind = noManifest
				b.touch(true)
			case op == "file":
				d.write(path+"/weights", fmt.Sprint(i))
				b.touch(false)
			case op == "mark":
				d.write(path+"/.incomplete", "")
				b.marked = true
				b.touch(false)
			case op == "unmark" && b.marked:
				d.remove(path + "/.incomplete")
				b.marked = false
				b.touch(false)
			case op == "remove", op == "away":
				if op == "remove" {
					d.remove(path)
				} else {
					d.move(path, fmt.Sprintf("digits/.away%d", i))
				}
				b.there = false
			}
		}
	})
}

// ensureVersion makes a version's directory exist, whether it was missing or unknown.
func ensureVersion(world map[string]*versionModel, name string) *versionModel {
	b := world[name]
	if b == nil {
		b = &versionModel{}
		world[name] = b
	}
	b.there, b.marked = true, false
	b.touch(true)
	return b
}

func expect(t *rapid.T, d *disk, r Report, world map[string]*versionModel) {
	t.Helper()
	var want strings.Builder
	for _, v := range slices.SortedFunc(maps.Keys(world), func(a, b string) int { return len(a)*10 + int(a[0]) - len(b)*10 - int(b[0]) }) {
		if b := world[v]; b.accepted {
			fmt.Fprintf(&want, " %s(max %d, venv %t)", v, b.acceptedMax, b.acceptedVenv)
		}
	}
	var got strings.Builder
	for _, m := range r.Models["digits"] {
		fmt.Fprintf(&got, " %s(max %d, venv %t)", m.Version, m.Batching.Max, m.Python != "")
	}
	if got.String() != want.String() {
		t.Fatalf("reported%s, expected%s\n%s", got.String(), want.String(), d.describe(r))
	}
	for v, b := range world {
		// A problem that persists is reported, and nothing else is.
		wrong := b.there && !b.marked && (!b.accepted && b.same >= 2 && b.kind != valid || b.accepted && b.sameManifest >= 2 && (b.kind != valid || b.venv != b.acceptedVenv))
		said := slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Version == v })
		if wrong && !said || said && !wrong && !b.accepted {
			t.Fatalf("version %s: has a problem: %t, expected %t\n%s", v, said, wrong, d.describe(r))
		}
	}
}
