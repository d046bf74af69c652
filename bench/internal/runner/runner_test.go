package runner

import (
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

func TestStatus(t *testing.T) {
	var stderr strings.Builder
	if got := status("tool", &stderr, func(context.Context) error { return nil }); got != 0 || stderr.String() != "" {
		t.Errorf("without an error: status %d, %q", got, stderr.String())
	}
	if got := status("tool", &stderr, func(context.Context) error { return errors.New("no disk") }); got != 1 || stderr.String() != "tool: no disk\n" {
		t.Errorf("with an error: status %d, %q", got, stderr.String())
	}
}

func TestASignalEndsTheContext(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		status("tool", io.Discard, func(ctx context.Context) error {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			return nil
		})
	}
}

func TestOnlyFlagsAreParsed(t *testing.T) {
	flags := flag.NewFlagSet("tool", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	n := flags.Int("n", 1, "")
	if err := parse(flags, []string{"-n", "3"}); err != nil || *n != 3 {
		t.Errorf("got %d, %v", *n, err)
	}
	for _, args := range [][]string{{"word"}, {"-n", "3", "word"}, {"-m"}} {
		if err := parse(flags, args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("there", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	there, none, missing := "there", "", "missing"
	if err := Resolve("make it", &there, &none); err != nil || there != filepath.Join(dir, "there") || none != "" {
		t.Errorf("got %q and %q, %v", there, none, err)
	}
	if err := Resolve("make it", &missing); !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), ": make it") {
		t.Errorf("got %v", err)
	}
}

func TestSettingsRegisterTheirFlags(t *testing.T) {
	before := flag.CommandLine
	t.Cleanup(func() { flag.CommandLine = before })
	flag.CommandLine = flag.NewFlagSet("tool", flag.ContinueOnError)
	var xebec, out string
	Xebec.Var(&xebec)
	Out.Var(&out)
	if err := parse(flag.CommandLine, []string{"-out", ""}); err != nil || xebec != "bin/xebec" || out != "" {
		t.Errorf("got %q and %q, %v", xebec, out, err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		value string
		want  []string
	}{{"a", []string{"a"}}, {"b,a", []string{"b", "a"}}, {"", nil}, {"a,", nil}, {"c", nil}, {"a, b", nil}} {
		got, err := Names("only", c.value, "a", "b")
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q: got %q, %v", c.value, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "expected some of a,b") {
			t.Errorf("%q: %v does not say what is expected", c.value, err)
		}
	}
}

// measured is a report for the tests.
type measured struct {
	results.Taken
	Parts []string `json:"parts"`
}

func (m *measured) Empty() bool      { return len(m.Parts) == 0 }
func (m *measured) Markdown() string { return "# Parts\n" }

// recording returns a part that adds its name to the report, with the number of its settings.
func recording(name string, err error) Part[int, measured] {
	return Part[int, measured]{Name: name, Measure: func(_ context.Context, cfg int, m *measured) error {
		m.Parts = append(m.Parts, name+strings.Repeat("!", cfg))
		return err
	}}
}

func TestPartsRunInOrderAndReportAllErrors(t *testing.T) {
	all := Parts[int, measured]{recording("a", errors.New("no disk")), recording("b", nil), recording("c", errors.New("no network"))}
	for _, c := range []struct {
		only, want string
		errs       []string
	}{
		{"", "a! b! c!", []string{"part a: no disk", "part c: no network"}}, {"c,b", "b! c!", []string{"part c: no network"}}, {"b", "b!", nil},
	} {
		chosen, err := all.Choose(c.only)
		if err != nil {
			t.Fatal(err)
		}
		var m measured
		took, err := chosen.Run(t.Context(), 1, &m)
		if got := strings.Join(m.Parts, " "); got != c.want || len(took) != len(m.Parts) || took[0].Part != c.want[:1] {
			t.Errorf("-only %q: ran %q, took %v", c.only, got, took)
		}
		if (err == nil) != (c.errs == nil) {
			t.Errorf("-only %q: %v", c.only, err)
		}
		for _, want := range c.errs {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("-only %q: no %q in %v", c.only, want, err)
			}
		}
	}
	if _, err := all.Choose("d"); err == nil {
		t.Error("an unknown part was accepted")
	}
}

func TestCancelledPartsDoNotRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stop := Part[int, measured]{Name: "a", Measure: func(context.Context, int, *measured) error { cancel(); return nil }}
	var m measured
	if took, err := (Parts[int, measured]{stop, recording("b", nil)}).Run(ctx, 0, &m); err != nil || len(took) != 1 || len(m.Parts) != 0 {
		t.Errorf("took %v, ran %v, %v", took, m.Parts, err)
	}
}

func TestOrders(t *testing.T) {
	in := []string{"a", "b", "c"}
	for _, c := range []struct {
		round             int
		alternate, rotate string
	}{{0, "abc", "abc"}, {1, "cba", "bca"}, {2, "abc", "cab"}, {3, "cba", "abc"}} {
		if got := strings.Join(Alternate(c.round, in...), ""); got != c.alternate {
			t.Errorf("alternate, round %d: %s, want %s", c.round, got, c.alternate)
		}
		if got := strings.Join(Rotate(c.round, in...), ""); got != c.rotate {
			t.Errorf("rotate, round %d: %s, want %s", c.round, got, c.rotate)
		}
	}
	if strings.Join(in, "") != "abc" || len(Rotate[int](1)) != 0 {
		t.Errorf("the contenders became %v", in)
	}
}

func TestPublish(t *testing.T) {
	var stdout strings.Builder
	if err := publish(&stdout, "", "kind", &measured{}); err == nil || stdout.String() != "" {
		t.Errorf("an empty report: %v, printed %q", err, stdout.String())
	}
	m, dir := &measured{Taken: results.Taken{When: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}, Parts: []string{"a"}}, t.TempDir()
	if err := publish(&stdout, "", "kind", m); err != nil || stdout.String() != "# Parts\n" {
		t.Errorf("without a folder: %v, printed %q", err, stdout.String())
	}
	if err := publish(io.Discard, dir, "kind", m); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2030-01-02-kind.json", "2030-01-02-kind.md"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestUntil(t *testing.T) {
	asked := 0
	third := func(context.Context) (bool, error) { asked++; return asked == 3, nil }
	if err := Until(t.Context(), time.Millisecond, time.Minute, "it is there", third); err != nil || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	never := func(context.Context) (bool, error) { return false, nil }
	if err := Until(t.Context(), time.Minute, time.Millisecond, "it is there", never); err == nil || !strings.Contains(err.Error(), "not within 1ms: it is there") {
		t.Errorf("got %v", err)
	}
	broken := errors.New("broken")
	if err := Until(t.Context(), time.Minute, time.Minute, "", func(context.Context) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestSleepEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := Sleep(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func TestTrainSaysWhatIsMissing(t *testing.T) {
	if err := Train(t.Context(), "true", "train.py"); err != nil {
		t.Error(err)
	}
	if err := Train(t.Context(), "false", "train.py"); err == nil || !strings.Contains(err.Error(), "make demo") {
		t.Errorf("got %v", err)
	}
}
