package sim

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Bounds of a trace.
const (
	// maxTraceQueries keeps a trace below a few hundred MiB in memory.
	maxTraceQueries = 10_000_000
	// maxTraceSpan is longer than any useful simulation, and far from the end of the clock.
	maxTraceSpan = 31 * 24 * time.Hour
	maxTraceLine = 4096
)

// Trace has the arrival times of each function's queries, by the function's name.
type Trace map[string][]api.Nanos

// ParseTrace reads a trace: text, with a line for each query or for a number of them.
//
//	# an offset from the start, and a function
//	0s        classify
//	12.5ms    classify
//	# an offset, a length, a function and a number: so many queries, evenly spread over that time
//	1s  100ms classify 250
//
// Offsets and lengths are durations as Go writes them (1h, 250ms, 3.2µs). Lines need not be in order. Empty lines and
// text after a # are ignored. The error names the line.
func ParseTrace(r io.Reader) (Trace, error) {
	t := Trace{}
	total := 0
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, maxTraceLine), maxTraceLine)
	line := 0
	for sc.Scan() {
		line++
		text, _, _ := strings.Cut(sc.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		n, err := t.add(words)
		if err != nil {
			return nil, fmt.Errorf("trace, line %d: %w", line, err)
		}
		if total += n; total > maxTraceQueries {
			return nil, fmt.Errorf("trace, line %d: more than %d queries: cut the trace into several", line, maxTraceQueries)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("trace, after line %d: %w (a line has at most %d bytes)", line, err, maxTraceLine)
	}
	for _, times := range t {
		slices.Sort(times)
	}
	return t, nil
}

// add adds a line and returns its number of queries.
func (t Trace) add(words []string) (int, error) {
	if len(words) != 2 && len(words) != 4 {
		return 0, fmt.Errorf("%d words: expected an offset and a function, or an offset, a length, a function and a number", len(words))
	}
	from, err := parseSpan(words[0])
	if err != nil {
		return 0, fmt.Errorf("offset %q: %w", words[0], err)
	}
	if len(words) == 2 {
		t[words[1]] = append(t[words[1]], from)
		return 1, nil
	}
	length, err := parseSpan(words[1])
	if err != nil {
		return 0, fmt.Errorf("length %q: %w", words[1], err)
	}
	if from+length > api.Nanos(maxTraceSpan) {
		return 0, fmt.Errorf("it ends after %v: expected at most %v", span(from+length), maxTraceSpan)
	}
	n, err := strconv.Atoi(words[3])
	if err != nil || n < 0 || n > maxTraceQueries {
		return 0, fmt.Errorf("number %q: expected a whole number from 0 to %d", words[3], maxTraceQueries)
	}
	for i := range n {
		at := from + api.Nanos(float64(length)*float64(i)/float64(n))
		t[words[2]] = append(t[words[2]], at)
	}
	return n, nil
}

func parseSpan(s string) (api.Nanos, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("expected a duration such as 12.5ms")
	}
	if d < 0 || d > maxTraceSpan {
		return 0, fmt.Errorf("expected a duration from 0 to %v", maxTraceSpan)
	}
	return api.Nanos(d), nil
}

// span is a time for display.
func span(d api.Nanos) time.Duration { return time.Duration(d) }

// Names are the functions of the trace that have queries, in order.
func (t Trace) Names() []string {
	var names []string
	for name, times := range t {
		if len(times) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
