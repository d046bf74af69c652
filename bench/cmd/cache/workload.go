package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// workload is a sequence of requests for objects.
type workload struct {
	Name, About string
	requests    []uint32
}

const (
	objects     = 200_000 // of a skewed workload
	shiftEvery  = 8       // equal parts of a run, each with other popular objects
	scanPart    = 0.2     // fraction of the requests
	loopObjects = 30_000
)

// workloads are the same for the same seed, on any machine.
func workloads(requests int, seed uint64) []workload {
	rng := rand.New(rand.NewPCG(seed, 1))
	var list []workload
	for _, z := range []struct {
		name string
		s    float64
	}{{"zipf-0.9", 0.9}, {"zipf-1.0", 1}, {"zipf-1.2", 1.2}} {
		draw := zipf(rng, z.s)
		list = append(list, workload{z.name, "independent draws, popularity by Zipf's law", fillWith(requests, func(int) uint32 { return draw() })})
	}
	draw := zipf(rng, 1)
	once := uint32(objects)
	list = append(list, workload{"scan", "four fifths zipf-1.0, one fifth objects that never come again", fillWith(requests, func(int) uint32 {
		if rng.Float64() >= scanPart {
			return draw()
		}
		once++
		return once
	})})
	list = append(list, workload{"loop", "the same 30,000 objects over and over in the same order", fillWith(requests, func(i int) uint32 { return uint32(i % loopObjects) })})
	list = append(list, workload{"shift", "zipf-1.0, and other objects are popular in each eighth of the run", fillWith(requests, func(i int) uint32 {
		return (draw() + uint32(i/(requests/shiftEvery))*(objects/shiftEvery+1)) % objects
	})})
	return list
}

func fillWith(n int, next func(int) uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = next(i)
	}
	return out
}

// zipf draws objects with probabilities proportional to rank^-s. Objects are numbered in random order. (math/rand's generator needs s above 1.)
func zipf(rng *rand.Rand, s float64) func() uint32 {
	cumulative := make([]float64, objects)
	sum := 0.0
	for i := range cumulative {
		sum += math.Pow(float64(i+1), -s)
		cumulative[i] = sum
	}
	number := rng.Perm(objects)
	return func() uint32 {
		i, _ := slices.BinarySearch(cumulative, rng.Float64()*sum)
		return uint32(number[min(i, objects-1)])
	}
}

// sizing gives the size of an object's input, in bytes. Outputs have outputBytes.
type sizing struct {
	Name, About string
	of          func(object uint32) int
}

const outputBytes = 8

var sizings = []sizing{
	{"fixed", "64 float32 in", func(uint32) int { return 256 }},
	{"mixed", "40 B to 12 KiB in: an object in two has 40 B, one in four 512 B, one in eight 3,136 B, one in eight 12,288 B", func(object uint32) int {
		switch h := object * 0x9e3779b1 >> 29; {
		case h < 4:
			return 40
		case h < 6:
			return 512
		case h < 7:
			return 3136
		default:
			return 12288
		}
	}},
}
