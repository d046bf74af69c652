package node

import "testing"

func TestMemoryOf(t *testing.T) {
	for _, tc := range []struct {
		name, rollup, status string
		want                 int64
		ok                   bool
	}{
		{"by parts", "x [rollup]\nRss: 9 kB\nPss:    12 kB\nPss_Anon: 3 kB\n", "RssAnon: 99 kB\n", 12 << 10, true},
		{"by status", "", "VmRSS:\t 50 kB\nRssAnon:\t 12 kB\nRssFile:\t 9 kB\nRssShmem:\t 3 kB\n", 15 << 10, true},
		{"a kernel thread", "", "Name: kthreadd\n", 0, false},
		{"another unit", "Pss: 12 MB\n", "", 0, false},
		{"no unit", "", "RssAnon: 12\n", 0, false},
		{"too much", "Pss: 18446744073709551615 kB\n", "", 0, false},
		{"too much together", "", "RssAnon: 9007199254740991 kB\nRssShmem: 9007199254740991 kB\n", 0, false},
	} {
		if got, ok := memoryOf([]byte(tc.rollup), []byte(tc.status)); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %d, %v; expected %d, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
}

func FuzzMemoryOf(f *testing.F) {
	f.Fuzz(func(t *testing.T, rollup, status []byte) {
		n, ok := memoryOf(rollup, status)
		if n < 0 || !ok && n != 0 {
			t.Errorf("%d, %v", n, ok)
		}
	})
}
