package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api/manifest"
)

// watchedExport is the export of a gateway with a declared model and a model of a watched directory.
const watchedExport = exported + `---
kind: Function
name: both
models: [digits-svm, "watched@good"]
policy: {name: exp4}
---
kind: Function
name: shadowed
models: [digits-svm]
shadow: {watched: 0.1}
---
kind: Traffic
name: digits-svm
labels: {stable: "2"}
---
kind: Traffic
name: watched
versions: {latest: 2}
`

// names are the objects of a manifest.
func names(t *testing.T, text string) (all []string) {
	t.Helper()
	set, err := manifest.Decode("test", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i := range set.Models {
		all = append(all, set.Models[i].ID().String())
	}
	for i := range set.Functions {
		all = append(all, set.Functions[i].Name)
	}
	for i := range set.Traffic {
		all = append(all, "traffic "+set.Traffic[i].Model)
	}
	return all
}

func TestTheNoteOnMaskedValues(t *testing.T) {
	for n, want := range map[int]string{1: "1 value of environment variables is masked, so", 2: "2 values of environment variables are masked, so"} {
		if got := maskedNote(n); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestExportOfWatchedModels: a gateway without the watched models accepts an export. The note names what was left out,
// and the comments have it for a gateway with these models.
func TestExportOfWatchedModels(t *testing.T) {
	whole := names(t, watchedExport)
	alone := []string{"digits-svm@2", "digits", "traffic digits-svm"}
	text, note, err := portable([]byte(watchedExport), formatYAML)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(alone, names(t, string(text))); diff != "" {
		t.Errorf("a gateway without the models would read (-want +got):\n%s", diff)
	}
	for _, says := range []string{"function both", "function shadowed", "traffic watched", "comments"} {
		if !strings.Contains(note, says) {
			t.Errorf("the note %q does not say %q", note, says)
		}
	}
	before, after, found := strings.Cut(string(text), watchedHead)
	var uncommented strings.Builder
	for line := range strings.Lines(after) {
		uncommented.WriteString(strings.TrimPrefix(line, "# "))
	}
	got := names(t, before+uncommented.String())
	want := []string{"digits-svm@2", "digits", "both", "shadowed", "traffic digits-svm", "traffic watched"}
	if diff := cmp.Diff(want, got); !found || diff != "" || len(want) != len(whole) {
		t.Errorf("without the comment signs the export has (-want +got):\n%s", diff)
	}

	text, note, err = portable([]byte(watchedExport), formatJSON)
	if diff := cmp.Diff(alone, names(t, string(text))); err != nil || diff != "" || !strings.Contains(note, "traffic watched") || !strings.HasPrefix(string(text), "[") {
		t.Errorf("as JSON: %v, %q, %s", err, note, diff)
	}
	if text, note, err = portable([]byte(exported), formatYAML); err != nil || note != "" || string(text) != exported {
		t.Errorf("an export without watched models became %q, %q, %v: expected it unchanged", text, note, err)
	}
	onlyWatched := strings.TrimPrefix(watchedExport, exported+"---\n")
	if text, _, err = portable([]byte(onlyWatched), formatYAML); err != nil || strings.Contains(string(text), "\nkind") {
		t.Errorf("an export with nothing else became %q, %v", text, err)
	}
}

// TestExportOfNothing: an export without objects is unchanged and has no note.
func TestExportOfNothing(t *testing.T) {
	for format, text := range map[string]string{formatYAML: "# Nothing is declared.\n", formatJSON: "[]\n"} {
		if got, note, err := portable([]byte(text), format); err != nil || note != "" || string(got) != text {
			t.Errorf("%s: %q, %q, %v", format, got, note, err)
		}
	}
}
