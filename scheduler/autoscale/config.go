package autoscale

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

// spareFrom is how many replicas Utilization is for; more are used more.
const spareFrom = 4

// sane returns a configuration that the arithmetic can rely on, whatever it was given.
func (c Config) sane() Config {
	c.Min = max(0, c.Min)
	if c.Max < 1 {
		c.Max = 1
	}
	c.Max = max(c.Max, c.Min)
	if c.WindowNanos <= 0 {
		c.WindowNanos = int64(api.DefaultScaleWindow)
	}
	c.WindowNanos = clamp(c.WindowNanos, int64(api.MinScaleWindow), int64(api.MaxScaleWindow))
	c.DelayNanos = clamp(c.DelayNanos, 0, int64(api.MaxScaleWindow))
	c.IdleNanos = max(0, c.IdleNanos)
	c.Utilization = within(c.Utilization, 0.05, 1, api.DefaultUtilization)
	c.Up = within(c.Up, 1, api.MaxScaleFactor, api.DefaultScaleUp)
	c.Down = within(c.Down, 1, api.MaxScaleFactor, api.DefaultScaleDown)
	return c
}

// planned is how many replicas there are to be for so much work that full ones would do, always busy. Utilization is what up to four of them
// are used by. What more have to spare is for chance, and chance goes with the square root of what comes (Halfin and Whitt, Heavy-Traffic
// Limits for Queues with Many Exponential Servers, 1981): four times as many need twice as much to spare. But profiles are off, and load
// grows, in proportion to what there is; so half of what Utilization leaves is always spare.
//
// At 0.7, work for 2.8 has four replicas, 1.2 of them spare; work for 7 has 8.9, which is 79 %; work for 16.5 and more has 85 % used.
func (c *Config) planned(full float64) float64 {
	by := full / c.Utilization
	return max(min(by, full+(1-c.Utilization)*math.Sqrt(spareFrom*by)), full/c.most()) // spare × √full
}

// used is the part of n replicas that is planned with: [Config.planned] the other way round. Where there is none it is that of one.
func (c *Config) used(n int) float64 {
	all := float64(max(n, 1))
	root := (math.Sqrt(c.spare()*c.spare()+4*all) - c.spare()) / 2
	return max(c.Utilization, min(root*root/all, c.most()))
}

// spare is how many replicas are spare for work that takes one; for four times as much it is twice as many.
func (c *Config) spare() float64 {
	return spareFrom * (1 - c.Utilization) / math.Sqrt(spareFrom*c.Utilization)
}

// most is the part that is used of a great many.
func (c *Config) most() float64 { return (1 + c.Utilization) / 2 }

// panicNanos is the panic window, and the time by which speeds are measured.
func (c *Config) panicNanos() int64 { return c.WindowNanos * rushBuckets / windowBuckets }

// within is v, if that is a number above zero, between low and high, else fallback.
func within(v, low, high, fallback float64) float64 {
	if !(v > 0) { // NaN too
		return fallback
	}
	return min(max(v, low), high)
}

func clamp[T int | int64](v, low, high T) T { return min(max(v, low), high) }

// replicas is how many whole ones x are; what arithmetic adds in the last places is no replica.
func replicas(x float64) int {
	const most = math.MaxInt32
	if !(x > 0) {
		return 0
	}
	if x >= most {
		return most
	}
	return int(math.Ceil(x - 1e-9*max(1, x)))
}
