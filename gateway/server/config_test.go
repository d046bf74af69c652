package server

import "testing"

func TestDefaultCache(t *testing.T) {
	for _, c := range []struct{ memory, want int64 }{
		{400 << 20, 50 << 20}, // with a quarter each for bodies and answers, most of the rest is left to the heap
		{1 << 30, 128 << 20},
		{2 << 30, 256 << 20},
		{24 << 30, 256 << 20},
		{64, 8},
		{0, 256 << 20}, // the memory is not known
	} {
		if got := defaultCache(c.memory); got != c.want {
			t.Errorf("defaultCache(%d) is %d, expected %d", c.memory, got, c.want)
		}
	}
	for given, want := range map[int64]int64{1 << 20: 1 << 20, 1 << 40: 1 << 40, -1: -1} {
		if got := (Config{CacheBytes: given}).withDefaults().CacheBytes; got != want {
			t.Errorf("a configuration with %d bytes for the cache has %d, expected %d", given, got, want)
		}
	}
	if got := (Config{}).withDefaults().CacheBytes; got <= 0 || got > maxDefaultCacheBytes {
		t.Errorf("the default on this machine is %d bytes, expected 1 to %d", got, maxDefaultCacheBytes)
	}
}
