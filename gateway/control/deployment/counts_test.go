package deployment

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// launches has a Set that counts into c fail to start a replica, so that c has an exit.
func launches(t *testing.T, c *containers.Counts) {
	t.Helper()
	gone := make(chan struct{}, 1)
	set, err := containers.NewSet(containers.Config{
		Runtime: brokenRuntime{}, Command: []string{"x"}, Counts: c, Backoff: containers.Backoff{First: time.Hour, Max: time.Hour, Healthy: time.Hour},
		Event: func(containers.Event) { gone <- struct{}{} },
	})
	if err == nil {
		err = set.SetCount(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-gone
	if err := errors.Join(set.SetCount(0), set.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// TestCountsOutliveTheVersion: what was counted is shown after the version has gone, and goes on where it stopped when the version is
// declared again. Two deployments of a version, of which one replaces the other, count together.
func TestCountsOutliveTheVersion(t *testing.T) {
	var tl tally
	id := api.ModelID{Name: "m", Version: "1"}
	shown := func() string {
		all := tl.read()
		if len(all) == 0 {
			return "nothing"
		}
		return fmt.Sprint(len(all), all[0].Name, "@", all[0].Version, " not started ", all[0].Exits["not_started"], ", gone: ", all[0].Gone)
	}
	want := func(want string) {
		t.Helper()
		if got := shown(); got != want {
			t.Errorf("shown: %s; want %s", got, want)
		}
	}
	c := tl.take(id)
	want("nothing") // most of ten thousand versions never have a replica
	launches(t, c)
	want("1m@1 not started 1, gone: false")
	if next := tl.take(id); next != c {
		t.Error("the version that replaces it counts elsewhere")
	}
	tl.leave(id)
	want("1m@1 not started 1, gone: false")
	tl.leave(id)
	want("1m@1 not started 1, gone: true")
	launches(t, tl.take(id))
	want("1m@1 not started 2, gone: false")
	tl.leave(id)
	tl.take(api.ModelID{Name: "never", Version: "1"})
	tl.leave(api.ModelID{Name: "never", Version: "1"})
	want("1m@1 not started 2, gone: true")
	if len(tl.versions) != 1 {
		t.Errorf("%d versions are kept, want 1: one that never had a replica has nothing to show", len(tl.versions))
	}
}

// TestVersionsThatAreGoneAreBounded: those that have been gone for longest are forgotten.
func TestVersionsThatAreGoneAreBounded(t *testing.T) {
	var tl tally
	id := func(i int) api.ModelID { return api.ModelID{Name: "m", Version: fmt.Sprint(i)} }
	for i := range maxGone + 10 {
		launches(t, tl.take(id(i)))
		tl.leave(id(i))
	}
	tl.take(id(10)) // it is back, so there is room for one more
	launches(t, tl.take(id(maxGone+10)))
	tl.leave(id(maxGone + 10))
	if n := len(tl.gone); n != maxGone || len(tl.versions) != n+1 || tl.versions[id(9)] != nil || tl.versions[id(10)] == nil || tl.versions[id(11)] == nil {
		t.Errorf("%d versions are gone and %d are kept; want %d, and the oldest ten of them forgotten", n, len(tl.versions), maxGone)
	}
}
