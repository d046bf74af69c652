package main

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// LSH is what -lsh measures: what an approximate prediction cache would give, whose key is a locality-sensitive hash of the input instead of the
// input. The hash is that of random hyperplanes (Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002): each bit is
// the side of a plane through the centre of the data on which the input lies, so that inputs at a small angle share most bits. A query whose key
// is there gets the answer of the first query that had it.
type LSH struct {
	results.Taken
	Quick   bool      `json:"quick,omitempty"`
	Orders  int       `json:"orders"`
	Seconds float64   `json:"seconds"`
	Sets    []LSHSet  `json:"sets"`
	Costs   []LSHCost `json:"costs"`
}

// Empty implements results.Report.
func (l *LSH) Empty() bool { return len(l.Sets) == 0 }

// LSHSet is a stream of a data set's rows.
type LSHSet struct {
	Name    string `json:"name"`
	Stream  string `json:"stream"`
	Queries int    `json:"queries"`
	Values  int    `json:"values"` // of a query
	// Exact is the hit rate of the cache that there is.
	Exact  results.Interval `json:"exact"`
	Hashes []LSHHash        `json:"hashes"`
}

// LSHHash is a length of the hash.
type LSHHash struct {
	Bits int              `json:"bits"`
	Hits results.Interval `json:"hits"`
	// Other is the part of the hits whose answer is not the model's. More is the error rate with the cache, less that without.
	Other results.Interval `json:"other"`
	More  results.Interval `json:"more"`
}

// LSHCost is the time of one key.
type LSHCost struct {
	Values int     `json:"values"`
	Bits   int     `json:"bits"` // 0: the exact key
	Nanos  float64 `json:"nanos"`
}

const (
	// lshAgain is how often each row comes in the stream with noise, and lshNoise how far each of its values is moved at most, as a part of
	// the largest value of the data.
	lshAgain = 4
	lshNoise = 0.02
	// lshCentre is the number of rows whose mean is taken for the centre of the data.
	lshCentre = 200
	// lshModel gives the answers.
	lshModel = "svm"
	// lshCostFor is how long a cost is measured.
	lshCostFor = 100 * time.Millisecond
)

// The streams.
const (
	lshOnce  = "each row once"
	lshNoisy = "each row four times, with noise"
)

var lshBits = []int{16, 32, 64, 128}

var lshSets = []struct{ name, set string }{
	{"digits", "figure7-digits"}, {"MNIST", "figure7-mnist"}, {"letters", "orders-letter"},
	{"satellite", "orders-satimage"}, {"pens", "orders-penbased"}, {"gamma", "orders-magic"},
}

// planes are the hyperplanes of a hash.
type planes struct {
	centre []float32
	normal [][]float32
}

// lshKey has the bits of a hash of at most 128.
type lshKey [2]uint64

func newPlanes(rows [][]byte, bits int, rng *rand.Rand) *planes {
	p := &planes{centre: make([]float32, len(rows[0])), normal: make([][]float32, bits)}
	for _, row := range rows {
		for i, v := range row {
			p.centre[i] += float32(v) / float32(len(rows))
		}
	}
	for b := range p.normal {
		p.normal[b] = make([]float32, len(p.centre))
		for i := range p.normal[b] {
			p.normal[b][i] = float32(rng.NormFloat64())
		}
	}
	return p
}

// key hashes an input. centred is memory for its values.
func (p *planes) key(row []byte, centred []float32) (k lshKey) {
	for i, v := range row {
		centred[i] = float32(v) - p.centre[i]
	}
	for b, normal := range p.normal {
		var dot float32
		for i, v := range centred[:len(normal)] {
			dot += v * normal[i]
		}
		if dot > 0 {
			k[b/64] |= 1 << (b % 64)
		}
	}
	return k
}

// lshQuery is a query of a stream: a row, as it was sent.
type lshQuery struct {
	row  int
	sent []byte
}

// lshStream returns a stream in an order of its own. A row with noise counts as one that the model answers as it answers the row.
func (e *experiment) lshStream(stream string, queries int, rng *rand.Rand) []lshQuery {
	var all []lshQuery
	switch stream {
	case lshOnce:
		for _, row := range rng.Perm(len(e.rows))[:queries] {
			all = append(all, lshQuery{row, e.rows[row]})
		}
	default:
		rows, noise := rng.Perm(len(e.rows))[:(queries+lshAgain-1)/lshAgain], e.noise()
		for _, i := range rng.Perm(lshAgain * len(rows)) {
			row := rows[i%len(rows)]
			sent := make([]byte, len(e.rows[row]))
			for j, v := range e.rows[row] {
				sent[j] = byte(min(max(int(v)+rng.IntN(2*noise+1)-noise, 0), 255))
			}
			all = append(all, lshQuery{row, sent})
		}
	}
	return all
}

