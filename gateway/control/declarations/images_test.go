package declarations

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/containerstest"
	"github.com/xebec-serving/xebec/containers/snapshot"
)

// imaged is the model from an image.
var imaged = strings.Replace(model, "{command: [python, model.py], env: {A: b}}", "{image: \"team/m:1\"}", 1)

var (
	firstID  = "sha256:" + strings.Repeat("1", 64)
	secondID = "sha256:" + strings.Repeat("2", 64)
	thirdID  = "sha256:" + strings.Repeat("3", 64)
	idOfM    = api.ModelID{Name: "m", Version: one}
)

// images is a runtime that has one image, whose name may move.
type images struct {
	containerstest.Idle
	mu  sync.Mutex
	now string
}

func (r *images) Resolve(context.Context, containers.Launch) (containers.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == "" {
		return containers.Image{}, errors.New("the engine is away")
	}
	return containers.Image{ID: r.now, Digest: r.now}, nil
}

func (r *images) move(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = id
}

// imageBench is a bench over an engine with an image. noted waits for what goes on in the background.
func imageBench(t *testing.T, cfg Config, set *manifest.Set) (b *bench, r *images, noted func()) {
	t.Helper()
	var background sync.WaitGroup
	cfg.Background = func(work func()) { background.Go(work) }
	b = newBench(t, cfg)
	t.Cleanup(background.Wait)
	r = &images{now: firstID}
	b.cfg.Host.Runtime = r
	if err := b.Begin(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	return b, r, background.Wait
}

// pin notes the image of the first replica of version 1, and waits until it is declared.
func (b *bench) pin(digest string) {
	b.t.Helper()
	b.Pinned(idOfM, digest)
	until(b.t, "the image to be declared", func() bool { return b.spec(one).ImageDigest == digest })
}

// applied applies a manifest of the model and returns what has become of it.
func (b *bench) applied(text string) api.Change {
	b.t.Helper()
	changes, err := b.Apply(context.Background(), decoded(b.t, text), false)
	if err != nil {
		b.t.Fatal(err)
	}
	return changes[0]
}

// A version that has served keeps the image of its first replica, whatever its name means later, also when the same manifest is applied again and after a restart. The
// same version with another digest is refused. The export has no image's id, which is one host's.
func TestAVersionKeepsItsImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b, r, _ := imageBench(t, Config{Store: fileStore(t, path)}, &manifest.Set{})
	b.mustApply(imaged)
	b.hasServed("m")
	b.pin(firstID)
	r.move(secondID)
	if c := b.applied(imaged); c.Action != api.Unchanged || b.spec(one).ImageDigest != firstID {
		t.Errorf("the same manifest: %+v, %s", c, b.spec(one).ImageDigest)
	}
	if c := b.applied(strings.Replace(imaged, "max: 2", "max: 3", 1)); c.Action != api.Updated || b.spec(one).ImageDigest != firstID {
		t.Errorf("with another bound: %+v, %s", c, b.spec(one).ImageDigest)
	}
	named := func(digest string) string { return imaged + "image_digest: \"" + digest + "\"\n" }
	err := b.apply(named(secondID))
	if code(err) != api.Conflict || !strings.Contains(err.Error(), "image_digest: the version exists with other bytes of its image ("+firstID+", not "+secondID+")") {
		t.Errorf("with other bytes: %v", err)
	}
	set, err := b.Export(context.Background())
	if err != nil || set.Models[0].ImageDigest != "" {
		t.Errorf("the export has %+v, %v", set, err)
	}
	inRepository := "registry.example.org/team/m@" + firstID
	if c := b.applied(named(inRepository)); c.Action != api.Updated || b.spec(one).ImageDigest != inRepository {
		t.Errorf("with the repository's name: %+v, %s", c, b.spec(one).ImageDigest)
	}
	if set, err = b.Export(context.Background()); err != nil || set.Models[0].ImageDigest != inRepository {
		t.Errorf("the export has %+v, %v", set, err)
	}
	b.stop()

	set = decoded(t, named(secondID)) // what --config says then
	b, _, _ = imageBench(t, Config{Store: fileStore(t, path)}, set)
	if got := b.spec(one).ImageDigest; got != inRepository {
		t.Errorf("after a restart it has %s", got)
	}
	if why := b.edited[idOfM]; !strings.Contains(why, "keeps the image that it has") {
		t.Errorf("the difference is shown as %q", why)
	}
}

// A version that has never served gets the image that its name means when it is declared again: its author has mended it.
func TestAVersionThatHasNeverServedGetsAnotherImage(t *testing.T) {
	b, r, _ := imageBench(t, Config{}, &manifest.Set{})
	b.mustApply(imaged)
	b.pin(firstID)
	if c := b.applied(imaged); c.Action != api.Unchanged {
		t.Errorf("the same image: %+v", c)
	}
	r.move("")
	if c := b.applied(imaged); c.Action != api.Unchanged {
		t.Errorf("without an engine: %+v", c)
	}
	r.move(secondID)
	if c := b.applied(imaged); c.Note != replacedNote || b.spec(one).ImageDigest != secondID {
		t.Errorf("another image: %+v, %s", c, b.spec(one).ImageDigest)
	}
}

