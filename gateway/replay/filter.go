package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// Filter selects queries of a log. The zero value selects all of them.
type Filter struct {
	// Function is the only function whose queries and feedback are read; "" means every function.
	Function string
	// Since and Until bound when queries came; a zero time is no bound. Until is exclusive.
	Since, Until time.Time
	// Limit is the largest number of queries; 0 means all.
	Limit int
}

// selectsSome reports whether the filter may leave out queries of a function that it reads.
func (f *Filter) selectsSome() bool { return f.Limit > 0 || !f.Since.IsZero() || !f.Until.IsZero() }

// EmptyError means that no query of the log was selected. It says what the log has instead.
type EmptyError struct {
	Log inferlog.Summary
	// Functions are up to 20 of the functions that the log has queries of, First and Last when those came.
	Functions   []string
	First, Last time.Time
}

func (e *EmptyError) Error() string {
	switch {
	case e.Log.Files == 0:
		return "there are no files of an inference log"
	case e.Log.Queries == 0:
		return "the log has no queries"
	}
	return fmt.Sprintf("no query of the log is selected: it has %d, of function %s, from %s to %s",
		e.Log.Queries, strings.Join(e.Functions, ", "), e.First.UTC().Format(time.RFC3339), e.Last.UTC().Format(time.RFC3339))
}

// maxSeenFunctions bounds the names in an EmptyError.
const maxSeenFunctions = 20

// reader reads the selected part of a log.
type reader struct {
	filter *Filter
	// seen are the functions that the log has queries of, firstMicros and lastMicros when these came.
	seen                    map[string]bool
	firstMicros, lastMicros int64
	queries                 int // selected
}

// read passes on the selected queries, and all feedback of the function.
func (r *reader) read(paths []string, each func(*inferlog.Entry) error) (inferlog.Summary, error) {
	r.seen = map[string]bool{}
	return inferlog.Read(paths, func(e *inferlog.Entry) error {
		if e.Kind == inferlog.KindQuery && !r.inTime(e) {
			return nil
		}
		if r.filter.Function != "" && e.Schema.Function != r.filter.Function {
			return nil
		}
		if e.Kind == inferlog.KindQuery {
			if r.filter.Limit > 0 && r.queries == r.filter.Limit {
				return nil
			}
			r.queries++
		}
		return each(e)
	})
}

// inTime notes when a query came, and reports whether the filter's bounds include it.
func (r *reader) inTime(e *inferlog.Entry) bool {
	at := e.Record.AtMicros
	if len(r.seen) == 0 || at < r.firstMicros {
		r.firstMicros = at
	}
	r.lastMicros = max(r.lastMicros, at)
	if len(r.seen) < maxSeenFunctions {
		r.seen[e.Schema.Function] = true
	}
	return (r.filter.Since.IsZero() || at >= r.filter.Since.UnixMicro()) && (r.filter.Until.IsZero() || at < r.filter.Until.UnixMicro())
}

func (r *reader) empty(log inferlog.Summary) error {
	return &EmptyError{Log: log, Functions: slices.Sorted(maps.Keys(r.seen)), First: time.UnixMicro(r.firstMicros), Last: time.UnixMicro(r.lastMicros)}
}
