package forecast

import (
	"strings"
	"testing"
	"time"
)

func TestParseProfile(t *testing.T) {
	for _, c := range []struct {
		text        string
		fixed, each time.Duration
		says        string
	}{
		{"2ms+0.1ms", 2 * time.Millisecond, 100 * time.Microsecond, "2ms + 100µs × n"},
		{" 2ms + 100us ", 2 * time.Millisecond, 100 * time.Microsecond, "2ms + 100µs × n"},
		{"5ms", 0, 5 * time.Millisecond, "0s + 5ms × n"},
		{"1.23456ms+1.5s", 1234560, 1500 * time.Millisecond, "1.235ms + 1.5s × n"},
		{"3ns+0s", 3, 0, "3ns + 0s × n"},
	} {
		p, err := ParseProfile(c.text)
		if err != nil || p != (Profile{float64(c.fixed), float64(c.each)}) || p.String() != c.says {
			t.Errorf("%q: %+v, %q, %v: expected %v and %v, %q", c.text, p, p, err, c.fixed, c.each, c.says)
		}
	}
	for _, c := range []struct{ text, says string }{
		{"", "expected a time per batch"}, {"2", "expected a time per batch"}, {"2ms+", "expected a time per batch"}, {"+2ms", "expected a time per batch"},
		{"1ms+2ms+3ms", "expected a time per batch"}, {"-1ms", "out of range"}, {"1ms+-1ms", "out of range"}, {"2h", "out of range"}, {"0s+0s", "take no time"},
	} {
		if _, err := ParseProfile(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v: expected an error with %q", c.text, err, c.says)
		}
	}
}

// FuzzParseProfile: every profile that is accepted can be planned with.
func FuzzParseProfile(f *testing.F) {
	f.Add("2ms+0.1ms")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseProfile(text)
		if err != nil {
			if p != (Profile{}) {
				t.Errorf("%q: an error and the profile %+v", text, p)
			}
			return
		}
		m := Model{Profile: p, SLONanos: 1e6}
		if err := m.check(); err != nil {
			t.Errorf("%q is accepted, but: %v", text, err)
		}
		if n := m.guess(m.batching()); n < 1 || n > m.batching().MaxBatch || p.Nanos(n) < 1 {
			t.Errorf("%q: the guess is %d queries, which take %d ns", text, n, p.Nanos(n))
		}
	})
}

func TestModelCheck(t *testing.T) {
	good := Model{Profile: Profile{1e6, 1e5}, SLONanos: 1e9}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Model){
		"no time": func(m *Model) { m.Profile = Profile{} }, "a negative time": func(m *Model) { m.EachNanos = -1 }, "no objective": func(m *Model) { m.SLONanos = 0 },
		"a negative start": func(m *Model) { m.StartNanos = -1 },
	} {
		m := good
		change(&m)
		if m.check() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
