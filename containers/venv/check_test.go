package venv

import (
	"path/filepath"
	"strings"
	"testing"
)

// What pip would not read is refused with its line before anything is built; what pip reads is not.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"nothing", "notes.txt", "x", ""},
		{"requirements", "requirements.txt", "\ufeff# packages\nnumpy\nscikit_learn==1.5.*  # pinned\ntorch==2.1.0+cu118 ; python_version < \"3.13\"\r\nrequests[security, socks] >= 2.8.1, < 3\n" +
			"zope.interface (>=6)\nepoch==1!2.0\nlocal @ https://example.org/a.whl\nhttps://example.org/b-1.0-py3-none-any.whl\n--extra-index-url https://${USER}@example.org\n-f wheels\n" +
			"hashed==1 \\\n  --hash=sha256:00 \\\n  --hash=sha256:01\npkg~=1.4.2\n${NAME}==1\n", ""},
		{"one =", "requirements.txt", "numpy\n\nscikit-learn=1.5\n", `requirements.txt:3: "scikit-learn=1.5": expected == before a version`},
		{"no operator", "requirements.txt", "numpy 2.0", `requirements.txt:1: "numpy 2.0": expected versions behind the name, such as numpy>=2,<3`},
		{"no name", "requirements.txt", ">=2", `requirements.txt:1: ">=2": expected a package's name`},
		{"no option", "requirements.txt", "numpy\n--indexurl https://example.org", "requirements.txt:2: \"--indexurl https://example.org\": there is no option --indexurl"},
		{"not there", "requirements.txt", "-r other.txt", `requirements.txt:1: "other.txt" cannot be read`},
		{"a joined line", "requirements.txt", "# x\nnumpy \\\n  ==\n", `requirements.txt:2: "numpy   ==": expected versions`},
		{"project", "pyproject.toml", "[project]\ndependencies = [\"numpy\", \"torch=2\"]\n", `pyproject.toml: project.dependencies has "torch=2": expected == before a version`},
		{"no TOML", "pyproject.toml", "[project\n", "pyproject.toml: toml: "},
		{"a good project", "pyproject.toml", "[project]\ndependencies = [\"numpy>=2\"]\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, c.file), c.text)
			err := Check(dir)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("numpy>=2 ; python_version<'3' \\\n --hash=x")
	f.Add("-r x\n${A}\n#")
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range logicalLines(text) {
			if l.text == "" || l.number < 1 {
				t.Fatalf("line %+v", l)
			}
			checkLine(l.text)
		}
	})
}
