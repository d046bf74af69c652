package snapshot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// IgnoreFile lists what does not belong to a model, in the model's directory.
const IgnoreFile = ".xebecignore"

const (
	maxIgnoreBytes = 64 << 10 //xebec:limit `.xebecignore`
	maxPatterns    = 1000     //xebec:limit patterns of `.xebecignore`
)

// Ignore is a parsed .xebecignore.
type Ignore struct{ patterns []pattern }

type pattern struct {
	steps  []string
	folder bool // it matches directories only
}

// ParseIgnore reads patterns, one a line, as in .gitignore: blank lines and lines that begin with # say nothing, * and ? do not
// match a slash, ** matches any number of directories, a pattern with a slash before its end is relative to the directory, one without
// matches at any depth, and one with a slash at its end matches directories only. What matches is left out with all that is below it.
// Exceptions (!) are refused.
func ParseIgnore(text []byte) (*Ignore, error) {
	ig := &Ignore{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '!' {
			return nil, fmt.Errorf("line %d: %.100q: exceptions are not supported: list what is to be left out", n, line)
		}
		p := pattern{}
		line, p.folder = strings.CutSuffix(line, "/")
		anchored := strings.Contains(line, "/")
		p.steps = strings.Split(strings.TrimPrefix(line, "/"), "/")
		if !anchored {
			p.steps = append([]string{"**"}, p.steps...)
		}
		for _, step := range p.steps {
			if _, err := path.Match(step, ""); err != nil || step == "" {
				return nil, fmt.Errorf("line %d: %.100q is no pattern: expected names with *, ? and [a-z]", n, line)
			}
		}
		if ig.patterns = append(ig.patterns, p); len(ig.patterns) > maxPatterns {
			return nil, fmt.Errorf("has more than %d patterns", maxPatterns)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return ig, nil
}

// readIgnore reads the file of an open directory; nil: there is none.
func readIgnore(dir *os.File) (*Ignore, error) {
	f, err := openAt(dir, IgnoreFile, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("expected a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIgnoreBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxIgnoreBytes {
		return nil, fmt.Errorf("has more than %d bytes", maxIgnoreBytes)
	}
	return ParseIgnore(text)
}

// match reports whether a name is left out.
func (ig *Ignore) match(name string, isDir bool) bool {
	if ig == nil {
		return false
	}
	steps := strings.Split(name, "/")
	for _, p := range ig.patterns {
		if (isDir || !p.folder) && matchSteps(p.steps, steps) {
			return true
		}
	}
	return false
}

// matchSteps matches a pattern against a name. If a name does not fit behind a **, only the last ** takes one step more, so the time is
// bounded by the product of the lengths.
func matchSteps(pattern, name []string) bool {
	i, j := 0, 0
	last, from := -1, 0 // the last ** and the step of the name behind what it matches
	for j < len(name) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			last, from = i, j
			i++
			continue
		case i < len(pattern):
			if ok, _ := path.Match(pattern[i], name[j]); ok {
				i, j = i+1, j+1
				continue
			}
		}
		if last < 0 {
			return false
		}
		from++
		i, j = last+1, from
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}
