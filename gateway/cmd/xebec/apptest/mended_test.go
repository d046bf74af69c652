package apptest

import (
	"path/filepath"
	"testing"
)

// A first version that does not come up is mended under its name, also after a restart of the gateway. Once it has served it is its
// bytes, also when it does not start any more.
func TestAVersionThatNeverServedIsMended(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			source := filepath.Join(dir, "times")
			args := []string{"--python", python(t), "--data-dir", filepath.Join(dir, "data")}
			g := serveIn(t, dir, args...)
			writeTimes(t, source, "ten")
			g.xebec("deploy", source).wants(t, "deploy what does not start", 1, "model times@1 created", "could not convert string to float")
			if restart {
				g.stop()
				g = serveIn(t, dir, args...)
			}
			writeTimes(t, source, "10")
			g.xebec("deploy", source, "--dry-run").wants(t, "try what is mended", 0, "model times@1 updated (dry run): it had never served, and is replaced\n  digest: ", "")
			g.xebec("deploy", source).wants(t, "deploy what is mended", 0, "model times@1 updated: it had never served, and is replaced\n", "")
			if got := g.times("times"); got != "[10]" {
				t.Fatalf("it answers %s", got)
			}
			writeTimes(t, source, "20")
			refused := "factor.txt changed): a version never changes once it has served"
			g.xebec("deploy", source).wants(t, "deploy other files", 1, "", refused)
			if restart {
				g.stop()
				g = serveIn(t, dir, args...)
				g.xebec("deploy", source).wants(t, "deploy other files after a restart", 1, "", refused)
			}
		})
	}
}
