package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api/manifest"
)

// An export has no models of watched directories, and a gateway without these directories refuses, whole, a manifest with functions and
// rules of models that it lacks. So these are told apart: in YAML they stay as comments, for the backup is to be complete; JSON has no comments.

// watchedHead stands above what is commented out.
const watchedHead = `# What follows needs models that come from watched directories, which are not in this file. Where these models are there, take away
# the "# " at the beginning of the lines, and apply the file.
`

// onWatched are the functions and the traffic rules of an export that need models which are not in it.
func onWatched(set *manifest.Set) (alone, watched *manifest.Set) {
	there := map[string]bool{}
	for i := range set.Models {
		there[set.Models[i].Name] = true
	}
	missing := func(ref string) bool {
		name, _, _ := strings.Cut(ref, "@")
		return !there[name]
	}
	alone, watched = &manifest.Set{Models: set.Models}, &manifest.Set{}
	for _, f := range set.Functions {
		to := alone
		if slices.ContainsFunc(f.Refs(), missing) {
			to = watched
		}
		to.Functions = append(to.Functions, f)
	}
	for _, t := range set.Traffic {
		to := alone
		if missing(t.Model) {
			to = watched
		}
		to.Traffic = append(to.Traffic, t)
	}
	return alone, watched
}

// portable is an export that a gateway without watched directories takes, and what there is to say of what it would not have taken; an
// export without any such thing is as it came.
func portable(answer []byte, format string) (text []byte, note string, err error) {
	if empty(answer) {
		return answer, "", nil
	}
	set, err := manifest.Decode("export", answer)
	if err != nil {
		return nil, "", err
	}
	alone, watched := onWatched(set)
	if watched.Len() == 0 {
		return answer, "", nil
	}
	var names []string
	for i := range watched.Functions {
		names = append(names, "function "+watched.Functions[i].Name)
	}
	for i := range watched.Traffic {
		names = append(names, "traffic "+watched.Traffic[i].Model)
	}
	const why = "%s: left out, for models of watched directories that they need are not in an export"
	note = fmt.Sprintf(why, listedNames(names))
	if format == formatJSON {
		text, err = alone.JSON()
		return text, note + "; -o yaml has them as comments", err
	}
	text, err = alone.YAML()
	if err != nil {
		return nil, "", err
	}
	rest, err := watched.YAML()
	if err != nil {
		return nil, "", err
	}
	text = append(text, watchedHead...)
	if alone.Len() > 0 {
		text = append(text, "# ---\n"...)
	}
	for line := range bytes.Lines(rest) {
		text = append(append(text, "# "...), line...)
	}
	return text, note + "; they are comments at its end", nil
}

// empty says of an export that nothing is declared: in YAML it is a comment then, in JSON an empty list.
func empty(export []byte) bool {
	for line := range bytes.Lines(export) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "[]" {
			return false
		}
	}
	return true
}

// maxListedNames is how many names a message has before it only counts.
const maxListedNames = 10

func listedNames(names []string) string {
	if more := len(names) - maxListedNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListedNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
