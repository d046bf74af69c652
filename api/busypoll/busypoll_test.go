package busypoll

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// The table is that of every implementation.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("testdata/waits.json")
	if err != nil {
		t.Fatal(err)
	}
	var table []struct {
		Name  string
		Bound time.Duration
		Waits []api.Nanos // one after the other
		Spins []bool      // whether each begins with a spin
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, c := range table {
		t.Run(c.Name, func(t *testing.T) {
			e, now := New(c.Bound), api.Nanos(1e9)
			var spins []bool
			for _, wait := range c.Waits {
				until := e.Idle(now)
				if until != now && until != now+api.Nanos(c.Bound) {
					t.Fatalf("spins for %v, the bound is %v", time.Duration(until-now), c.Bound)
				}
				spins = append(spins, until > now)
				now += wait
				e.Arrived(now)
				now += 1e6 // of work, which is no wait
			}
			if !slices.Equal(spins, c.Spins) {
				t.Errorf("spins %v,\nwant  %v", spins, c.Spins)
			}
		})
	}
}

// busy returns an estimator that expects work at once.
func busy(bound time.Duration) Estimator {
	e := New(bound)
	for range 100 {
		e.Idle(0)
		e.Arrived(0)
	}
	return e
}

func TestOneSpinInAWait(t *testing.T) {
	e := busy(50)
	if until := e.Idle(1000); until != 1050 {
		t.Errorf("spins until %d, want 1050", until)
	}
	if until := e.Idle(1100); until != 1100 {
		t.Errorf("spins again until %d in the same wait", until)
	}
	if !e.Waiting() {
		t.Error("does not wait")
	}
	e.Arrived(1200)
	if e.Waiting() {
		t.Error("waits after the arrival")
	}
	mean := e.mean
	e.Arrived(5000)
	if e.mean != mean {
		t.Error("an arrival without a wait changes the mean")
	}
}

// However waits alternate, not many more spins are in vain than find something.
func TestVainSpinsAreFew(t *testing.T) {
	const waits = 100_000
	for period := 1; period <= 20; period++ {
		e, now, found, vain := busy(50), api.Nanos(0), 0, 0
		for i := range waits {
			spins, wait := e.Idle(now) > now, api.Nanos(0)
			if i%period == 0 {
				wait = 51
			}
			switch {
			case spins && wait > 50:
				vain++
			case spins:
				found++
			}
			now += wait
			e.Arrived(now)
		}
		if vain > found+maxVain+waits>>maxVain {
			t.Errorf("each %dth wait is long: %d spins are in vain, %d find something", period, vain, found)
		}
	}
}

// A side that waits for a short time unless it spins, because it spins on the core that the other side needs, hardly spins.
func TestSpinsThatAreInTheWay(t *testing.T) {
	e, now, spins := busy(50), api.Nanos(0), 0
	const waits = 100_000
	for range waits {
		wait := api.Nanos(10)
		if e.Idle(now) > now {
			spins++
			wait = 60
		}
		now += wait
		e.Arrived(now)
	}
	if spins > maxVain+waits>>maxVain {
		t.Errorf("%d spins in %d waits", spins, waits)
	}
}

// A clock that stands still or goes back, and the longest waits, keep the mean within its range.
func TestMeanStaysInRange(t *testing.T) {
	e := New(time.Millisecond)
	for _, at := range []api.Nanos{0, 1 << 62, 5, 0, 1 << 62} {
		e.Idle(5)
		e.Arrived(at)
		if e.mean < 0 || e.mean > farBounds*e.bound {
			t.Fatalf("the mean is %d after a wait until %d", e.mean, at)
		}
	}
}

func TestOff(t *testing.T) {
	for cores, off := range map[int]bool{0: true, 1: true, 2: true, 3: false, 4: false, 128: false} {
		if why := Off(cores); (why != "") != off {
			t.Errorf("%d cores: off because %q", cores, why)
		}
	}
}
