package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

// TestTopFrames draws frames of a gateway (top_fixture_test.go) and presses keys. A poll comes a second after the one before. Control
// sequences begin with ‹, and lines end with |. Run with -rewrite to write the files anew.
func TestTopFrames(t *testing.T) {
	datadriven.Walk(t, "testdata/top", func(t *testing.T, path string) {
		var (
			second        int
			before        *topSnapshot
			frame         *topFrame
			view          topView
			keys          keyReader
			width, height = 100, 14
		)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			number := func(key string, into *int) {
				if d.HasArg(key) {
					d.ScanArgs(t, key, into)
				}
			}
			number("width", &width)
			number("height", &height)
			switch d.Cmd {
			case "poll":
				now := topFixture(second)
				second++
				models := 0
				number("models", &models)
				topMany(now, models)
				number("pid", &now.gateway.PID)
				now.gateway.Store.Away, now.gateway.Draining = d.HasArg("away"), d.HasArg("draining")
				frame, before = frameOf(before, now), now
				return ""
			case "press":
				text, err := strconv.Unquote(strings.TrimSpace(d.Input))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				for _, k := range keys.feed([]byte(text)) {
					var quit bool
					if view, quit = view.press(k, view.rows(frame), view.page(height)); quit {
						return "quit\n"
					}
				}
				return ""
			case "problem":
				view.problem = strings.TrimSpace(d.Input)
				return ""
			case "render":
				view.colour = d.HasArg("colour")
				text := view.render(frame, width, height)
				if lines := strings.Split(text, "\n"); len(lines) != height {
					d.Fatalf(t, "%d lines, want %d", len(lines), height)
				}
				return strings.NewReplacer("\x1b[", "‹", "\n", "|\n").Replace(text) + "|\n"
			case "text":
				rows := 0
				number("rows", &rows)
				return topView{}.text(frame, rows)
			case "json":
				object, err := json.Marshal(frame)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				text, err := indented(object)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return string(text)
			}
			d.Fatalf(t, "unknown directive %q", d.Cmd)
			return ""
		})
	})
}

// Whatever the size, the frame and the keys: so many lines, none wider than the screen.
func TestTopFitsAnyScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := topFixture(1)
		topMany(now, rapid.IntRange(0, 60).Draw(t, "models"))
		now.gateway.Store.Name = rapid.String().Draw(t, "store")
		now.models[0].Version.Source = rapid.String().Draw(t, "source")
		frame := frameOf(topFixture(0), now)
		width, height := rapid.IntRange(1, 200).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
		v := topView{problem: rapid.SampledFrom([]string{"", "gone\x1b[2J"}).Draw(t, "problem")}
		var keys keyReader
		for _, k := range keys.feed(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "keys")) {
			v, _ = v.press(k, v.rows(frame), v.page(height))
		}
		lines := strings.Split(v.render(frame, width, height), "\n")
		if len(lines) != height {
			t.Fatalf("%d lines, want %d", len(lines), height)
		}
		for i, l := range lines {
			if n := utf8.RuneCountInString(l); n > width || strings.ContainsFunc(l, unicode.IsControl) {
				t.Errorf("line %d is %q: %d columns of %d", i, l, n, width)
			}
		}
	})
}

func TestTopKeys(t *testing.T) {
	for text, want := range map[string][]topKey{
		"qs":                            {'q', 's'},
		"\x1b":                          {keyEscape},
		"\x1b[A\x1b[B\x1bOA\x1b[5~":     {keyUp, keyDown, keyUp, keyPageUp},
		"\x1b[6~\x1b[H\x1b[4~\x1b[1;5F": {keyPageDown, keyHome, keyEnd, keyEnd},
		"\t\r\n\x7f\x08\x03":            {keyTab, keyEnter, keyEnter, keyBackspace, keyBackspace, keyInterrupt},
		"é\x1bx\x00y":                   {'é', 'y'},
		"\xff\xfe":                      nil,
		"\x1b[200~":                     nil,
	} {
		var whole, bytewise keyReader
		if got := whole.feed([]byte(text)); !equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		// The same keys when a slow line brings them byte by byte, but for escapes, of which the first byte is a key by itself.
		var got []topKey
		for i := range len(text) {
			got = append(got, bytewise.feed([]byte{text[i]})...)
		}
		if !strings.Contains(text, "\x1b") && !equal(got, want) {
			t.Errorf("%q byte by byte: %v, want %v", text, got, want)
		}
	}
	var split keyReader
	if got := append(split.feed([]byte("\x1b[")), split.feed([]byte("5~s"))...); !equal(got, []topKey{keyPageUp, 's'}) {
		t.Errorf("a sequence in two reads: %v", got)
	}
}

