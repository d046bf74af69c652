package procfs

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	plain := Stat{PID: 12, Parent: 7, Group: 8, Session: 9, Nice: 5, Ticks: 42, Start: 4711}
	with := func(change func(*Stat)) Stat {
		st := plain
		change(&st)
		return st
	}
	const tail = " 0 -1 1 2 3 4 5 40 2 6 7 20 5 1 0 4711"
	for _, tc := range []struct {
		name, text string
		want       Stat
		ok         bool
	}{
		{"plain", "12 (python) S 7 8 9" + tail + " 99 99\n", plain, true},
		{"a zombie", "12 (python) Z 7 8 9" + tail, with(func(st *Stat) { st.Zombie = true }), true},
		{"it runs", "12 (python) R 7 8 9" + tail, with(func(st *Stat) { st.Runnable = true }), true},
		{"dead", "12 (python) X 7 8 9" + tail, with(func(st *Stat) { st.Zombie = true }), true},
		{"low priority", "12 (python) S 7 8 9 -1 -1 1 2 3 4 5 40 2 6 7 39 -19 1 0 4711", with(func(st *Stat) { st.Nice = -19 }), true},
		{"it ends", "12 (python) S 0 -1 -1" + tail, with(func(st *Stat) { st.Parent, st.Group, st.Session = 0, -1, -1 }), true},
		{"a name that looks like fields", "12 (a) Z 1 (b) c) S 7 8 9" + tail, plain, true},
		{"a name with a newline", "12 (a\nb) S 7 8 9" + tail, plain, true},
		{"empty", "", Stat{}, false},
		{"no name", "12 python S 7", Stat{}, false},
		{"parentheses reversed", ") 12 (", Stat{}, false},
		{"cut short", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 40 2", Stat{}, false},
		{"nothing after the name", "12 (python)", Stat{}, false},
		{"no pid", "(python) S 7 8 9" + tail, Stat{}, false},
		{"pid 0", "0 (python) S 7 8 9" + tail, Stat{}, false},
		{"pid with more", "12 x (python) S 7 8 9" + tail, Stat{}, false},
		{"no parent", "12 (python) S x 8 9" + tail, Stat{}, false},
		{"a negative parent", "12 (python) S -7 8 9" + tail, Stat{}, false},
		{"time out of range", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 18446744073709551615 2 6 7 20 0 1 0 4711", Stat{}, false},
		{"no number at all", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 18446744073709551616 2 6 7 20 0 1 0 4711", Stat{}, false},
		{"a negative start", "12 (python) S 7 8 9 0 -1 1 2 3 4 5 40 2 6 7 20 0 1 0 -1", Stat{}, false},
	} {
		if got, ok := ParseStat([]byte(tc.text)); got != tc.want || ok != tc.ok {
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
	if st, ok := ParseStat(text); !ok || st.PID != os.Getpid() || st.Parent != os.Getppid() || st.Session != session || st.Start == 0 || st.Zombie {
		t.Errorf("stat of this process: %+v, %v", st, ok)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		st, ok := ParseStat(text)
		if ok && (st.PID <= 0 || st.Parent < 0) || !ok && st != (Stat{}) {
			t.Errorf("%+v, %v", st, ok)
		}
		// A process may choose any name, which must not change the other fields.
		if !ok || strings.Count(string(text), ")") != 1 || strings.Count(string(text), "(") != 1 {
			return
		}
		renamed := strings.Replace(string(text), "(", "() Z 1 (", 1)
		if again, ok := ParseStat([]byte(renamed)); !ok || again != st {
			t.Errorf("%+v became %+v, %v with another name", st, again, ok)
		}
	})
}
