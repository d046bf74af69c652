package dialect

import (
	"strings"
	"testing"
)

func TestRequestIDsOfClients(t *testing.T) {
	for id, want := range map[string]bool{
		"": false, "a": true, "5e9d0a0c-1b6c-4f5e-9a56-0c6f6f3a7f11": true, "a/b=c+d\"e\\f": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a b": false, "a\tb": false, "a\r\nb": false, "a\x00": false, "a\x7f": false, "é": false,
	} {
		if got := ValidRequestID([]byte(id)); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}

// TestTraceContexts has the examples of W3C Trace Context, sections 3.2 and 3.3, and breaks them.
func TestTraceContexts(t *testing.T) {
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for v, want := range map[string]string{
		"": "", valid: valid, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
		valid + "-": "", valid + "-extra": "", "01" + valid[2:]: "01" + valid[2:], "01" + valid[2:] + "-extra": "01" + valid[2:], "01" + valid[2:] + "extra": "",
		"ff" + valid[2:]: "", "0x" + valid[2:]: "", strings.ToUpper(valid): "", valid[:54]: "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": "", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": "",
		"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g": "",
	} {
		if got := string(ParseTraceParent([]byte(v))); got != want {
			t.Errorf("traceparent %q: %q, want %q", v, got, want)
		}
	}
	for v, want := range map[string]bool{
		"": false, "congo=t61rcWkgMzE": true, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE": true, "a=b, c=d": true, "nothing": false, "=x": false,
		"a=" + strings.Repeat("x", 510): true, "a=" + strings.Repeat("x", 511): false, "a=\r\nb": false, "a=é": false,
	} {
		if got := ValidTraceState([]byte(v)); got != want {
			t.Errorf("tracestate %.40q: %v, want %v", v, got, want)
		}
	}
}

// FuzzTraceParent: what is passed on is a traceparent of its own, which is passed on unchanged.
func FuzzTraceParent(f *testing.F) {
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	f.Add([]byte("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings"))
	f.Fuzz(func(t *testing.T, v []byte) {
		got := ParseTraceParent(v)
		if got != nil && (len(got) != traceParentBytes || string(ParseTraceParent(got)) != string(got)) {
			t.Fatalf("%q becomes %q", v, got)
		}
	})
}