func equal(a, b []topKey) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// FuzzTopKeys: whatever a terminal sends, little of it is kept, and plain keys after it are still keys.
func FuzzTopKeys(f *testing.F) {
	for _, s := range []string{"q", "\x1b[A", "\x1b[", "\x1bO", "\x1b[1;2;3;4;5;6;7;8;9", "\xe2\x82", "\x1b\x1b\x1b", "\xff"} {
		f.Add([]byte(s), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var k keyReader
		keys := append(k.feed(a), k.feed(b)...)
		if len(k.pending) >= maxKeyBytes || len(keys) > len(a)+len(b) {
			t.Fatalf("%d bytes pending, %d keys of %d bytes", len(k.pending), len(keys), len(a)+len(b))
		}
		for range maxKeyBytes {
			k.feed([]byte{'A'}) // ends any sequence
		}
		if got := k.feed([]byte("q")); !equal(got, []topKey{'q'}) {
			t.Fatalf("q is read as %v", got)
		}
	})
}

// topServer answers polls with the fixture, a second further each time, and counts them.
type topServer struct {
	*httptest.Server
	mu     sync.Mutex
	second int
	polls  int
	down   bool
}

func newTopServer(t *testing.T) *topServer {
	s := &topServer{}
	now := func() *topSnapshot {
		s.mu.Lock()
		defer s.mu.Unlock()
		return topFixture(s.second)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/describe/gateway", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		s.second++
		s.polls++
		down := s.down
		s.mu.Unlock()
		if down {
			refuse(w, api.ShuttingDown, "the gateway is shutting down")
			return
		}
		answer(w, now().gateway)
	})
	mux.HandleFunc("GET /v1/functions", func(w http.ResponseWriter, _ *http.Request) { answer(w, api.FunctionList{Functions: now().functions}) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { answer(w, api.ModelList{Models: now().models}) })
	mux.HandleFunc("GET /v1/traffic", func(w http.ResponseWriter, _ *http.Request) { answer(w, api.TrafficList{Traffic: now().traffic}) })
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// topCLI has a clock that goes a second further with each poll.
func (s *topServer) cli(out *bytes.Buffer) *cli {
	return &cli{
		out: out, err: out, admin: s.URL, http: s.Client(), getenv: func(string) string { return "" },
		now: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return then.Add(time.Duration(s.second) * time.Second)
		},
	}
}

func TestTopPrintsFrames(t *testing.T) {
	s := newTopServer(t)
	var out bytes.Buffer
	if err := s.cli(&out).topFrames(t.Context(), topOptions{every: time.Millisecond, frames: 2, rows: 2, format: formatTable}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"xebec v1.2.3  up 2s", "up 3s", "cache 40% hits", "12", "… and 2 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "FUNCTION ") != 2 || s.polls != 3 {
		t.Errorf("%d polls for\n%s", s.polls, text)
	}
}

func TestTopPrintsJSON(t *testing.T) {
	s := newTopServer(t)
	var out bytes.Buffer
	if err := s.cli(&out).topFrames(t.Context(), topOptions{every: time.Millisecond, frames: 3, rows: 1, format: formatJSON}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want one a frame", len(lines))
	}
	for _, l := range lines {
		var f topFrame
		if err := json.Unmarshal([]byte(l), &f); err != nil {
			t.Fatal(err)
		}
		if len(f.Functions) != 3 || len(f.Models) != 4 || f.Functions[0].ErrorsPerSecond == nil || *f.Functions[0].ErrorsPerSecond != 12 || *f.Functions[0].DefaultsPerSecond != 30 {
			t.Errorf("%+v", f)
		}
	}
}

func TestTopWithoutAGateway(t *testing.T) {
	s := newTopServer(t)
	s.down = true
	var out bytes.Buffer
	if err := s.cli(&out).topFrames(t.Context(), topOptions{every: time.Millisecond, frames: 1, format: formatTable}); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("got %v", err)
	}
}

func TestTopIsInterrupted(t *testing.T) {
	s := newTopServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	c := s.cli(&bytes.Buffer{})
	c.out = writerFunc(func(b []byte) (int, error) { interrupt(); return len(b), nil })
	if err := c.topFrames(ctx, topOptions{every: time.Millisecond, frames: maxTopFrames, format: formatJSON}); err != nil {
		t.Errorf("got %v: to interrupt it is how one ends it", err)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

func TestTopFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-o yaml", "-o yaml: expected table or json"}, {"--every 1ms", "--every 1ms: expected 100ms to 1h0m0s"}, {"-n 0", "-n 0: expected 1 to 1000000"},
		{"--rows -1", "--rows -1: expected 0, for all, or more"}, {"digits", `takes no arguments but flags; got "digits"`},
	} {
		cmd := (&cli{getenv: func(string) string { return "" }}).topCommand()
		cmd.SetArgs(strings.Fields(c.args))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
