package apptest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If a gateway's store file is replaced, for example by a backup, or removed with the data directory, the gateway
// acknowledges no change that a restart would lose. Changes are refused with what happened and what to do, which
// `describe gateway` shows too. Serving continues, and when the old file is back changes are accepted again.
func TestStoreFileThatIsReplaced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, says string
		do, undo   func(dir string) error
	}{
		{"a copy put in its place", "was replaced by another file",
			func(dir string) error {
				path := filepath.Join(dir, "state.db")
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if err := os.WriteFile(path+".copy", data, 0o600); err != nil {
					return err
				}
				if err := os.Rename(path, path+".old"); err != nil {
					return err
				}
				return os.Rename(path+".copy", path)
			},
			func(dir string) error {
				return os.Rename(filepath.Join(dir, "state.db.old"), filepath.Join(dir, "state.db"))
			}},
		{"its directory moved away", "was removed or moved away",
			func(dir string) error { return os.Rename(dir, dir+".away") },
			func(dir string) error { return os.Rename(dir+".away", dir) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(newDir(t), "data")
			g := serve(t, "--data-dir", dir)
			g.apply(number("m", "echo"), function("f", "m", "slo: 60s"))
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
			more := manifest(t, function("late", "m", "slo: 60s"))
			for _, args := range [][]string{{"apply", "-f", more}, {"delete", "function", "f"}, {"traffic", "m", "--serving", "1"}} {
				r := g.xebec(args...)
				for _, says := range []string{filepath.Join(dir, "state.db"), c.says, "restart the gateway", "xebec export", "nothing was changed"} {
					r.wants(t, strings.Join(args, " "), 1, "", says)
				}
			}
			if text := g.must("describe", "gateway"); !strings.Contains(text, c.says) {
				t.Errorf("describe gateway does not say that the file %s:\n%s", c.says, text)
			}
			if a := g.ask("f", 7, ""); a.number() != 7 {
				t.Errorf("meanwhile f answers %v", a)
			}
			if export := g.must("export"); strings.Contains(export, "late") || !strings.Contains(export, "name: f") {
				t.Errorf("the export is:\n%s", export)
			}

			if err := c.undo(dir); err != nil {
				t.Fatal(err)
			}
			g.must("apply", "-f", more)
			if text := g.must("describe", "gateway"); strings.Contains(text, c.says) {
				t.Errorf("after the file is back describe gateway prints:\n%s", text)
			}
			g.stop()
			g = serve(t, "--data-dir", dir)
			g.await("the acknowledged changes", func(ctx context.Context) (bool, string) {
				a, err := g.tryAsk(ctx, "late", 7, "")
				return err == nil && a.predicted() && a.number() == 7, a.String()
			})
		})
	}
}
