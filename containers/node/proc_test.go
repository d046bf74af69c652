package node

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	plain := stat{pid: 12, ppid: 7, session: 9, ticks: 42, start: 4711}
	zombie := plain
	zombie.zombie = true
	for _, tc := range []struct {
		name, text string
		want       stat
		ok         bool
	}{
		{"plain", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711 99 99\n", plain, true},
		{"a zombie", "12 (python) Z 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", zombie, true},
		{"low priority", "12 (python) S 7 8 9 -1 -1 1 2 3 4 5 40 2 6 7 39 -19 1 0 4711", plain, true},
		{"a name that looks like fields", "12 (a) Z 1 (b) c) S 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", plain, true},
		{"empty", "", stat{}, false},
		{"no name", "12 python S 7", stat{}, false},
		{"cut short", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 40 2", stat{}, false},
		{"nothing after the name", "12 (python)", stat{}, false},
		{"no pid", "(python) S 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", stat{}, false},
		{"pid 0", "0 (python) S 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", stat{}, false},
		{"pid with more", "12 x (python) S 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", stat{}, false},
		{"no parent", "12 (python) S x 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", stat{}, false},
		{"a negative session", "12 (python) S 7 8 -9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 4711", stat{}, false},
		{"time out of range", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 18446744073709551615 2 6 7 20 0 1 0 4711", stat{}, false},
		{"no number at all", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 18446744073709551616 2 6 7 20 0 1 0 4711", stat{}, false},
	} {
		if got, ok := parseStat([]byte(tc.text)); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v, %v; expected %+v, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	session, err := unix.Getsid(0) // 0 if the leader is outside of this PID namespace
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := parseStat(text); !ok || st.pid != os.Getpid() || st.ppid != os.Getppid() || st.session != session || st.start == 0 || st.zombie {
		t.Errorf("stat of this process: %+v, %v", st, ok)
	}
}

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

func FuzzParseStat(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		st, ok := parseStat(text)
		if ok && (st.pid <= 0 || st.ppid < 0 || st.session < 0) || !ok && st != (stat{}) {
			t.Errorf("%+v, %v", st, ok)
		}
		// A process may choose any name, which must not change the other fields.
		if !ok || strings.Count(string(text), ")") != 1 || strings.Count(string(text), "(") != 1 {
			return
		}
		renamed := strings.Replace(string(text), "(", "() Z 1 (", 1)
		if again, ok := parseStat([]byte(renamed)); !ok || again != st {
			t.Errorf("%+v became %+v, %v with another name", st, again, ok)
		}
	})
}

func FuzzMemoryOf(f *testing.F) {
	f.Fuzz(func(t *testing.T, rollup, status []byte) {
		n, ok := memoryOf(rollup, status)
		if n < 0 || !ok && n != 0 {
			t.Errorf("%d, %v", n, ok)
		}
	})
}