// deploy --new-version takes the next version if the image's name has moved, and the one that has these bytes already if there is one. It does so for a change of what is
// fixed in the manifest, too.
func TestDeployOfAnotherImageAsANewVersion(t *testing.T) {
	snapshots, err := snapshot.Open(snapshot.Config{Dir: filepath.Join(t.TempDir(), "snapshots"), LimitBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := snapshots.Collect(nil, time.Now().Add(time.Hour)); err != nil { // read-only directories
			t.Error(err)
		}
	})
	b, r, _ := imageBench(t, Config{}, &manifest.Set{})
	b.cfg.Host.Snapshots = snapshots
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "xebec.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deploy := func() api.Change {
		t.Helper()
		changes, err := b.Deploy(context.Background(), api.Deployment{Dir: dir, NewVersion: true})
		if err != nil {
			t.Fatal(err)
		}
		return changes[0]
	}
	write(imaged)
	if c := deploy(); c.Version != one || c.Action != api.Created {
		t.Errorf("at first: %+v", c)
	}
	b.hasServed("m")
	b.pin(firstID)
	if c := deploy(); c.Version != one || c.Action != api.Unchanged {
		t.Errorf("the same image: %+v", c)
	}
	r.move(secondID)
	if c := deploy(); c.Version != "2" || c.Action != api.Created || b.spec("2").ImageDigest != secondID || b.spec(one).ImageDigest != firstID {
		t.Errorf("another image: %+v, %+v", c, b.spec("2"))
	}
	if c := deploy(); c.Version != "2" || c.Action != api.Unchanged {
		t.Errorf("that image again: %+v", c)
	}
	write(imaged + "limits: {cpu: 1}\n")
	if c := deploy(); c.Version != "3" || c.Action != api.Created {
		t.Errorf("with other limits: %+v", c)
	}
}

// An image's id is one host's, so it is not put into a store that hosts share; a digest that a repository has is.
func TestImagesInASharedStore(t *testing.T) {
	store := newStore(t)
	store.shared = true
	b, _, noted := imageBench(t, Config{Store: store}, &manifest.Set{})
	b.mustApply(imaged)
	b.Pinned(idOfM, firstID)
	noted()
	if got := b.spec(one).ImageDigest; got != "" {
		t.Errorf("an id is stored: %s", got)
	}
	b.pin("team/m@" + thirdID)
	b.Pinned(idOfM, "team/m@"+secondID)
	noted()
	if got := b.spec(one).ImageDigest; got != "team/m@"+thirdID {
		t.Errorf("it has %s", got)
	}
}

// The image of a watched version is kept beside the copies of files: the gateway that starts next finds it.
func TestImageOfAWatchedVersion(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "m", one)
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	declare := func(more string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(at, "xebec.yaml"), []byte(imaged+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	declare("")
	kept := filepath.Join(t.TempDir(), "snapshots")
	begin := func() *bench {
		t.Helper()
		snapshots, err := snapshot.Open(snapshot.Config{Dir: kept, LimitBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := snapshots.Collect(nil, time.Now().Add(time.Hour)); err != nil { // read-only directories
				t.Error(err)
			}
		})
		var background sync.WaitGroup
		b := newBench(t, Config{Watch: []string{dir}, Background: func(work func()) { background.Go(work) }})
		t.Cleanup(background.Wait)
		b.cfg.Host.Runtime, b.cfg.Host.Snapshots = &images{now: firstID}, snapshots
		if err := b.Begin(context.Background(), &manifest.Set{}); err != nil {
			t.Fatal(err)
		}
		until(t, "the directory to be read", func() bool {
			b.scanWatched()
			return b.spec(one) != nil
		})
		return b
	}
	b := begin()
	b.Pinned(idOfM, firstID)
	until(t, "the image to be kept", func() bool { return b.cfg.Host.Snapshots.Pinned(imagePin(b.spec(one))) == firstID })
	b.scanWatched()
	if got := b.spec(one).ImageDigest; got != firstID {
		t.Errorf("after the next scan it has %q", got)
	}
	b.stop()
	b = begin()
	if got := b.spec(one).ImageDigest; got != firstID {
		t.Errorf("after a restart it has %q", got)
	}
	b.stop()
	declare("image_digest: \"" + secondID + "\"\n")
	b = begin()
	shown := func() string {
		s := b.cfg.Catalog.Lock()
		defer b.cfg.Catalog.Unlock()
		return fmt.Sprint(b.Sources(s, ""))
	}()
	if got := b.spec(one).ImageDigest; got != firstID || !strings.Contains(shown, "("+firstID+", not "+secondID+")") {
		t.Errorf("with another digest it has %q; problems: %s", got, shown)
	}
}
