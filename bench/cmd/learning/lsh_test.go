package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestLSHKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	row := func(f func(i int) int) []byte {
		b := make([]byte, 64)
		for i := range b {
			b[i] = byte(f(i))
		}
		return b
	}
	a, like, unlike := row(func(i int) int { return 3 * i }), row(func(i int) int { return 3*i + i%2 }), row(func(i int) int { return 200 - 3*i })
	p, memory := newPlanes([][]byte{row(func(int) int { return 95 })}, 128, rng), make([]float32, 64)
	bitsApart := func(x, y []byte) (n int) {
		k, l := p.key(x, memory), p.key(y, memory)
		for i := range 128 {
			if (k[i/64]^l[i/64])>>(i%64)&1 == 1 {
				n++
			}
		}
		return n
	}
	if near, far := bitsApart(a, like), bitsApart(a, unlike); bitsApart(a, a) != 0 || near > 10 || far < 90 {
		t.Errorf("a row is %d bits from one that is almost equal, and %d from its opposite", near, far)
	}
}

func TestLSHPlay(t *testing.T) {
	e := &experiment{rows: [][]byte{{0}, {1}, {2}}, labels: []int64{5, 5, 6}, answers: map[string][]int64{lshModel: {5, 6, 6}}}
	all := []lshQuery{{0, e.rows[0]}, {1, e.rows[1]}, {2, e.rows[2]}, {2, e.rows[2]}}
	if c := lshPlay(e, all, func(sent []byte) byte { return sent[0] }); c != (lshPlayed{hits: 1, wrong: 1, wrongWithout: 1}) {
		t.Errorf("an exact key: %+v", c)
	}
	if c := lshPlay(e, all, func([]byte) bool { return true }); c != (lshPlayed{hits: 3, other: 3, wrong: 2, wrongWithout: 1}) {
		t.Errorf("one key for all: %+v", c)
	}
}

func TestLSHStreams(t *testing.T) {
	e := &experiment{about: about{Pixels: 2}, labels: make([]int64, 8), answers: map[string][]int64{lshModel: make([]int64, 8)}}
	for i := range 8 {
		e.rows = append(e.rows, []byte{byte(30 * i), 128})
	}
	if s := e.lsh("x", lshOnce, 8, 2); s.Queries != 8 || s.Exact.Value != 0 || len(s.Hashes) != len(lshBits) {
		t.Errorf("each once: %+v", s)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[int]int{}
	for _, q := range e.lshStream(lshNoisy, 8, rng) {
		seen[q.row]++
		for i, v := range q.sent {
			if d := int(v) - int(e.rows[q.row][i]); d < -4 || d > 4 {
				t.Errorf("row %d has been moved by %d", q.row, d)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("rows %v: expected two, each four times", seen)
	}
	for row, n := range seen {
		if n != lshAgain {
			t.Errorf("row %d comes %d times", row, n)
		}
	}
	if costs := lshCosts(time.Microsecond); len(costs) != 2*(1+len(lshBits)) {
		t.Errorf("%d costs", len(costs))
	}
}
