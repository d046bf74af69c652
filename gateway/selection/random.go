package selection

import "math"

// random generates the random numbers of one query from a seed, with splitmix64 (Steele, Lea and Flood, Fast splittable
// pseudorandom number generators, OOPSLA 2014). It is eight bytes, passes the usual tests, and seeds that differ in one
// bit give unrelated numbers.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// mix is splitmix64's finaliser: a bijection in which each bit of x changes about half of the bits of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps x uniformly to the open interval from 0 to 1, so that its logarithm is finite.
func unit(x uint64) float64 { return (float64(x>>12) + 0.5) / (1 << 52) }

func (r *random) unit() float64 { return unit(r.next()) }

// normal returns a sample of the standard normal distribution, by the polar method (Marsaglia and Bray, 1964). It
// discards the second sample that the method yields: keeping it would make the generator larger than a word.
func (r *random) normal() float64 {
	for {
		x, y := 2*r.unit()-1, 2*r.unit()-1
		if s := x*x + y*y; s < 1 {
			return x * math.Sqrt(-2*math.Log(s)/s)
		}
	}
}

// gamma returns a sample of the gamma distribution with the given shape, at least 1, and scale 1 (Marsaglia and Tsang,
// A simple method for generating gamma variables, 2000). It accepts 95 % of first tries at shape 1, more at larger
// shapes.
func (r *random) gamma(shape float64) float64 {
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.normal()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := r.unit()
		if u < 1-0.0331*x*x*x*x || math.Log(u) < 0.5*x*x+d*(1-v+math.Log(v)) {
			return d * v
		}
	}
}

// beta returns a sample of the beta distribution; a and b are at least 1.
func (r *random) beta(a, b float64) float64 {
	x := r.gamma(a)
	return x / (x + r.gamma(b))
}
