package dialect

import (
	"fmt"
	"strings"
)

// CheckRoutes reports routes that no transport can serve: malformed ones and duplicates.
func CheckRoutes(routes []Route) error {
	seen := map[string]bool{}
	for _, r := range routes {
		if r.Method == "" || r.Serve == nil || !strings.HasPrefix(r.Path, "/") {
			return fmt.Errorf("route %q %q: expected a method, a path that begins with a slash, and a function", r.Method, r.Path)
		}
		key := r.Method
		for segment := range strings.SplitSeq(r.Path[1:], "/") {
			if _, is, err := parameter(segment); err != nil {
				return fmt.Errorf("route %s %s: %w", r.Method, r.Path, err)
			} else if is {
				segment = "{}"
			}
			key += "/" + segment
		}
		if seen[key] {
			return fmt.Errorf("route %s %s is there twice", r.Method, r.Path)
		}
		seen[key] = true
	}
	return nil
}

// parameter reports whether a segment of a route's path is a parameter, and its name.
func parameter(segment string) (name string, is bool, err error) {
	if !strings.ContainsAny(segment, "{}:*") {
		return "", false, nil
	}
	inner, begins := strings.CutPrefix(segment, "{")
	name, ends := strings.CutSuffix(inner, "}")
	if !begins || !ends || name == "" || strings.ContainsAny(name, "{}:*") {
		return "", false, fmt.Errorf("the segment %q: expected text without braces, colons and stars, or {name}", segment)
	}
	return name, true, nil
}

// Literal returns the beginning of the route's path that all its requests share, up to the first parameter.
func (r *Route) Literal() string {
	head, _, _ := strings.Cut(r.Path, "{")
	return head
}

// match matches a path and appends the parameters' names and values. exact is the number of literal segments.
func (r *Route) match(path string, params []string) (matched []string, exact int, ok bool) {
	pattern, rest := r.Path[1:], strings.TrimPrefix(path, "/")
	for {
		want, wants, moreWanted := strings.Cut(pattern, "/")
		got, gets, moreGot := strings.Cut(rest, "/")
		if name, is, _ := parameter(want); is {
			if got == "" {
				return nil, 0, false
			}
			params = append(params, name, got)
		} else if want != got {
			return nil, 0, false
		} else {
			exact++
		}
		if moreWanted != moreGot {
			return nil, 0, false
		}
		if !moreWanted {
			return params, exact, true
		}
		pattern, rest = wants, gets
	}
}
