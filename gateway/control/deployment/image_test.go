package deployment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// The image of the first replica that has started and is ready, in either order, is the version's: later launches ask for it, also those that are announced. It is noted again for
// each replica until it is declared.
func TestTheFirstReadyReplicasImageIsTheVersions(t *testing.T) {
	h := newHost(t)
	var noted []string
	h.Pinned = func(id api.ModelID, digest string) { noted = append(noted, id.String()+" "+digest) }
	k := keeper{launches: make(chan containers.Launch, 4)}
	h.Runtime = k
	d := deploy(t, h, strings.Replace(sleeper, "command: [python, model.py]", "image: \"team/m:1\"", 1))
	image := func(n string) containers.Image { return containers.Image{ID: n, Digest: "team/m@" + n} }
	d.mu.Lock()
	d.launches = map[uint64]*launch{
		101: {}, 102: {ready: time.Now()}, 103: {ready: time.Now(), image: image("one")}, 104: {ready: time.Now(), image: image("one")}, 105: {ready: time.Now(), image: image("two")},
		106: {ready: time.Now(), image: image("two"), began: time.Now().Add(time.Hour)},
	}
	d.mu.Unlock()
	for _, early := range []uint64{100, 101, 102} { // unknown, not ready, not started
		d.pinImage(early)
	}
	if len(noted) > 0 || d.ImageDigest() != "" {
		t.Errorf("noted %v, and the version has %q", noted, d.ImageDigest())
	}
	d.pinImage(103)
	d.pinImage(104)
	d.pinImage(105) // its bytes are not the version's: it ends
	d.pinImage(106) // it was started for the version's digest, which another engine may know by another id
	if want := []string{"m@1 team/m@one", "m@1 team/m@one", "m@1 team/m@one"}; !slices.Equal(noted, want) {
		t.Errorf("noted %v, expected %v", noted, want)
	}
	d.mu.Lock()
	d.launches = nil
	d.mu.Unlock()
	if got := d.launch(); got.Image != "team/m:1" || got.ImageDigest != "team/m@one" {
		t.Errorf("announced: %+v", got)
	}
	d.Load(1)
	if l := <-k.launches; l.Image != "team/m:1" || l.ImageDigest != "team/m@one" {
		t.Errorf("launched: %+v", l)
	}
	spec := *d.Spec()
	spec.ImageDigest = "team/m@one"
	d.SetSpec(spec) // it is declared
	d.pinImage(104)
	if len(noted) != 3 {
		t.Errorf("noted %v after it was declared", noted)
	}
}