// noise is how far values are moved at most: one at least.
func (e *experiment) noise() int {
	var most byte
	for _, row := range e.rows {
		most = max(most, slices.Max(row))
	}
	return max(1, int(lshNoise*float64(most)))
}

// lshPlayed is what a cache makes of a stream.
type lshPlayed struct{ hits, other, wrong, wrongWithout int }

// lshPlay sends a stream through a cache with the keys of key.
func lshPlay[K comparable](e *experiment, queries []lshQuery, key func(sent []byte) K) (c lshPlayed) {
	answers, known := e.answers[lshModel], map[K]int64{}
	for _, q := range queries {
		k, models := key(q.sent), answers[q.row]
		answer, hit := known[k]
		if !hit {
			answer = models
			known[k] = models
		} else {
			c.hits++
			if answer != models {
				c.other++
			}
		}
		if answer != e.labels[q.row] {
			c.wrong++
		}
		if models != e.labels[q.row] {
			c.wrongWithout++
		}
	}
	return c
}

func measureLSH(ctx context.Context, cfg config, report *LSH) error {
	began := time.Now()
	report.Orders = orderCount
	if cfg.quick {
		report.Orders = quickOrderCount
	}
	for _, s := range lshSets {
		e, err := load(cfg.models, s.set)
		if err != nil {
			return err
		}
		for _, stream := range []string{lshOnce, lshNoisy} {
			if err := ctx.Err(); err != nil {
				return err
			}
			report.Sets = append(report.Sets, e.lsh(s.name, stream, cfg.scaled(len(e.rows)), report.Orders))
			runner.Logf("    %s, %s", s.name, stream)
		}
	}
	report.Costs = lshCosts(cfg.lasting(lshCostFor))
	report.Seconds = time.Since(began).Seconds()
	return nil
}

// lsh plays a stream in several orders.
func (e *experiment) lsh(name, stream string, queries, orders int) LSHSet {
	out := LSHSet{Name: name, Stream: stream, Values: e.Pixels}
	var exact []float64
	hits, other, more := make([][]float64, len(lshBits)), make([][]float64, len(lshBits)), make([][]float64, len(lshBits))
	for order := range orders {
		rng := rand.New(rand.NewPCG(uint64(order), 11))
		all := e.lshStream(stream, queries, rng)
		n := float64(len(all))
		out.Queries = len(all)
		exact = append(exact, float64(lshPlay(e, all, func(sent []byte) string { return string(sent) }).hits)/n)
		for i, bits := range lshBits {
			p, centred := newPlanes(e.rows[:min(lshCentre, len(e.rows))], bits, rng), make([]float32, e.Pixels)
			c := lshPlay(e, all, func(sent []byte) lshKey { return p.key(sent, centred) })
			hits[i] = append(hits[i], float64(c.hits)/n)
			if c.hits > 0 {
				other[i] = append(other[i], float64(c.other)/float64(c.hits))
			}
			more[i] = append(more[i], float64(c.wrong-c.wrongWithout)/n)
		}
	}
	out.Exact = results.Average(exact)
	for i, bits := range lshBits {
		h := LSHHash{Bits: bits, Hits: results.Average(hits[i]), More: results.Average(more[i])}
		if len(other[i]) > 0 {
			h.Other = results.Average(other[i])
		}
		out.Hashes = append(out.Hashes, h)
	}
	return out
}

// lshCosts measures keys of a row of the digits and of MNIST.
func lshCosts(during time.Duration) (costs []LSHCost) {
	rng := rand.New(rand.NewPCG(1, 12))
	var sink uint64
	seed := maphash.MakeSeed()
	for _, values := range []int{64, 784} {
		row := make([]byte, values)
		for i := range row {
			row[i] = byte(rng.Uint32())
		}
		costs = append(costs, LSHCost{values, 0, nanosOf(during, func() { sink += maphash.Bytes(seed, row) })})
		for _, bits := range lshBits {
			p, centred := newPlanes([][]byte{make([]byte, values)}, bits, rng), make([]float32, values)
			costs = append(costs, LSHCost{values, bits, nanosOf(during, func() { sink += p.key(row, centred)[0] })})
		}
	}
	runtime.KeepAlive(sink) // so that the compiler does not leave out what is measured
	return costs
}

// nanosOf is the time of a call, in nanoseconds.
func nanosOf(during time.Duration, call func()) float64 {
	const some = 100
	n, began := 0, time.Now()
	for time.Since(began) < during {
		for range some {
			call()
		}
		n += some
	}
	return float64(time.Since(began).Nanoseconds()) / float64(n)
}
