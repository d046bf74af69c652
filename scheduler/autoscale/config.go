package autoscale

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

// spareFrom is the number of replicas up to which Utilization applies; more replicas are used more.
const spareFrom = 4

// normalized returns a configuration that the arithmetic can rely on, whatever it was given.
func (c Config) normalized() Config {
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

// planned returns how many replicas are planned for the work of full always-busy ones. Up to four of them are used to
// Utilization. Beyond that the spare capacity covers chance, which grows with the square root of the load (Halfin and
// Whitt, Heavy-Traffic Limits for Queues with Many Exponential Servers, 1981): four times as many replicas need twice
// as many spare. But errors of profiles and growth of load are proportional to the size, so half of what Utilization
// leaves is always spare.
//
// At 0.7, the work of 2.8 replicas gets four, 1.2 of them spare. The work of 7 gets 8.9 replicas, used to 79 %. From
// the work of 16.5 on, replicas are used to 85 %.
func (c *Config) planned(full float64) float64 {
	by := full / c.Utilization
	return max(min(by, full+(1-c.Utilization)*math.Sqrt(spareFrom*by)), full/c.most()) // spare × √full
}

// used returns the planned utilization of n replicas, the inverse of [Config.planned]. For none it is that of one.
func (c *Config) used(n int) float64 {
	all := float64(max(n, 1))
	root := (math.Sqrt(c.spare()*c.spare()+4*all) - c.spare()) / 2
	return max(c.Utilization, min(root*root/all, c.most()))
}

// spare returns the number of spare replicas for the work of one. It doubles for four times the work.
func (c *Config) spare() float64 {
	return spareFrom * (1 - c.Utilization) / math.Sqrt(spareFrom*c.Utilization)
}

// most returns the planned utilization of a large number of replicas.
func (c *Config) most() float64 { return (1 + c.Utilization) / 2 }

// panicNanos returns the panic window, over which Down is measured.
func (c *Config) panicNanos() int64 { return c.WindowNanos * rushBuckets / windowBuckets }

// within returns v limited to low and high, or fallback if v is not a number above zero.
func within(v, low, high, fallback float64) float64 {
	if !(v > 0) { // NaN too
		return fallback
	}
	return min(max(v, low), high)
}

func clamp[T int | int64](v, low, high T) T { return min(max(v, low), high) }

// replicas rounds x up to whole replicas, but ignores rounding errors in the last places.
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
