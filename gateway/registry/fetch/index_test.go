package fetch

import (
	"net/url"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	base, err := url.Parse("https://host/models/index.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0a", 32)
	entry := func(name, version, at, size, sum string) string {
		return `{"name": "` + name + `", "version": "` + version + `", "url": "` + at + `", "size": ` + size + `, "sha256": "` + sum + `"}`
	}
	good := entry("m", "1", "m-1.tar", "10", sum)
	for _, test := range []struct {
		text    string
		entries int
		want    string // in the error, or in the first invalid entry
	}{
		{`{"models": []}`, 0, ""},
		{`{"models": [` + good + `]}`, 1, ""},
		{`{"models": [` + good + "," + good + `]}`, 1, "models[1]: m@1 is listed twice"},
		{`{"models": [` + good + "," + entry("M", "2", "x", "1", sum) + `]}`, 1, "models[1]: model name"},
		{`{"models": [` + entry("m", "../2", "x", "1", sum) + `]}`, 0, "version"},
		{`{"models": [` + entry("m", "2", "", "1", sum) + `]}`, 0, "url: expected"},
		{`{"models": [` + entry("m", "2", "file:///etc/passwd", "1", sum) + `]}`, 0, "url: expected"},
		{`{"models": [` + entry("m", "2", "x", "0", sum) + `]}`, 0, "size: 0"},
		{`{"models": [` + entry("m", "2", "x", "101", sum) + `]}`, 0, "size: 101: expected 1 to 100 bytes"},
		{`{"models": [` + entry("m", "2", "x", "1", strings.ToUpper(sum)) + `]}`, 0, "sha256: expected"},
		{`{"models": [` + entry("m", "2", "x", "1", "0a") + `]}`, 0, "sha256: expected"},
		{`{}`, 0, `has no "models"`},
		{`{"models": [], "more": 1}`, 0, "unknown field"},
		{`{"models": []} {}`, 0, "there is more behind it"},
		{`<html>`, 0, "not what was expected"},
		{`{"models": [` + strings.Repeat("{},", MaxVersions) + `{}]}`, 0, "expected at most 4096"},
		{strings.Repeat(" ", MaxIndexBytes+1), 0, "more than 4194304 bytes"},
	} {
		entries, invalid, err := parse([]byte(test.text), base, 100)
		got := strings.Join(invalid, "\n")
		if err != nil {
			got = err.Error()
		}
		if len(entries) != test.entries || !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%.80s: %d entries, %q: expected %d and %q", test.text, len(entries), got, test.entries, test.want)
		}
	}
}
