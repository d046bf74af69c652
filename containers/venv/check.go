package venv

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Check says what is wrong with what a model's directory asks for, as far as that can be said without a package index: files that cannot be
// read, and lines that are no requirements. It builds nothing. The lines are those of pip's requirements files, with the requirements of PEP 508
// (https://packaging.python.org/en/latest/specifications/dependency-specifiers/). A *containers.LaunchError says where.
func Check(dir string) error {
	want, err := readRequirements(dir)
	if want == nil || err != nil {
		return err
	}
	for name, text := range want.files {
		from := filepath.Join(dir, name)
		if want.project != "" {
			from = want.project
		}
		for _, l := range logicalLines(string(text)) {
			if why := checkLine(l.text); why != "" && want.project != "" {
				return refused("%s: project.dependencies has %q: %s", from, l.text, why)
			} else if why != "" {
				return refused("%s:%d: %q: %s", from, l.number, l.text, why)
			}
		}
	}
	return nil
}

// logicalLine is a line with those that a backslash at its end joins to it, without a comment.
type logicalLine struct {
	number int
	text   string
}

var comment = regexp.MustCompile(`(^|\s)#.*$`)

func logicalLines(text string) (all []logicalLine) {
	joined, number := "", 0
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		line = strings.TrimRight(line, "\r")
		if joined == "" {
			number = i + 1
		}
		if before, more := strings.CutSuffix(line, "\\"); more && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			joined += before
			continue
		}
		if line = strings.TrimSpace(comment.ReplaceAllString(joined+line, "")); line != "" {
			all = append(all, logicalLine{number, line})
		}
		joined = ""
	}
	if joined = strings.TrimSpace(joined); joined != "" {
		all = append(all, logicalLine{number, joined})
	}
	return all
}

// options are those of a requirements file, and of a line in it.
var options = []string{
	"-i", "--index-url", "--pypi-url", "--extra-index-url", "--no-index", "-f", "--find-links", "--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--pre",
	"--trusted-host", "--use-feature", "-c", "--constraint", "-r", "--requirement", "-e", "--editable",
}

// requirement is a name, extras, and versions or an address. Behind it may be a marker, or options of the line.
var (
	requirement = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[A-Za-z0-9._,\s-]*\])?\s*(.*)$`)
	specifier   = regexp.MustCompile(`^(~=|===|==|!=|<=|>=|<|>)\s*[A-Za-z0-9][A-Za-z0-9._+!*-]*$`)
)

// checkLine says what is wrong with a line; empty: nothing that can be seen.
func checkLine(line string) string {
	option, _ := split(line)
	switch {
	case option != "":
		if !slices.Contains(options, option) {
			return "there is no option " + option
		}
		return ""
	case strings.Contains(line, "${"), strings.Contains(line, "://"), strings.HasSuffix(strings.Fields(line)[0], ".whl"): // of the environment, an address, a file
		return ""
	}
	line, _, _ = strings.Cut(line, " --") // options of the line, such as --hash
	line, _, _ = strings.Cut(line, ";")
	m := requirement.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return "expected a package's name, such as numpy>=2"
	}
	versions := strings.TrimSpace(m[3])
	if versions == "" || strings.HasPrefix(versions, "@") {
		return ""
	}
	if inner, ok := strings.CutPrefix(versions, "("); ok {
		versions = strings.TrimSuffix(strings.TrimSpace(inner), ")")
	}
	for _, one := range strings.Split(versions, ",") {
		if one = strings.TrimSpace(one); one != "" && !specifier.MatchString(one) {
			if strings.HasPrefix(one, "=") && !strings.HasPrefix(one, "==") {
				return "expected == before a version"
			}
			return "expected versions behind the name, such as " + m[1] + ">=2,<3"
		}
	}
	return ""
}
