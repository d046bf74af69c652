package declarations

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A new version whose requirements cannot be read is refused, by a trial and by the change. One that is declared stays.
func TestRequirementsAreChecked(t *testing.T) {
	b := begun(t, Config{})
	var looked []string
	b.cfg.Host.CheckEnvironment = func(dir string) error {
		looked = append(looked, dir)
		return errors.New(filepath.Join(dir, "requirements.txt") + ":1: no")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "requirements.txt"), []byte("numpy=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []bool{true, false} {
		set := decoded(t, model)
		set.SetDir(dir)
		_, err := b.Apply(context.Background(), set, dryRun)
		if code(err) != api.InvalidArgument || !strings.Contains(err.Error(), "model m@1: dir: "+dir+"/requirements.txt:1: no") {
			t.Errorf("dry run %v: %v", dryRun, err)
		}
	}
	set := decoded(t, strings.Replace(model, "command: [python, model.py]", "command: [sleep, '1']", 1))
	set.SetDir(dir)
	if _, err := b.Apply(context.Background(), set, false); err != nil || len(looked) != 2 {
		t.Errorf("a model in another language: %v, looked at %v", err, looked)
	}
}
