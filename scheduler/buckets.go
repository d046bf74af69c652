package scheduler

import "math/bits"

// Buckets is the number of buckets of the logarithmic scale that latency profiles and the driver's histograms share:
// four per power of two, from 1 to 2^42, which for nanoseconds is 73 minutes.
const Buckets = 4*bucketOctaves - 4

const bucketOctaves = 42

// Bucket is the bucket of v: the first whose BucketBound is at least v. Values beyond the scale go into the last
// bucket, values below 1 into the first.
func Bucket(v int64) int {
	if v <= 4 {
		return int(max(v, 1)) - 1
	}
	u := uint64(v - 1) // a bound belongs to its own bucket
	octave := bits.Len64(u) - 1
	return min(4*(octave-1)+int(u>>(octave-2))&3, Buckets-1)
}

// BucketBound is the largest value of bucket i: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …
func BucketBound(i int) int64 {
	if i < 4 {
		return int64(i + 1)
	}
	return int64(4+i%4+1) << (i/4 - 1)
}
