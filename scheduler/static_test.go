package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// timeModel is a container whose batch of n takes fixed + each·n, times a factor that scatters.
type timeModel struct {
	name        string
	fixed, each float64 // milliseconds
}

// figure4Models are the containers of the paper's figure 4, with the lines that were measured for them.
var figure4Models = []timeModel{
	{"no-op", 0.028, 0.0000076},
	{"linear SVM", 0.24, 0.0020},
	{"logistic regression", 0.33, 0.0008},
	{"random forest", 5.9, 0.0108},
	{"kernel SVM", 0.65, 0.59},
	{"row by row", 0.039, 0.0102},
}

const (
	figure4Objective = 20.0 // milliseconds
	figure4Settling  = 1000 // batches that are not counted
	figure4Batches   = 3000 // batches that are
)

// saturate evaluates full batches, one in evaluation and one behind it, and returns the queries a millisecond and the share
// of late batches.
func (m timeModel) saturate(c controller, sigma float64, seed uint64) (rate, late float64) {
	random := rand.New(rand.NewPCG(seed, 0))
	queries, millis := 0, 0.0
	next, behind := c.cap(), c.cap()
	for i := range figure4Settling + figure4Batches {
		n := next
		took := (m.fixed + m.each*float64(n)) * math.Exp(sigma*random.NormFloat64()-sigma*sigma/2) // the mean is that of the line
		c.observe(n, true, int64(took*1e6))
		next, behind = behind, c.cap()
		if i < figure4Settling {
			continue
		}
		queries += n
		millis += took
		if took > figure4Objective {
			late++
		}
	}
	return float64(queries) / millis, late / figure4Batches
}

// bestStatic returns the highest rate of a static cap of whose batches at most one in a hundred is late.
func (m timeModel) bestStatic(sigma float64, seed uint64) (best float64) {
	most := max(1, min(DefaultMaxBatch, (figure4Objective-m.fixed)/m.each))
	for share := 1.0; share > 0.4; share -= 0.05 {
		if rate, late := m.saturate(fixedCap(share*most), sigma, seed); late <= 0.01 {
			best = max(best, rate)
		}
	}
	return best
}

// Under a load that never lets up, an adaptive cap is as fast as the best static one: both controllers, for each container of
// the paper's figure 4, whose times are exact, or scatter by 3 or 10 %.
func TestAdaptiveCapsAreAsFastAsStaticOnes(t *testing.T) {
	for _, m := range figure4Models {
		for _, sigma := range []float64{0, 0.03, 0.1} {
			t.Run(fmt.Sprint(m.name, ", ", 100*sigma, " %"), func(t *testing.T) {
				for seed := range uint64(5) {
					best := m.bestStatic(sigma, seed)
					if best == 0 {
						t.Fatal("no static cap keeps the objective")
					}
					for _, policy := range []Policy{AIMD, Quantile} {
						c := newController(Batching{Policy: policy, MaxBatch: DefaultMaxBatch, ObjectiveNanos: figure4Objective * 1e6})
						if rate, late := m.saturate(c, sigma, seed); rate < 0.95*best {
							t.Errorf("%s, seed %d: %.3f of the best static cap's throughput, %.1f %% of the batches are late, the cap is %d", policy, seed, rate/best, 100*late, c.cap())
						}
					}
				}
			})
		}
	}
}
