package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFrames draws frames of the fixture and presses keys. Each poll comes a second after the one before. In the
// transcripts ‹ stands for the beginning of a control sequence, and | for the end of a line. -rewrite writes the files
// again.
func TestFrames(t *testing.T) {
	datadriven.Walk(t, "testdata/frames", func(t *testing.T, path string) {
		var (
			second        int
			before        *Snapshot
			frame         *Frame
			shown         view
			keys          terminal.Keys
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
				now := fixture(second)
				second++
				models := 0
				number("models", &models)
				addIdle(now, models)
				number("pid", &now.Gateway.PID)
				now.Gateway.Store.Away, now.Gateway.Draining = d.HasArg("away"), d.HasArg("draining")
				frame, before = Compare(before, now), now
				return ""
			case "press":
				text, err := strconv.Unquote(strings.TrimSpace(d.Input))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				for _, k := range keys.Feed([]byte(text)) {
					var quit bool
					if shown, quit = shown.press(k, shown.rows(frame), shown.page(height)); quit {
						return "quit\n"
					}
				}
				return ""
			case "problem":
				shown.problem = strings.TrimSpace(d.Input)
				return ""
			case "render":
				shown.colour = d.HasArg("colour")
				text := shown.render(frame, width, height)
				if lines := strings.Split(text, "\n"); len(lines) != height {
					d.Fatalf(t, "%d lines, want %d", len(lines), height)
				}
				return strings.NewReplacer("\x1b[", "‹", "\n", "|\n").Replace(text) + "|\n"
			case "text":
				rows := 0
				number("rows", &rows)
				return frame.Text(rows)
			case "json":
				object, err := json.MarshalIndent(frame, "", "  ")
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return string(object) + "\n"
			}
			d.Fatalf(t, "unknown directive %q", d.Cmd)
			return ""
		})
	})
}

// TestAnyScreen: whatever the size, the frame and the keys, there are as many lines as the screen has, and none is
// wider.
func TestAnyScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := fixture(1)
		addIdle(now, rapid.IntRange(0, 60).Draw(t, "models"))
		now.Gateway.Store.Name = rapid.String().Draw(t, "store")
		now.Models[0].Version.Source = rapid.String().Draw(t, "source")
		frame := Compare(fixture(0), now)
		width, height := rapid.IntRange(1, 200).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
		v := view{problem: rapid.SampledFrom([]string{"", "gone\x1b[2J"}).Draw(t, "problem")}
		var keys terminal.Keys
		for _, k := range keys.Feed(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "keys")) {
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

// counting is a poller that returns the next second of the fixture each time.
func counting(polls *int) Poller {
	return func(context.Context) (*Snapshot, error) {
		*polls++
		return fixture(*polls), nil
	}
}

func TestWatch(t *testing.T) {
	polls := 0
	var out bytes.Buffer
	err := Watch(t.Context(), counting(&polls), time.Millisecond, 2, func(f *Frame) error {
		if len(f.Functions) != 3 || len(f.Models) != 4 || f.Functions[0].ErrorsPerSecond == nil || *f.Functions[0].ErrorsPerSecond != 12 || *f.Functions[0].DefaultsPerSecond != 30 {
			t.Errorf("a frame is %+v", f)
		}
		_, err := out.WriteString(f.Text(2))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"xebec v1.2.3  up 1d2h", "cache 40% hits", "12", "… and 2 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "FUNCTION ") != 2 || polls != 3 {
		t.Errorf("%d polls for\n%s", polls, text)
	}
}

func TestWatchEnds(t *testing.T) {
	polls := 0
	ctx, interrupt := context.WithCancel(t.Context())
	if err := Watch(ctx, counting(&polls), time.Millisecond, 1_000_000, func(*Frame) error { interrupt(); return nil }); err != nil || polls != 2 {
		t.Errorf("interrupted after the first frame: %v after %d polls, want nil after 2", err, polls)
	}
	failed := errors.New("failed")
	if err := Watch(t.Context(), counting(&polls), time.Millisecond, 2, func(*Frame) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a frame that cannot be written: %v", err)
	}
	away := func(context.Context) (*Snapshot, error) { return nil, failed }
	if err := Watch(t.Context(), away, time.Millisecond, 2, func(*Frame) error { return nil }); !errors.Is(err, failed) {
		t.Errorf("no gateway: %v", err)
	}
}

// TestPoll: a snapshot is four documents, and the time after the last one.
func TestPoll(t *testing.T) {
	var paths []string
	s, err := Poll(t.Context(), func(_ context.Context, path string, into any) error {
		paths = append(paths, path)
		if list, ok := into.(*api.ModelList); ok {
			list.Models = fixture(0).Models
		}
		return nil
	}, func() time.Time { return then.Add(time.Duration(len(paths)) * time.Second) })
	if err != nil || len(s.Models) != 4 || !s.At.Equal(then.Add(4*time.Second)) {
		t.Errorf("%+v, %v after %v", s, err, paths)
	}
	broken := fmt.Errorf("broken")
	if _, err := Poll(t.Context(), func(context.Context, string, any) error { return broken }, time.Now); !errors.Is(err, broken) {
		t.Errorf("the error of a poll is %v, want %v", err, broken)
	}
}
