package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// An export has no models of watched directories. A gateway without these directories refuses a whole manifest if one
// function or rule in it needs such a model. So these functions and rules are separated: in YAML they become comments,
// to keep the backup complete. JSON has no comments.

// watchedHead stands above the comments.
const watchedHead = `# The objects below need models of watched directories, which are not in this file. On a gateway with these models, remove "# " at the
# beginning of the lines, and apply the file.
`

// splitWatched separates the functions and traffic rules that need models which are not in the set.
func splitWatched(set *manifest.Set) (alone, watched *manifest.Set) {
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

// portable makes an export that a gateway without watched directories accepts. note names what it left out. If nothing
// needs to be left out, the export is unchanged.
func portable(answer []byte, format string) (text []byte, note string, err error) {
	if empty(answer) {
		return answer, "", nil
	}
	set, err := manifest.DecodeShown("export", answer)
	if err != nil {
		return nil, "", err
	}
	if n := masks(set); n > 0 {
		note = maskedNote(n)
	}
	if sent := sentNote(set); sent != "" {
		note = strings.TrimPrefix(note+"\n"+sent, "\n")
	}
	alone, watched := splitWatched(set)
	if watched.Len() == 0 {
		return answer, note, nil
	}
	if note != "" {
		note += "\n"
	}
	var names []string
	for i := range watched.Functions {
		names = append(names, "function "+watched.Functions[i].Name)
	}
	for i := range watched.Traffic {
		names = append(names, "traffic "+watched.Traffic[i].Model)
	}
	note += listedNames(names) + ": left out, because an export does not include models of watched directories"
	if format == formatJSON {
		text, err = alone.JSON()
		return text, note + "; -o yaml keeps them as comments", err
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
	return text, note + "; they are comments at the end", nil
}

// sentDir matches the copy that a gateway keeps of files that were sent to it. Models whose files lie on its host have their own directory in an export.
var sentDir = regexp.MustCompile(`/snapshots/[0-9a-f]{64}/files$`)

// sentNote says which models' files are only in the gateway's data directory.
func sentNote(set *manifest.Set) string {
	var names []string
	for i := range set.Models {
		if m := &set.Models[i]; sentDir.MatchString(m.Dir) {
			names = append(names, m.ID().String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return listedNames(names) + ": the files were sent to the gateway, and dir is where it keeps them on its host: copy these directories to another host before you apply the export there, or deploy the models there"
}

// maskedNote says that so many values are masked.
func maskedNote(n int) string {
	are := "are"
	if n == 1 {
		are = "is"
	}
	return fmt.Sprintf("%s of environment variables %s masked, so this export cannot be applied: --show-secrets includes them", numerals.Count(n, "value"), are)
}

// masks counts the values of the set that are masked.
func masks(set *manifest.Set) (n int) {
	for i := range set.Models {
		for _, v := range set.Models[i].Run.Env {
			if v.Masked {
				n++
			}
		}
	}
	return n
}

// empty reports whether an export declares nothing: it is only a comment in YAML, an empty list in JSON.
func empty(export []byte) bool {
	for line := range bytes.Lines(export) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "[]" {
			return false
		}
	}
	return true
}

// maxListedNames is how many names a message lists; it counts the others.
const maxListedNames = 10

func listedNames(names []string) string {
	if more := len(names) - maxListedNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListedNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
